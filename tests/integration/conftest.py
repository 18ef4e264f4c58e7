"""Integration tests use the servers of ``tests/conftest.py``; a missing embedded part fails them, it never skips them."""

from collections.abc import Iterator

import pytest
import redis

from tests.integration.bench import BareLedger, Ledgers, RedisBench, ledger_on


@pytest.fixture
def ledgers() -> Iterator[Ledgers]:
    """What makes ledgers, and closes their connections after the test."""
    made = Ledgers()
    yield made
    made.close()


@pytest.fixture
def bench(valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> RedisBench:
    """Two runs of a worker, or more, as bare ledgers beside the session's Valkey."""
    return RedisBench(
        valkey,
        lambda incarnation: BareLedger(ledger_on(ledgers.link(redis_url), incarnation)),
        ledgers.leases(redis_url),
    )
