"""A batch's dealings with Redis: each call is repeated through an outage, and is such that it may be."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import redis

from tasks import rfc3339
from tasks.job import GenerateJob
from worker.batch import following
from worker.batch.following import DeadLetters, LostJob, Standing
from worker.batch.models import ModelCard, registered_card
from worker.batch.patience import Patience
from worker.fleet import read_fleet, redis_time_ms
from worker.keys import Keys
from worker.submit import enqueue_all

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Post:
    """The way to a Redis and a namespace in it. Every method raises what redis-py raises, once patience has run out."""

    client: redis.Redis
    keys: Keys
    patience: Patience

    def now_ms(self) -> int:
        """Return Redis' unix milliseconds."""
        return self._bear(lambda: redis_time_ms(self.client))

    def registered(self, model: str) -> ModelCard:
        """Return what workers have registered of a model."""
        return self._bear(lambda: registered_card(self.client, self.keys, model))

    def is_served(self, model: str) -> bool:
        """Tell whether a live worker takes the model's jobs."""
        return bool(self._bear(lambda: read_fleet(self.client, self.keys).serving(model)))

    def send(self, jobs: Sequence[GenerateJob], *, token: str, at_ms: int) -> None:
        """Put jobs into their queues; those that were put there within an hour, with the same token, are not again."""
        at = rfc3339.parse(rfc3339.from_ms(at_ms))
        stamped = [job.model_copy(update={"enqueued_at": at}) for job in jobs]
        self._bear(lambda: enqueue_all(self.client, self.keys, stamped, token=token))

    def result_sizes(self, job_ids: Sequence[str]) -> list[int]:
        """Return the size of each job's result in bytes, 0 where there is none (yet)."""
        return self._bear(lambda: following.result_sizes(self.client, self.keys, job_ids))

    def standings(self, job_ids: Sequence[str]) -> list[Standing]:
        """Return what is known of each job."""
        return self._bear(lambda: following.standings(self.client, self.keys, job_ids))

    def results(self, ready: Sequence[tuple[str, int]]) -> Iterator[list[tuple[str, bytes | None]]]:
        """Yield the results of these jobs, given with their sizes, some at a time; None for one that has just expired."""
        for group in following.groups(ready):
            yield self._bear(partial(following.results, self.client, self.keys, group))

    def settlement(self, stream_id: str) -> bytes | None:
        """Return the result that an entry of the settlement queue holds, None where it is not to be had."""
        return self._bear(lambda: following.settlement(self.client, self.keys, stream_id))

    def lost_jobs(self, letters: DeadLetters) -> list[LostJob]:
        """Return a batch's jobs that have become dead letters since the last call."""
        return self._bear(lambda: letters.read_on(self.client, self.keys))

    def _bear(self, call: Callable[[], T]) -> T:
        return self.patience.bear(call)
