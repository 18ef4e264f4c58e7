"""What one would write instead of this project: stock Celery on Redis, tritonclient, and a script that settles.

Tuned as Celery's documentation advises: acks_late, no results, no events, no gossip, mingle or heartbeat between workers.
One client of Triton and one of Redis for all greenlets of a process. It reads no errors, retries nothing and validates nothing.
Run by ``python -m benchmarks`` as ``celery -A benchmarks.stock_celery worker``, on gevent and on prefork.
"""

import os
from functools import cache
from typing import Any, Final

import redis
from celery import Celery, signals
from tritonclient.http import InferenceServerClient

from benchmarks.inference import infer
from benchmarks.settling import SCRIPT, settle

QUEUE: Final = "stock"
TASK: Final = "generate"


def ready_key(pid: int) -> str:
    """Return the key that says that the worker of this process takes jobs."""
    return f"ready:{pid}"


_CONCURRENCY: Final = int(os.environ.get("STOCK_CONCURRENCY", "1"))
app = Celery("stock", broker=os.environ.get("STOCK_REDIS_URL"), set_as_current=False)
app.conf.update(
    task_default_queue=QUEUE,
    task_acks_late=True,
    task_ignore_result=True,
    result_backend=None,
    broker_connection_retry_on_startup=True,
    # kombu's default of 10 is too few for 64 greenlets that acknowledge at once: acknowledgements fail, and jobs run twice.
    broker_transport_options={"max_connections": 2 * _CONCURRENCY},
    worker_prefetch_multiplier=int(os.environ.get("STOCK_PREFETCH", "1")),
)


@cache
def _redis() -> redis.Redis:
    return redis.Redis.from_url(os.environ["STOCK_REDIS_URL"])


@cache
def _settle() -> Any:
    return _redis().register_script(SCRIPT)


@cache
def _triton() -> InferenceServerClient:
    return InferenceServerClient(os.environ["STOCK_TRITON"], concurrency=_CONCURRENCY)


@app.task(name=TASK)
def generate(job: dict[str, Any]) -> None:
    """Run one job and settle it."""
    job_id = job["job_id"]
    result = infer(_triton(), job["model"], job["prompt"], job["max_tokens"], job_id)
    settle(_settle(), job_id, job["model"], result)


@signals.worker_ready.connect
def tell(**_: Any) -> None:
    """Tell the benchmark that this worker takes jobs."""
    _redis().set(ready_key(os.getpid()), 1)
