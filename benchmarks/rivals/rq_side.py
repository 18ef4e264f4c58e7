"""RQ: a pool of workers that run their jobs themselves, since a fork for each job costs more than the job.

The pool is told that this module is its configuration, so that it is imported once, before its workers are forked.
"""

import json
import os
import sys
from functools import cache
from typing import Any, Final

import redis
from rq import Queue, get_current_job
from tritonclient.http import InferenceServerClient

from benchmarks.inference import infer
from benchmarks.settling import SCRIPT, settle

QUEUE: Final = "bench"


@cache
def _settle() -> Any:
    return redis.Redis.from_url(os.environ["RIVAL_REDIS_URL"]).register_script(SCRIPT)


@cache
def _triton() -> InferenceServerClient:
    return InferenceServerClient(os.environ["RIVAL_TRITON"])


def generate(job: dict[str, Any]) -> None:
    """Run one job and settle it. RQ compresses what it calls a function with: the job_id is RQ's own."""
    current = get_current_job()
    assert current is not None  # noqa: S101 - RQ runs this
    result = infer(_triton(), job["model"], job["prompt"], job["max_tokens"], current.id)
    settle(_settle(), current.id, job["model"], result)


def enqueue(job: dict[str, Any]) -> None:
    """Enqueue one job."""
    queue = Queue(QUEUE, connection=redis.Redis.from_url(os.environ["RIVAL_REDIS_URL"]))
    job_id = job.pop("job_id")
    queue.enqueue("benchmarks.rivals.rq_side.generate", job, job_id=job_id, result_ttl=0)


if __name__ == "__main__":
    enqueue(json.loads(sys.argv[1]))
