"""dramatiq: on gevent, as its documentation advises for what waits for a network; one process, as many threads as greenlets."""

import json
import os
import sys
from functools import cache
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from tritonclient.http import InferenceServerClient

from benchmarks.inference import infer
from benchmarks.settling import SCRIPT, settle

_CONCURRENCY = int(os.environ.get("RIVAL_CONCURRENCY", "1"))
broker = RedisBroker(url=os.environ["RIVAL_REDIS_URL"])
dramatiq.set_broker(broker)


@cache
def _settle() -> Any:
    return redis.Redis.from_url(os.environ["RIVAL_REDIS_URL"]).register_script(SCRIPT)


@cache
def _triton() -> InferenceServerClient:
    return InferenceServerClient(os.environ["RIVAL_TRITON"], concurrency=_CONCURRENCY)


@dramatiq.actor(max_retries=0)
def generate(job: dict[str, Any]) -> None:
    """Run one job and settle it."""
    result = infer(_triton(), job["model"], job["prompt"], job["max_tokens"], job["job_id"])
    settle(_settle(), job["job_id"], job["model"], result)


if __name__ == "__main__":
    broker.enqueue(generate.message(json.loads(sys.argv[1])))
