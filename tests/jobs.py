"""Jobs, deliveries and results with boring defaults: a test names only what it is about."""

import json
from typing import Any, Final

from tasks.delivery import Delivery
from tasks.errors import ErrorCode
from tasks.job import GenerateJob
from tasks.reading import ModelLimits
from tasks.result import Attempt, AttemptCode
from tasks.usage import Usage

MODEL: Final = "acme/model-1"
"""The public name that jobs are for; the one of the contract's example configuration."""

MAX_PROMPT_BYTES: Final = 1024 * 1024
MAX_JOB_BYTES: Final = 4 * 1024 * 1024
LIMITS: Final = ModelLimits(max_prompt_bytes=MAX_PROMPT_BYTES)
"""The limits of a configuration that sets none: no parameter is mapped."""

TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CLAIMED_AT_MS: Final = 1_796_032_800_000
"""2026-11-30T10:00:00.000Z, when deliveries are claimed."""


class _Left:
    """The type of ``LEFT_OUT``."""


LEFT_OUT: Final = _Left()
"""As a change: the field is not there."""


def changed(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return ``content`` with the changes, and without what is LEFT_OUT."""
    return {name: value for name, value in {**content, **changes}.items() if value is not LEFT_OUT}


def job_content(**changes: Any) -> dict[str, Any]:
    """Return a valid job as a gateway thinks of it, with these fields changed or LEFT_OUT."""
    return changed({"job_id": "j-1", "model": MODEL, "prompt": "Hello", "max_tokens": 32}, changes)


def full_job_content(**changes: Any) -> dict[str, Any]:
    """Return a valid job that sets every field."""
    return job_content(
        **{
            "parameters": {"temperature": 0.7, "stop": ["\n"], "seed": 7},
            "stream": False,
            "expires_at": "2026-11-30T11:00:00Z",
            "tenant": "tenant-1",
            "batch_id": "batch-1",
            "custom_id": "custom-1",
            "metadata": {"origin": "test"},
            "enqueued_at": "2026-11-30T09:59:59.988Z",
            "traceparent": TRACEPARENT,
            "version": 1,
            **changes,
        }
    )


def job_json(**changes: Any) -> bytes:
    """Return a valid job as the bytes in a queue, with these fields changed or LEFT_OUT."""
    return json.dumps(job_content(**changes)).encode()


def job_with(members: bytes, **changes: Any) -> bytes:
    """Return a job whose JSON ends in these raw members, for what json.dumps cannot write."""
    return job_json(**changes)[:-1] + b"," + members + b"}"


def job(**changes: Any) -> GenerateJob:
    """Return a valid job as the task has it."""
    return GenerateJob.model_validate(job_content(**changes))


def delivery(raw: bytes | None = None, **changes: Any) -> Delivery:
    """Return the delivery of a valid job, claimed at CLAIMED_AT_MS, when the worker's clock stood at 0."""
    fields: dict[str, Any] = {
        "tag": "1.1",
        "queue_model": MODEL,
        "raw": job_json() if raw is None else raw,
        "claimed_at_ms": CLAIMED_AT_MS,
        "received_ms": 0.0,
        "job_id": "j-1",
    }
    return Delivery(**fields | changes)


def usage(prompt_tokens: int = 5, completion_tokens: int = 32) -> Usage:
    """Return the counts of an inference."""
    return Usage.of(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def attempt(code: ErrorCode | AttemptCode | None = None, spent: Usage | None = None) -> Attempt:
    """Return an earlier attempt."""
    return Attempt(
        worker_id="worker-0", started_at="2026-11-30T09:59:00.000Z", code=code, inference_ms=840, usage=spent
    )


def result_content(**changes: Any) -> dict[str, Any]:
    """Return a succeeded result as its JSON says it, with these fields changed or LEFT_OUT."""
    spent = {"prompt_tokens": 5, "completion_tokens": 32, "total_tokens": 37}
    return changed(
        {
            "version": 1,
            "job_id": "j-1",
            "model": MODEL,
            "status": "succeeded",
            "text": "Hello to you too",
            "finish_reason": None,
            "usage": spent,
            "error": None,
            "worker_id": "triton-01",
            "model_version": "1",
            "attempts": [
                {
                    "worker_id": "triton-01",
                    "started_at": "2026-11-30T09:59:59.150Z",
                    "code": None,
                    "inference_ms": 840,
                    "usage": spent,
                }
            ],
            "timings": {"queued_ms": 12, "pool_wait_ms": 0, "inference_ms": 840},
            "finished_at": "2026-11-30T10:00:00.000Z",
            "tenant": None,
            "batch_id": None,
            "custom_id": None,
            "metadata": {},
        },
        changes,
    )


def failed_result_content(**changes: Any) -> dict[str, Any]:
    """Return a failed result as its JSON says it, with these fields changed or LEFT_OUT."""
    error = {"code": "internal_error", "message": "It failed.", "retryable": True, "upstream_status": None}
    return result_content(**{"status": "failed", "text": None, "usage": None, "error": error, **changes})
