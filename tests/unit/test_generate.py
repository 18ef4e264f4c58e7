"""The task as a plain function: every way a delivery can end, with its ledger, its times and its result."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import errors
from tasks.errors import ErrorCode, JobError
from tasks.generate import DeadLetter, Delivery, Generation, Outcome, Ports, Retry, Return, Settlement, generate
from tasks.reading import DeadLetterReason, ModelLimits
from tasks.result import Attempt, AttemptCode, GenerateResult
from tasks.retry import RetryPolicy
from tests.fakes import GENERATION, FakeClock, FakeInference
from tests.garbage import GARBAGE, WRONG_JOBS
from tests.jobs import (
    LIMITS,
    MAX_JOB_BYTES,
    MODEL,
    attempt,
    delivery,
    full_job_content,
    job,
    job_json,
    usage,
)

NEVER_RUN = [errors.RuntimeUnavailable, errors.QueueFull, errors.ModelNotReady, errors.ContractMismatch]
THE_END = [errors.InferenceRejected, errors.UsageUnavailable, errors.OutputInvalid, errors.RuntimeTimeout]
THE_END += [errors.JobCancelled]
TRIED_AGAIN = [errors.ConnectionLost, errors.ModelCrashed, errors.InternalError, errors.ModelException]


def ports(inference: FakeInference, **changes: Any) -> Ports:
    """What the task needs, with a draw of one half and the default retries."""
    standard = Ports(
        worker_id="triton-01",
        inference=inference,
        clock=inference.clock,
        draw=lambda: 0.5,
        limits={MODEL: LIMITS},
        retry=RetryPolicy(),
        max_job_bytes=MAX_JOB_BYTES,
    )
    return dataclasses.replace(standard, **changes)


def ran(ends_with: Generation | BaseException = GENERATION, of: Delivery | None = None, **changes: Any) -> Outcome:
    """Run a delivery whose inference ends so, after 840 ms."""
    return generate(of or delivery(), ports(FakeInference(ends_with, takes_ms=840), **changes))


def settled(outcome: Outcome) -> GenerateResult:
    """The result, as whoever reads the settlement queue has it."""
    assert isinstance(outcome, Settlement)
    read = GenerateResult.model_validate_json(outcome.result.model_dump_json())
    assert read == outcome.result
    return read


def failed(outcome: Outcome) -> ErrorCode:
    """The code of a failed settlement, which is also the code of its error."""
    result = settled(outcome)
    assert isinstance(outcome, Settlement)
    assert result.status == "failed"
    assert result.text is None
    assert result.error is not None
    assert outcome.error is not None
    assert outcome.error.code is result.error.code
    return result.error.code


# Success


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


# Times


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


# Before the start


def test_garbage_is_a_dead_letter() -> None:
    """Each kind, and nothing is asked of Triton for it."""
    inference = FakeInference()
    for garbage in GARBAGE:
        assert generate(delivery(garbage.raw), ports(inference)) == DeadLetter(garbage.reason), garbage.name
    assert inference.asked == []


def test_a_wrong_job_is_settled_with_its_code() -> None:
    """Each kind, without an attempt, and nothing is asked of Triton for it."""
    inference = FakeInference()
    for wrong in WRONG_JOBS:
        outcome = generate(delivery(wrong.raw), ports(inference))
        assert failed(outcome) is wrong.code, wrong.name
        result = settled(outcome)
        assert (result.job_id, result.attempts, result.usage) == (wrong.job_id, [], None), wrong.name
    assert inference.asked == []


def test_a_wrong_job_is_echoed_to_whom_it_belongs() -> None:
    """The gateway finds the customer and the batch."""
    raw = job_json(prompt="", tenant="t", batch_id="b", custom_id="c", metadata={"a": "b"})
    result = settled(ran(of=delivery(raw)))
    assert (result.tenant, result.batch_id, result.custom_id, result.metadata) == ("t", "b", "c", {"a": "b"})


def test_an_expired_job_is_not_run() -> None:
    """The claim says so, by Redis' clock."""
    inference = FakeInference()
    assert failed(generate(delivery(expired=True), ports(inference))) is ErrorCode.JOB_EXPIRED
    assert inference.asked == []


