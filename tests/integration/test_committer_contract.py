"""The real committer over a real Redis keeps the promises that the fake of the unit tests makes."""

import pytest
import redis

from tests.committer_contract import Bench, CommitterContract
from tests.integration.bench import Ledgers, RedisBench


@pytest.mark.leaves("claims:*", "waiting")
class TestTheRealOne(CommitterContract):
    """The contract, for the scripts."""

    @pytest.fixture
    def bench(self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> Bench:
        """Return a bench of a real Redis."""
        return RedisBench(valkey, lambda incarnation: ledgers.committer(redis_url, incarnation))
