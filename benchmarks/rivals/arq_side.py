"""arq: as many jobs at once as greenlets elsewhere, no results kept, and polled for far oftener than its default of 0.5 s."""

import asyncio
import json
import os
import sys
from typing import Any, ClassVar

import tritonclient.http.aio
from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.inference import infer_soon
from benchmarks.settling import SCRIPT, settle

_CONCURRENCY = int(os.environ.get("RIVAL_CONCURRENCY", "1"))
_REDIS = RedisSettings.from_dsn(os.environ["RIVAL_REDIS_URL"])


async def generate(ctx: dict[str, Any], job: dict[str, Any]) -> None:
    """Run one job and settle it."""
    result = await infer_soon(ctx["triton"], job)
    await settle(ctx["settle"], job["job_id"], job["model"], result)


async def _connect(ctx: dict[str, Any]) -> None:
    ctx["triton"] = tritonclient.http.aio.InferenceServerClient(os.environ["RIVAL_TRITON"], conn_limit=_CONCURRENCY)
    ctx["settle"] = ctx["redis"].register_script(SCRIPT)


class WorkerSettings:
    """What arq's command reads."""

    functions: ClassVar[list[Any]] = [generate]
    on_startup = _connect
    redis_settings = _REDIS
    max_jobs = _CONCURRENCY
    keep_result = 0
    poll_delay = 0.01


async def enqueue(job: dict[str, Any]) -> None:
    """Enqueue one job."""
    pool = await create_pool(_REDIS)
    await pool.enqueue_job("generate", job, _job_id=job["job_id"])
    await pool.aclose()


if __name__ == "__main__":
    asyncio.run(enqueue(json.loads(sys.argv[1])))