def test_what_is_wrong_with_a_job_comes_before_its_expiry() -> None:
    """A wrong job that expired must be told what is wrong: sending it again would not help."""
    assert failed(ran(of=delivery(job_json(prompt=""), expired=True))) is ErrorCode.INVALID_JOB


def test_expiry_between_two_attempts_keeps_what_was_spent() -> None:
    """The ledger, and the usage of the last attempt."""
    earlier = (attempt(ErrorCode.RUNTIME_CONNECTION_LOST, usage(5, 1)), attempt(ErrorCode.INTERNAL_ERROR, usage(5, 7)))
    result = settled(ran(of=delivery(expired=True, attempts=earlier)))
    assert (tuple(result.attempts), result.usage) == (earlier, usage(5, 7))


def test_an_undeclared_model_is_not_run() -> None:
    """Whatever Triton has loaded."""
    inference = FakeInference()
    assert failed(generate(delivery(), ports(inference, limits={}))) is ErrorCode.MODEL_NOT_SUPPORTED
    assert inference.asked == []


def test_each_queue_has_its_models_limits() -> None:
    """Those of the queue's model, not of another."""
    limits = {MODEL: ModelLimits(max_prompt_bytes=1024), "acme/model-2": ModelLimits(max_prompt_bytes=4)}
    assert settled(ran(limits=limits)).status == "succeeded"
    other = delivery(job_json(model="acme/model-2"), queue_model="acme/model-2")
    assert failed(ran(of=other, limits=limits)) is ErrorCode.INVALID_JOB


def test_the_size_limit_is_the_workers() -> None:
    """What is over it is a dead letter."""
    assert ran(max_job_bytes=10) == DeadLetter(DeadLetterReason.TOO_LARGE)


# Failures


@pytest.mark.parametrize("failure", THE_END)
def test_some_failures_settle_at_once(failure: type[JobError]) -> None:
    """With the attempt that failed, what Triton said, and what it spent."""
    outcome = ran(failure(upstream_status=418, usage=usage(5, 3)))
    assert failed(outcome) is failure.code
    result = settled(outcome)
    assert result.error is not None
    assert result.error.upstream_status == 418
    assert result.usage == usage(5, 3)
    assert result.attempts == [
        Attempt(
            worker_id="triton-01",
            started_at="2026-11-30T10:00:00.000Z",
            code=failure.code,
            inference_ms=840,
            usage=usage(5, 3),
        )
    ]
    assert result.timings.inference_ms == 840


@pytest.mark.parametrize("failure", THE_END)
def test_usage_that_is_not_known_is_null(failure: type[JobError]) -> None:
    """Not even that of an earlier attempt is put in its place."""
    earlier = (attempt(ErrorCode.RUNTIME_CONNECTION_LOST, usage(5, 3)),)
    assert settled(ran(failure(), delivery(attempts=earlier))).usage is None


@pytest.mark.parametrize("failure", NEVER_RUN)
@pytest.mark.parametrize("earlier", [0, 1, 2, 3, 9])
def test_what_never_ran_goes_back_uncharged(failure: type[JobError], earlier: int) -> None:
    """However often the job was tried before."""
    error = failure()
    outcome = ran(error, delivery(attempts=(attempt(ErrorCode.RUNTIME_CONNECTION_LOST),) * earlier))
    assert isinstance(outcome, Return)
    assert (outcome.identity.job_id, outcome.error) == ("j-1", error)


@pytest.mark.parametrize("failure", TRIED_AGAIN)
def test_what_may_pass_is_tried_again_after_a_wait(failure: type[JobError]) -> None:
    """The attempt is charged; the wait is drawn."""
    error = failure(usage=usage(5, 3))
    outcome = ran(error)
    assert isinstance(outcome, Retry)
    assert (outcome.identity.job_id, outcome.delay_ms, outcome.error) == ("j-1", 250, error)
    assert (outcome.attempt.code, outcome.attempt.inference_ms, outcome.attempt.usage) == (
        failure.code,
        840,
        usage(5, 3),
    )


