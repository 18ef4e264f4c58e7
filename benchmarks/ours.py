"""Our worker, as a side: ``speedinfer worker`` with its defaults."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import redis

from benchmarks.copying import MARKER, job_id
from benchmarks.plan import Workload
from benchmarks.sides import OURS, Enqueue, QueueSide, job_json, pusher
from worker.connections import redis_client
from worker.keys import Keys
from worker.sandbox.worker_process import WorkerProcess

WORKER_ID: Final = "bench"
KEYS: Final = Keys("speedinfer")


def ours(worker_redis_url: str, redis_url: str, triton_url: str, workload: Workload, *, models: int = 1) -> QueueSide:
    """Return our worker, not started; with more than one model, the others have the same Triton model behind them."""
    client = redis_client(redis_url)
    return QueueSide(
        OURS,
        WorkerProcess(configuration(worker_redis_url, triton_url, workload, models=models)),
        client,
        KEYS.jobs(workload.model),
        KEYS.settlements,
        enqueuer(client, workload),
        may_leave_jobs=False,
        most_per_second=9_000,
    )


def configuration(
    redis_url: str, triton_url: str, workload: Workload, *, worker_id: str = WORKER_ID, models: int = 1
) -> Mapping[str, Any]:
    """Return what its configuration file holds: what has no default."""
    return {
        "worker_id": worker_id,
        "runtime_endpoint": triton_url,
        "redis_url": redis_url,
        "supported_models": [workload.model, *(f"{workload.model}-{n}" for n in range(2, models + 1))],
        "gpu_pool": {"max_concurrency": workload.in_flight},
        "runtime_config": {
            "model_name": workload.model,
            "input_name": "text_input",
            "max_tokens_input_name": "max_tokens",
            "output_name": "text_output",
            "prompt_tokens_output_name": "prompt_tokens",
            "completion_tokens_output_name": "completion_tokens",
        },
    }


def enqueuer(client: redis.Redis, workload: Workload, *, public_name: str | None = None) -> Enqueue:
    """Return what enqueues the workload's jobs by their numbers, as a gateway does; for its model, or another public name."""
    named = workload if public_name is None else replace(workload, model=public_name)
    template = job_json(MARKER, named)
    return pusher(client, KEYS.jobs(named.model), lambda number: template.replace(MARKER, job_id(number), 1).encode())
