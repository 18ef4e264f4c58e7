"""What every side of the comparison has: a name, a process, and a way to enqueue jobs for it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis

from benchmarks.plan import Workload
from worker.sandbox.embedded_server import EmbeddedServer

OURS: Final = "speedinfer"
DIRECT: Final = "direct"
STOCK: Final = {1: "celery x1", 4: "celery x4"}
"""Stock Celery on gevent, by its prefetch multiplier."""
PREFORK: Final = "celery prefork"
RIVALS: Final = ("rq", "arq", "saq", "dramatiq", "taskiq")

Enqueue = Callable[[Sequence[int]], int]
"""Enqueues the jobs of some numbers; returns how many replies it got."""


@dataclass(frozen=True, slots=True)
class QueueSide:
    """A worker that takes jobs from a queue in Redis; ``enqueue`` puts the jobs of these numbers there.

    One that ``may_leave_jobs`` does not end the run by jobs it took and does not settle: they are counted. ``queue`` is the list that
    holds what waits; without one nobody can tell what was taken, and nothing is counted.
    """

    name: str
    process: EmbeddedServer
    client: redis.Redis
    queue: str | None
    settlements: str
    enqueue: Enqueue
    may_leave_jobs: bool
    most_per_second: int
    """More jobs than it does in a second of any workload."""


Make = Callable[[str, str, str, Workload], QueueSide]
"""What makes a side, not started: of Redis' address as its worker is to use it, that of Redis itself, and Triton's."""


def job(job_id: str, workload: Workload) -> dict[str, Any]:
    """Return a job of the workload."""
    return {
        "job_id": job_id,
        "model": workload.model,
        "prompt": ("x" * 7 + " ") * (workload.prompt_bytes // 8),
        "max_tokens": 32,
    }


def job_json(job_id: str, workload: Workload) -> str:
    """Return the same as JSON."""
    return json.dumps(job(job_id, workload))


def pusher(client: redis.Redis, queue: str, encode: Callable[[int], bytes]) -> Enqueue:
    """Return what puts each job's one element in a list, as ``encode`` makes it of the job's number."""
    at_once = 1_000

    def push(numbers: Sequence[int]) -> int:
        starts = range(0, len(numbers), at_once)
        for start in starts:
            client.lpush(queue, *map(encode, numbers[start : start + at_once]))
        return len(starts)

    return push
