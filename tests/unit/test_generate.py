"""The task as a plain function: what a success is settled with, its ledger and its times."""

import dataclasses

import pytest

from tasks.delivery import Settlement
from tasks.errors import ErrorCode
from tasks.generate import generate
from tasks.result import AttemptCode
from tests.fakes import GENERATION, FakeClock, FakeInference
from tests.generating import ports, ran, settled
from tests.jobs import MODEL, attempt, delivery, full_job_content, job, job_json


def test_a_generation_is_settled_with_text_and_usage() -> None:
    """The whole result, field by field."""
    raw = job_json(**full_job_content(parameters={}, enqueued_at="2026-11-30T09:59:59.988Z"))
    outcome = ran(dataclasses.replace(GENERATION, finish_reason="stop"), delivery(raw))
    spent = {"prompt_tokens": 5, "completion_tokens": 32, "total_tokens": 37}
    assert settled(outcome).model_dump(mode="json") == {
        "version": 1,
        "job_id": "j-1",
        "model": MODEL,
        "status": "succeeded",
        "text": "Hello to you too",
        "finish_reason": "stop",
        "usage": spent,
        "error": None,
        "worker_id": "triton-01",
        "model_version": "1",
        "attempts": [
            {
                "worker_id": "triton-01",
                "started_at": "2026-11-30T10:00:00.000Z",
                "code": None,
                "inference_ms": 840,
                "usage": spent,
            }
        ],
        "timings": {"queued_ms": 12, "pool_wait_ms": 0, "inference_ms": 840},
        "finished_at": "2026-11-30T10:00:00.840Z",
        "tenant": "tenant-1",
        "batch_id": "batch-1",
        "custom_id": "custom-1",
        "metadata": {"origin": "test"},
    }
    assert isinstance(outcome, Settlement)
    assert outcome.error is None


def test_the_inference_is_asked_once_for_the_job() -> None:
    """With a request id of this delivery alone."""
    inference = FakeInference()
    generate(delivery(), ports(inference))
    generate(delivery(tag="1.2"), ports(inference))
    assert inference.asked == [(job(), "j-1/1.1"), (job(), "j-1/1.2")]


def test_earlier_attempts_stay_in_the_ledger() -> None:
    """Oldest first, whoever made them."""
    earlier = (attempt(ErrorCode.RUNTIME_CONNECTION_LOST), attempt(AttemptCode.WORKER_LOST))
    ledger = settled(ran(of=delivery(attempts=earlier))).attempts
    assert tuple(ledger[:2]) == earlier
    assert [each.code for each in ledger] == [ErrorCode.RUNTIME_CONNECTION_LOST, AttemptCode.WORKER_LOST, None]


def test_a_text_of_any_kind_is_settled_as_it_is() -> None:
    """Nothing is trimmed."""
    for text in ("", " \n", "\0", "😀", "x" * 100_000):
        assert settled(ran(dataclasses.replace(GENERATION, text=text))).text == text


def test_times_are_redis_time_plus_what_passed_here() -> None:
    """The worker's own clock has another zero, and no host's clock is asked."""
    clock = FakeClock(now_ms=5_000_250.0)
    inference = FakeInference(clock=clock, takes_ms=1_000.4)
    raw = job_json(enqueued_at="2026-11-30T12:59:30+03:00")
    result = settled(generate(delivery(raw, received_ms=5_000_000.0), ports(inference)))
    assert result.timings.model_dump() == {"queued_ms": 30_000, "pool_wait_ms": 250, "inference_ms": 1000}
    assert result.attempts[0].started_at == "2026-11-30T10:00:00.250Z"
    assert result.finished_at == "2026-11-30T10:00:01.250Z"


@pytest.mark.parametrize(
    ("enqueued_at", "queued_ms"),
    [(None, None), ("2026-11-30T10:00:00Z", 0), ("2026-11-30T09:00:00Z", 3_600_000), ("2036-01-01T00:00:00Z", 0)],
)
def test_the_queue_time_is_known_where_the_gateway_says_since_when(
    enqueued_at: str | None, queued_ms: int | None
) -> None:
    """A gateway whose clock is ahead gives 0, never less."""
    assert settled(ran(of=delivery(job_json(enqueued_at=enqueued_at)))).timings.queued_ms == queued_ms


def test_what_never_started_has_no_times() -> None:
    """Null, and an end."""
    result = settled(ran(of=delivery(job_json(prompt=""))))
    assert set(result.timings.model_dump().values()) == {None}
    assert result.finished_at == "2026-11-30T10:00:00.000Z"
