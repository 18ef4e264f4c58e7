"""Settlements and dead letters as a worker writes them, for tests of those who read them."""

import json
from typing import Any

import redis

from tasks.fingerprint import fingerprint
from tasks.job import GenerateJob
from tasks.result import GenerateResult
from worker.keys import Keys
from worker.submit import encode

KEYS = Keys("speedinfer")


def result_of(job: GenerateJob, **fields: Any) -> GenerateResult:
    """A succeeded result of the job, but for the given fields."""
    content = {
        "version": 1,
        "job_id": job.job_id,
        "model": job.model,
        "status": "succeeded",
        "text": "Hello",
        "finish_reason": None,
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        "error": None,
        "worker_id": "triton-01",
        "model_version": "1",
        "attempts": [],
        "timings": {"queued_ms": 12, "pool_wait_ms": 0, "inference_ms": 840},
        "finished_at": "2026-11-30T10:00:00.000Z",
        "tenant": None,
        "batch_id": None,
        "custom_id": None,
        "metadata": {},
    }
    return GenerateResult.model_validate_json(json.dumps({**content, **fields}))


FAILED = {
    "status": "failed",
    "text": None,
    "usage": None,
    "error": {
        "code": "invalid_job",
        "message": "The job does not meet the contract.",
        "retryable": False,
        "upstream_status": None,
    },
}


def settle(client: redis.Redis, job: GenerateJob, **fields: Any) -> str:
    """Write what the settlement of a job writes; return the entry's id."""
    result = result_of(job, **fields)
    text = result.model_dump_json()
    stream_id = client.xadd(
        KEYS.settlements, {"job_id": job.job_id, "status": result.status, "model": job.model, "result": text}
    )
    client.set(KEYS.result(job.job_id), text, ex=60)
    assert isinstance(stream_id, bytes)
    marker: Any = {"fingerprint": settled_as(job), "status": result.status, "stream_id": stream_id}
    client.hset(KEYS.settled(job.job_id), mapping=marker)
    client.expire(KEYS.settled(job.job_id), 60)
    return stream_id.decode()


def settled_as(job: GenerateJob) -> str:
    """The fingerprint that stands in the job's marker."""
    return fingerprint(json.loads(encode(job)))


def bury(
    client: redis.Redis, raw: bytes, *, queue: str = "speedinfer:jobs:acme/model-1", reason: str = "not_json"
) -> str:
    """Write a dead letter; return its id."""
    stream_id = client.xadd(
        KEYS.dead_letters,
        {"queue": queue, "reason": reason, "raw": raw, "worker_id": "triton-01", "at": "2026-11-30T10:00:00.000Z"},
    )
    assert isinstance(stream_id, bytes)
    return stream_id.decode()
