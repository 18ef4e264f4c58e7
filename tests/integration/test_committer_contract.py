"""The real committer over a real Redis keeps the promises that the fake of the unit tests makes."""

from typing import Any

import pytest
import redis

from tests.committer_contract import (
    KEYS,
    RUN,
    Bench,
    CommitterContract,
    LeaseContract,
    StandingContract,
    SuspectContract,
)
from tests.integration.bench import Ledgers, RedisBench
from tests.redis_model import worker_of

pytestmark = pytest.mark.leaves("claims:*", "waiting")


class OfTheRealOne:
    """Gives the contracts the scripts."""

    @pytest.fixture
    def bench(self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> Bench:
        """Return a bench of a real Redis."""
        return RedisBench(
            valkey, lambda incarnation: ledgers.committer(redis_url, incarnation), ledgers.leases(redis_url)
        )


class TestExchanges(OfTheRealOne, CommitterContract):
    """The contract, for the scripts."""


class TestLeases(OfTheRealOne, LeaseContract):
    """The contract, for the scripts."""

    def lose_the_lease(self, bench: Bench) -> None:
        """Take RUN's lease away."""
        assert isinstance(bench, RedisBench)
        bench.client.hdel(KEYS.leases, worker_of(RUN))


class TestStandings(OfTheRealOne, StandingContract):
    """The contract, for the scripts."""


class TestSuspects(OfTheRealOne, SuspectContract):
    """The contract, for the scripts."""

    def waiting(self, bench: Bench) -> list[bytes]:
        """Return what waits."""
        assert isinstance(bench, RedisBench)
        found: Any = bench.client.zrange(KEYS.waiting, 0, -1)
        return [record.split(b"\n", 2)[2] for record in found]
