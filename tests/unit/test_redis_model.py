"""The fake that stands for Redis in unit tests keeps the promises of the real one."""

from dataclasses import dataclass, field

import pytest

from tests.committer_contract import (
    KEYS,
    RUN,
    Bench,
    CommitterContract,
    LeaseContract,
    StandingContract,
    SuspectContract,
)
from tests.jobs import MODEL
from tests.redis_model import RedisModel, Seen, worker_of
from worker.exchange import Exchange, ExchangeReply


@dataclass
class ModelBench:
    """A bench of a model."""

    redis: RedisModel = field(default_factory=RedisModel)
    entered: set[str] = field(default_factory=set)

    def push(self, *raws: bytes, queue: str = KEYS.jobs(MODEL)) -> None:
        """Enqueue as a gateway does."""
        for raw in raws:
            self.redis.push(queue, raw)

    def exchange(self, asked: Exchange, incarnation: str = RUN) -> ExchangeReply:
        """Carry out an exchange."""
        if incarnation not in self.entered:
            self.enter(incarnation)
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

    def claimed_tags(self, incarnation: str = RUN) -> set[str]:
        """Return the tags of what a run of a worker has claimed."""
        return set(self.redis.claims[incarnation])

    def running(self) -> dict[str, str]:
        """Return which claim runs each job that is claimed."""
        return {job_id: "/".join(place) for job_id, place in self.redis.running.items()}

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        self.redis.cancelled.add(job_id)

    def enter(self, incarnation: str = RUN) -> str:
        """Ask for the lease."""
        self.entered.add(incarnation)
        return self.redis.enter(incarnation)

    def renew(self, incarnation: str = RUN) -> Seen:
        """Count the lease up, and look at everyone's."""
        return self.redis.renew(incarnation)

    def leave(self, incarnation: str = RUN) -> bool:
        """Give the lease up."""
        return self.redis.leave(incarnation)

    def reap(self, incarnation: str, stood: str) -> int:
        """End a run."""
        return self.redis.reap(incarnation, stood)


class OfAModel:
    """Gives the contracts a model."""

    @pytest.fixture
    def bench(self) -> Bench:
        """Return a bench of a model."""
        return ModelBench()


class TestExchanges(OfAModel, CommitterContract):
    """The contract, for the model."""


class TestLeases(OfAModel, LeaseContract):
    """The contract, for the model."""

    def lose_the_lease(self, bench: Bench) -> None:
        """Take RUN's lease away."""
        assert isinstance(bench, ModelBench)
        del bench.redis.leases[worker_of(RUN)]


class TestStandings(OfAModel, StandingContract):
    """The contract, for the model."""


class TestSuspects(OfAModel, SuspectContract):
    """The contract, for the model."""

    def waiting(self, bench: Bench) -> list[bytes]:
        """Return what waits."""
        assert isinstance(bench, ModelBench)
        return [waits.raw for waits in bench.redis.waiting]
