"""SAQ: as many jobs at once as greenlets elsewhere, nothing kept of a job that has ended."""

import asyncio
import json
import os
import sys
from typing import Any

import tritonclient.http.aio
from saq import Queue
from saq.queue.redis import RedisQueue

from benchmarks.inference import infer_soon
from benchmarks.settling import SCRIPT, settle

_CONCURRENCY = int(os.environ.get("RIVAL_CONCURRENCY", "1"))
queue: Any = Queue.from_url(os.environ["RIVAL_REDIS_URL"])


async def generate(ctx: dict[str, Any], *, job: dict[str, Any]) -> None:
    """Run one job and settle it."""
    result = await infer_soon(ctx["triton"], job)
    await settle(ctx["settle"], job["job_id"], job["model"], result)


async def _connect(ctx: dict[str, Any]) -> None:
    assert isinstance(queue, RedisQueue)  # noqa: S101 - by its URL
    ctx["triton"] = tritonclient.http.aio.InferenceServerClient(os.environ["RIVAL_TRITON"], conn_limit=_CONCURRENCY)
    ctx["settle"] = queue.redis.register_script(SCRIPT)


settings = {"queue": queue, "functions": [generate], "concurrency": _CONCURRENCY, "startup": _connect}
"""What SAQ's command reads."""


async def enqueue(job: dict[str, Any]) -> None:
    """Enqueue one job."""
    await queue.enqueue("generate", job=job, key=job["job_id"], ttl=-1, timeout=0)
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(enqueue(json.loads(sys.argv[1])))
