"""The task as a plain function: what every failed inference leads to."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import errors
from tasks.delivery import DeadLetter, Duplicate, Retry, Return, Settlement, Standing
from tasks.errors import ErrorCode, JobError
from tasks.fingerprint import fingerprint_of
from tasks.generate import Generation, generate
from tasks.result import Attempt, AttemptCode, GenerateResult
from tasks.retry import RetryPolicy
from tests.fakes import FakeInference
from tests.generating import failed, ports, ran, settled
from tests.jobs import attempt, delivery, job_json, usage

NEVER_RUN = [errors.RuntimeUnavailable, errors.QueueFull, errors.ModelNotReady, errors.ContractMismatch]
THE_END = [errors.InferenceRejected, errors.UsageUnavailable, errors.OutputInvalid, errors.RuntimeTimeout]
THE_END += [errors.JobCancelled]
TRIED_AGAIN = [errors.ConnectionLost, errors.ModelCrashed, errors.InternalError, errors.ModelException]


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


@pytest.mark.parametrize("failure", [errors.JobExpired, errors.ExceedsPoolLimit])
def test_what_is_turned_away_on_its_way_to_triton_is_no_attempt(failure: type[JobError]) -> None:
    """The ledger holds what may have cost something."""
    earlier = (attempt(ErrorCode.RUNTIME_CONNECTION_LOST, usage(5, 3)),)
    result = settled(ran(failure(), delivery(attempts=earlier)))
    assert (tuple(result.attempts), result.usage) == (earlier, usage(5, 3))


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
    """Deliver a job again and again as it asks for, alone; return how often it was tried, and its result."""
    tried = 0
    attempts: tuple[Attempt, ...] = ()
    while True:
        tried += 1
        assert tried < 50, "it never ends"
        outcome = ran(ends_with(), delivery(attempts=attempts, alone=True), **changes)
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


def test_beside_others_a_crash_of_the_model_is_never_the_end() -> None:
    """However often it happened: the culprit is told by a run alone."""
    crashes = (attempt(ErrorCode.RUNTIME_MODEL_CRASHED),) * 20
    assert isinstance(ran(errors.ModelCrashed(), delivery(attempts=crashes)), Retry)
    assert failed(ran(errors.ModelCrashed(), delivery(attempts=crashes, alone=True))) is errors.ModelCrashed.code


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
        of = delivery(raw, attempts=spent, alone=True)
        assert SECRET not in settled(ran(failure(), of)).model_dump_json()


SECOND = {Standing.SETTLED, Standing.HELD, Standing.PRECEDED}
ENDINGS: st.SearchStrategy[Generation | BaseException] = st.one_of(
    st.builds(
        Generation, st.text(), st.builds(usage, st.integers(1), st.integers(0)), st.none() | st.text(), st.none()
    ),
    st.sampled_from([*THE_END, *TRIED_AGAIN, *NEVER_RUN]).map(lambda failure: failure()),
    st.just(ValueError("no error of ours")),
)


@settings(max_examples=60)
@given(
    ENDINGS,
    st.sampled_from([job_json(), job_json(prompt=""), b"garbage"]),
    st.sampled_from(Standing),
    st.booleans(),
    st.lists(st.sampled_from([*ErrorCode, *AttemptCode, AttemptCode.WORKER_LOST]), max_size=8),
    st.floats(0, 1e9),
)
def test_every_delivery_ends_in_one_outcome(
    ending: Generation | BaseException,
    raw: bytes,
    standing: Standing,
    alone: bool,
    codes: list[ErrorCode | AttemptCode],
    passed_ms: float,
) -> None:
    """A settlement that reads back, a retry, a return, a duplicate or a dead letter; no attempt is lost, none is made up."""
    earlier = tuple(attempt(code) for code in codes)
    inference = FakeInference(ending, takes_ms=passed_ms)
    rival = fingerprint_of(job_json()) if standing in SECOND else None
    of = delivery(raw, standing=standing, rival=rival, alone=alone, attempts=earlier)
    outcome = generate(of, ports(inference))
    assert standing is Standing.TO_RUN or not inference.asked
    if isinstance(outcome, Settlement):
        result = settled(outcome)
        assert tuple(result.attempts[: len(earlier)]) == earlier
        assert len(result.attempts) == len(earlier) + len(inference.asked)
        assert (result.status == "succeeded") == isinstance(ending, Generation) or not inference.asked
        assert json.loads(result.model_dump_json())["finished_at"] >= "2026-11-30T10:00:00.000Z"
    else:
        unread = raw == b"garbage"
        assert isinstance(
            outcome, DeadLetter if unread else Duplicate | DeadLetter if standing in SECOND else Retry | Return
        )
        assert len(inference.asked) == (0 if unread or standing in SECOND else 1)
