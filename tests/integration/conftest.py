"""Integration tests use the servers of ``tests/conftest.py``; a missing embedded part fails them, it never skips them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.bench import BareLedger, Ledgers, RedisBench, ledger_on
from worker.sandbox.triton_server import TritonServer

LOOKALIKES = Path(__file__).parents[1] / "lookalikes"
EXAMPLES = Path(__file__).parents[2] / "examples"


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


@pytest.fixture(scope="session")
def lookalikes() -> Iterator[TritonServer]:
    """A Triton with models that have the contracts of those that people run, and the example's; no test may change it."""
    repositories = (LOOKALIKES, EXAMPLES / "model_repository")
    with TritonServer(repositories, control="explicit", models=["*"], own_copy=True) as server:
        yield server
