"""Where it is measured: some of our workers on one queue, and a feeder that keeps the queue as deep as it is to be."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from benchmarks.figures import Window
from benchmarks.load import Sample
from benchmarks.ours import KEYS, configuration, enqueuer
from benchmarks.plan import ROOT, Workload
from benchmarks.sides import Enqueue
from worker.connections import redis_client
from worker.sandbox.worker_process import WorkerProcess

Say = Callable[[str], None]

_LOOK_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class MadeUp:
    """Inferences that are made up: how long each takes, and how long its text is."""

    inference_ms: float = 0.0
    text_bytes: int = 224


class Stalled(Exception):
    """The workers settle nothing."""


class MadeUpWorker(WorkerProcess):
    """A worker whose inferences are made up (benchmarks/without_inference.py)."""

    module = "benchmarks.without_inference"

    def __init__(self, settings: Mapping[str, Any], made_up: MadeUp) -> None:
        variables = {
            "BENCH_INFERENCE_MS": str(made_up.inference_ms),
            "BENCH_TEXT_BYTES": str(made_up.text_bytes),
            "PYTHONPATH": str(ROOT),
        }
        super().__init__(settings, environment=variables, start_timeout_seconds=60.0)


@dataclass(slots=True)
class Bed:
    """Workers that run, and what feeds them."""

    client: redis.Redis
    pids: Sequence[int]
    enqueue: Enqueue
    given: int = 0
    asked: int = 0
    """Replies that Redis gave to this program, and not to a worker."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def settled(self) -> int:
        """Return how many jobs were settled."""
        length: Any = self.client.xlen(KEYS.settlements)
        self.asked += 1
        return int(length)

    def push(self, jobs: int) -> None:
        """Enqueue so many jobs."""
        self.asked += self.enqueue(range(self.given + 1, self.given + jobs + 1))
        self.given += jobs

    @contextmanager
    def kept(self, unsettled: int) -> Iterator[None]:
        """Keep so many jobs in the queue and in flight."""
        self._stop.clear()
        feeder = threading.Thread(target=self._feed, args=(unsettled,))
        self.push(max(0, unsettled - (self.given - self.settled())))
        feeder.start()
        try:
            yield
        finally:
            self._stop.set()
            feeder.join()

    def _feed(self, unsettled: int) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if (lacking := unsettled - (self.given - self.settled())) > 0:
                self.push(lacking)

    def window(self, warm_seconds: float, seconds: float) -> Window:
        """Return what all workers do together in ``seconds``; memory is that of the largest.

        Raises:
            Stalled: that is nothing.
        """
        time.sleep(warm_seconds)
        before, asked = Sample.of(self.client, KEYS.settlements, self.pids), self.asked
        time.sleep(seconds)
        after = Sample.of(self.client, KEYS.settlements, self.pids)
        window = before.window_until(after, asked=self.asked - asked)
        if not window.jobs:
            raise Stalled("the workers settled nothing")
        return window


@contextmanager
def bed(
    redis_url: str,
    triton_url: str,
    workload: Workload,
    *,
    workers: int = 1,
    models: int = 1,
    made_up: MadeUp | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Iterator[Bed]:
    """Start workers in an empty database; with ``made_up`` inferences Triton does nothing."""
    client = redis_client(redis_url, socket_timeout=60.0)
    client.flushdb()
    settings = [
        {
            **configuration(redis_url, triton_url, workload, worker_id=f"bench-{number}", models=models),
            # Each has all of its slots: what a shared pool grants is not what is measured.
            "gpu_pool": {"name": f"bench-{number}", "max_concurrency": workload.in_flight},
            **(changes or {}),
        }
        for number in range(1, workers + 1)
    ]
    with ExitStack() as stack:
        stack.callback(client.close)
        processes = [
            WorkerProcess(one, start_timeout_seconds=60.0) if made_up is None else MadeUpWorker(one, made_up)
            for one in settings
        ]
        together = stack.enter_context(ThreadPoolExecutor(min(len(processes), len(os.sched_getaffinity(0)))))
        stack.callback(lambda: list(together.map(_end, processes)))
        list(together.map(lambda process: process.start(), processes))
        pids = [process.pid for process in processes if process.pid]
        names = [workload.model, *(f"{workload.model}-{n}" for n in range(2, models + 1))]
        yield Bed(client, pids, _spread(client, workload, names))


def _end(process: WorkerProcess) -> None:
    if process.is_running():
        process.kill()
    process.stop()


def _spread(client: redis.Redis, workload: Workload, names: Sequence[str]) -> Enqueue:
    """Return what enqueues jobs for all models in turns."""
    if len(names) == 1:
        return enqueuer(client, workload)
    each = [enqueuer(client, workload, public_name=name) for name in names]

    def enqueue(numbers: Sequence[int]) -> int:
        return sum(one(numbers[offset :: len(each)]) for offset, one in enumerate(each))

    return enqueue
