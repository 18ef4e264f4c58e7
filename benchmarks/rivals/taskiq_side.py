"""taskiq: on a Redis stream, the broker that acknowledges; one process, as many jobs at once as greenlets elsewhere."""

import asyncio
import json
import os
import sys
from typing import Any

import redis.asyncio
import tritonclient.http.aio
from taskiq import TaskiqEvents, TaskiqState
from taskiq_redis import RedisStreamBroker

from benchmarks.inference import infer_soon
from benchmarks.settling import SCRIPT, settle

_CONCURRENCY = int(os.environ.get("RIVAL_CONCURRENCY", "1"))
# From the first entry on: its default takes what comes after the worker.
broker = RedisStreamBroker(os.environ["RIVAL_REDIS_URL"], queue_name="bench", consumer_id="0")


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def _connect(state: TaskiqState) -> None:
    state.triton = tritonclient.http.aio.InferenceServerClient(os.environ["RIVAL_TRITON"], conn_limit=_CONCURRENCY)
    state.settle = redis.asyncio.Redis.from_url(os.environ["RIVAL_REDIS_URL"]).register_script(SCRIPT)


@broker.task(task_name="generate")
async def generate(job: dict[str, Any]) -> None:
    """Run one job and settle it."""
    result = await infer_soon(broker.state.triton, job)
    await settle(broker.state.settle, job["job_id"], job["model"], result)


async def enqueue(job: dict[str, Any]) -> None:
    """Enqueue one job."""
    await broker.startup()
    await generate.kiq(job)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(enqueue(json.loads(sys.argv[1])))
