"""A worker without a model: takes jobs from their queues and settles them at once, as a test wants them settled."""

import threading
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Self

import redis

from tasks.job import GenerateJob
from tests.integration.settled import KEYS, settle

Answer = Callable[[GenerateJob], Mapping[str, Any] | None]
"""From a job to the fields of its result that are not the usual ones; None takes the job and leaves it unsettled."""


def echo(job: GenerateJob) -> Mapping[str, Any]:
    """The prompt as the text."""
    return {"text": job.prompt}


class QuickWorker:
    """A context manager; ``jobs`` are those that it has taken, in their order."""

    def __init__(self, url: str, *models: str, answer: Answer = echo, most: float = inf) -> None:
        """Take ``most`` jobs at most; the rest stays in its queue."""
        self.jobs: list[GenerateJob] = []
        self._most = most
        self._queues = [KEYS.jobs(model) for model in models or ("acme/model-1",)]
        self._answer = answer
        self._client = redis.Redis.from_url(url)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.close()

    @property
    def prompts(self) -> list[str]:
        """The prompts of the jobs that it has taken."""
        return [job.prompt for job in self.jobs]

    def _work(self) -> None:
        while not self._stopping.is_set() and len(self.jobs) < self._most:
            taken: Any = self._client.brpop(self._queues, timeout=0.05)
            if taken is None:
                continue
            job = GenerateJob.model_validate_json(taken[1])
            self.jobs.append(job)
            fields = self._answer(job)
            if fields is not None:
                settle(self._client, job, **fields)