def to_the_end(ends_with: Callable[[], BaseException], **changes: Any) -> tuple[int, GenerateResult]:
    """Deliver a job again and again as it asks for; return how often it was tried, and its result."""
    tried = 0
    attempts: tuple[Attempt, ...] = ()
    while True:
        tried += 1
        outcome = ran(ends_with(), delivery(attempts=attempts), **changes)
        if not isinstance(outcome, Retry):
            return tried, settled(outcome)
        attempts = (*attempts, outcome.attempt)


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (errors.ConnectionLost, 3),
        (errors.ModelCrashed, 3),
        (errors.InternalError, 3),
        (errors.ModelException, 2),
        (errors.RuntimeTimeout, 1),
    ],
)
def test_the_last_attempt_settles(failure: type[JobError], tries: int) -> None:
    """With every attempt in the ledger."""
    tried, result = to_the_end(failure)
    assert tried == tries == len(result.attempts)
    assert {each.code for each in result.attempts} == {failure.code}
    assert result.error is not None
    assert result.error.code is failure.code


def test_the_policy_is_the_workers() -> None:
    """As often as it is configured."""
    assert to_the_end(errors.ConnectionLost, retry=RetryPolicy(max_attempts=5))[0] == 5
    assert to_the_end(errors.ConnectionLost, retry=RetryPolicy(max_attempts=1))[0] == 1


SECRET = "what the customer asked"


class _FaultError(Exception):
    """No error of ours."""


@pytest.mark.parametrize("fault", [_FaultError(SECRET), KeyError(SECRET), RecursionError(SECRET), MemoryError(SECRET)])
def test_a_fault_of_ours_is_tried_again_and_then_settled(fault: Exception) -> None:
    """As internal_error, without a word of the fault, which stays at hand for a debugger."""
    first = ran(fault)
    assert isinstance(first, Retry)
    assert first.error.code is ErrorCode.INTERNAL_ERROR
    assert first.error.__cause__ is fault
    tried, result = to_the_end(lambda: fault)
    assert tried == 3
    assert result.error is not None
    assert result.error.code is ErrorCode.INTERNAL_ERROR
    assert SECRET not in result.model_dump_json()


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_process_passes_through(end: type[BaseException]) -> None:
    """The claim stays, and recovery finds it."""
    with pytest.raises(end):
        ran(end())


def test_nothing_of_a_prompt_is_in_a_failed_result() -> None:
    """Whatever the failure."""
    for failure in (*THE_END, *TRIED_AGAIN):
        raw = job_json(prompt=SECRET)
        spent = (attempt(ErrorCode.INTERNAL_ERROR),) * 2
        assert SECRET not in settled(ran(failure(), delivery(raw, attempts=spent))).model_dump_json()


ENDINGS: st.SearchStrategy[Generation | BaseException] = st.one_of(
    st.builds(
        Generation, st.text(), st.builds(usage, st.integers(1), st.integers(0)), st.none() | st.text(), st.none()
    ),
    st.sampled_from([*THE_END, *TRIED_AGAIN, *NEVER_RUN]).map(lambda failure: failure()),
    st.just(ValueError("no error of ours")),
)


@settings(max_examples=100)
@given(
    ENDINGS,
    st.sampled_from([job_json(), job_json(prompt=""), b"garbage"]),
    st.booleans(),
    st.lists(st.sampled_from([*ErrorCode, *AttemptCode]), max_size=4),
    st.floats(0, 1e9),
)
def test_every_delivery_ends_in_one_outcome(
    ending: Generation | BaseException,
    raw: bytes,
    expired: bool,
    codes: list[ErrorCode | AttemptCode],
    passed_ms: float,
) -> None:
    """A settlement that reads back, a retry, a return or a dead letter; no attempt is lost, none is made up."""
    earlier = tuple(attempt(code) for code in codes)
    inference = FakeInference(ending, takes_ms=passed_ms)
    outcome = generate(delivery(raw, expired=expired, attempts=earlier), ports(inference))
    if isinstance(outcome, Settlement):
        result = settled(outcome)
        assert tuple(result.attempts[: len(earlier)]) == earlier
        assert len(result.attempts) == len(earlier) + len(inference.asked)
        assert (result.status == "succeeded") == isinstance(ending, Generation) or not inference.asked
        assert json.loads(result.model_dump_json())["finished_at"] >= "2026-11-30T10:00:00.000Z"
    else:
        assert isinstance(outcome, DeadLetter if raw == b"garbage" else Retry | Return)
        assert len(inference.asked) == (0 if raw == b"garbage" else 1)
