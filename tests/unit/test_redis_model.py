"""The fake that stands for Redis in unit tests keeps the promises of the real one."""

from dataclasses import dataclass, field

import pytest

from tests.committer_contract import KEYS, Bench, CommitterContract
from tests.jobs import MODEL
from tests.redis_model import RedisModel
from worker.exchange import Exchange, ExchangeReply


@dataclass
class ModelBench:
    """A bench of a model."""

    redis: RedisModel = field(default_factory=RedisModel)

    def push(self, *raws: bytes, queue: str = KEYS.jobs(MODEL)) -> None:
        """Enqueue as a gateway does."""
        for raw in raws:
            self.redis.push(queue, raw)

    def exchange(self, asked: Exchange, incarnation: str = "triton-01:a") -> ExchangeReply:
        """Carry out an exchange."""
        return self.redis.exchange(incarnation, asked)

    def queued(self, queue: str = KEYS.jobs(MODEL)) -> list[bytes]:
        """Return what is in a list, next in line first."""
        return self.redis.lists[queue][::-1]

    def settled(self) -> list[str]:
        """Return the job_ids in the settlement queue."""
        return [job_id for job_id, _ in self.redis.settlements]

    def buried(self) -> list[tuple[str, str, bytes]]:
        """Return the dead letters."""
        return self.redis.dead_letters

    def claimed_tags(self, incarnation: str = "triton-01:a") -> set[str]:
        """Return the tags of what a run of a worker has claimed."""
        return set(self.redis.claims[incarnation])


class TestTheModel(CommitterContract):
    """The contract, for the model."""

    @pytest.fixture
    def bench(self) -> Bench:
        """Return a bench of a model."""
        return ModelBench()
