"""What is done about a failed attempt: every failure, every number of attempts."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import errors
from tasks.errors import ErrorCode, JobError
from tasks.result import Attempt, AttemptCode
from tasks.retry import GiveBack, RetryPolicy, Settle, TryAgain, decide
from tests.jobs import attempt

NEVER: list[type[JobError]] = [
    errors.InvalidJob,
    errors.ModelNotSupported,
    errors.StreamingNotSupported,
    errors.ExceedsPoolLimit,
]
NEVER += [errors.JobExpired, errors.JobCancelled, errors.DeliveryLimitExceeded, errors.InferenceRejected]
NEVER += [errors.UsageUnavailable, errors.OutputInvalid, errors.RuntimeTimeout]
OFTEN = [errors.ConnectionLost, errors.ModelCrashed, errors.InternalError]
LATER = [
    errors.RuntimeUnavailable,
    errors.QueueFull,
    errors.ModelNotReady,
    errors.ContractMismatch,
]
EVERY = [*NEVER, *OFTEN, *LATER, errors.ModelException]

CODES = st.sampled_from([*ErrorCode, *AttemptCode])
LEDGERS = st.lists(CODES, max_size=8)
FAILURES = st.sampled_from(EVERY)
DRAWS = st.floats(0, 1, exclude_max=True)

FAILED = ErrorCode.TRITON_INFERENCE_FAILED
LOST = ErrorCode.RUNTIME_CONNECTION_LOST
DRAINED = AttemptCode.DRAINED


def ledger(failure: type[JobError], earlier: list[ErrorCode | AttemptCode]) -> list[Attempt]:
    """The attempts so far, the failed one last where it is one."""
    own = [failure.code] if failure.may_have_run else []
    return [attempt(code) for code in (*earlier, *own)]


def decided(
    failure: type[JobError], earlier: list[ErrorCode | AttemptCode], max_attempts: int = 3, *, alone: bool = True
) -> Settle | TryAgain | GiveBack:
    """What is done, with the longest wait."""
    policy = RetryPolicy(max_attempts=max_attempts, base_seconds=1.0, max_seconds=5.0)
    return decide(failure(), ledger(failure, earlier), policy, lambda: 0.999, alone=alone)


@pytest.mark.parametrize("earlier", range(5))
@pytest.mark.parametrize("failure", NEVER)
def test_some_failures_are_the_end(failure: type[JobError], earlier: int) -> None:
    """However few attempts there were."""
    assert decided(failure, [LOST] * earlier) == Settle()


@pytest.mark.parametrize("earlier", range(5))
@pytest.mark.parametrize("failure", LATER)
def test_what_never_ran_waits_for_recovery(failure: type[JobError], earlier: int) -> None:
    """However many attempts there were: it uses up none."""
    assert decided(failure, [LOST] * earlier) == GiveBack()


@pytest.mark.parametrize(
    ("earlier", "max_attempts", "then"),
    [
        (0, 3, TryAgain(999)),
        (1, 3, TryAgain(1998)),
        (2, 3, Settle()),
        (3, 3, Settle()),
        (0, 1, Settle()),
        (3, 5, TryAgain(4995)),
    ],
)
@pytest.mark.parametrize("failure", OFTEN)
def test_what_may_pass_is_tried_up_to_max_attempts(
    failure: type[JobError], earlier: int, max_attempts: int, then: Settle | TryAgain
) -> None:
    """The waits double up to a bound."""
    assert decided(failure, [failure.code] * earlier, max_attempts) == then


@pytest.mark.parametrize(
    ("earlier", "max_attempts", "again"),
    [
        ([], 3, True),
        ([FAILED], 3, False),
        ([LOST], 3, True),
        ([DRAINED], 3, True),
        ([LOST, LOST], 3, False),
        ([FAILED, LOST], 3, False),
        ([LOST, FAILED], 5, False),
        ([FAILED, LOST], 5, False),
        ([LOST, LOST, LOST], 5, True),
        ([FAILED, FAILED], 9, False),
        ([], 1, False),
        ([], 2, True),
    ],
)
def test_a_model_exception_is_tried_once_more(
    earlier: list[ErrorCode | AttemptCode], max_attempts: int, again: bool
) -> None:
    """Once, whatever else went wrong before; and never beyond max_attempts."""
    assert isinstance(decided(errors.ModelException, earlier, max_attempts), TryAgain) is again


def test_every_failure_is_in_one_of_the_tables() -> None:
    """So that a new one has to be thought about."""
    defined = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, JobError)}
    assert {each for each in defined if not each.__name__.startswith("_")} - {JobError} == set(EVERY)


@given(FAILURES, LEDGERS, st.integers(1, 6))
def test_never_more_than_max_attempts(
    failure: type[JobError], earlier: list[ErrorCode | AttemptCode], max_attempts: int
) -> None:
    """A job that is tried again has an attempt left; what its workers' ends did to it are none of its own."""
    if isinstance(decided(failure, earlier, max_attempts), TryAgain):
        assert len([one for one in ledger(failure, earlier) if isinstance(one.code, ErrorCode)]) < max_attempts


@given(FAILURES, LEDGERS, st.lists(st.sampled_from(AttemptCode), max_size=8), st.booleans(), st.randoms())
def test_what_workers_did_to_a_job_changes_nothing(
    failure: type[JobError],
    own: list[ErrorCode | AttemptCode],
    workers: list[AttemptCode],
    alone: bool,
    random: random.Random,
) -> None:
    """However often one died with it, was drained or lost its lease: neither the decision nor the wait is another."""
    mixed = [*own, *workers]
    random.shuffle(mixed)
    codes: list[ErrorCode | AttemptCode] = [code for code in mixed if isinstance(code, ErrorCode)]
    assert decided(failure, mixed, 4, alone=alone) == decided(failure, codes, 4, alone=alone)


@given(LEDGERS, st.integers(1, 6))
def test_a_job_is_given_up_for_a_crash_of_its_model_only_when_it_ran_alone(
    earlier: list[ErrorCode | AttemptCode], max_attempts: int
) -> None:
    """The culprit may have been a neighbour."""
    assert isinstance(decided(errors.ModelCrashed, earlier, max_attempts, alone=False), TryAgain)


@given(st.sampled_from([each for each in EVERY if each is not errors.ModelCrashed]), LEDGERS, st.integers(1, 6))
def test_other_failures_are_the_jobs_own(
    failure: type[JobError], earlier: list[ErrorCode | AttemptCode], max_attempts: int
) -> None:
    """Whoever ran beside it."""
    beside = decided(failure, earlier, max_attempts, alone=False)
    assert beside == decided(failure, earlier, max_attempts, alone=True)


@given(FAILURES, LEDGERS)
def test_a_job_always_ends(failure: type[JobError], earlier: list[ErrorCode | AttemptCode]) -> None:
    """The same failure over and over settles, but for what waits for its model."""
    codes = list(earlier)
    while isinstance(then := decided(failure, codes), TryAgain):
        codes.append(failure.code)
        assert len(codes) < 20
    assert isinstance(then, GiveBack) == (failure in LATER)


@given(
    st.integers(1, 10**6),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    DRAWS,
)
def test_a_wait_lies_between_nothing_and_its_bound(attempts: int, base: float, most: float, draw: float) -> None:
    """Full jitter, in whole milliseconds, at any number of attempts."""
    waited = RetryPolicy(base_seconds=base, max_seconds=most).delay_ms(attempts, lambda: draw)
    assert isinstance(waited, int)
    assert 0 <= waited <= 1000 * most
    assert waited <= 1000 * base * 2.0 ** min(attempts - 1, 900)


@given(st.integers(1, 100))
def test_the_bound_doubles_until_the_most(attempts: int) -> None:
    """From the base on; never shorter after more attempts."""
    policy = RetryPolicy(base_seconds=0.5, max_seconds=30.0)
    half = [policy.delay_ms(number, lambda: 0.5) for number in range(1, attempts + 1)]
    assert half == [min(250 * 2**number, 15_000) for number in range(attempts)]


def test_the_jitter_is_full() -> None:
    """A wait may be nothing at all: jobs that failed together do not come back together."""
    policy = RetryPolicy()
    assert policy.delay_ms(3, lambda: 0.0) == 0
    assert math.isclose(policy.delay_ms(3, lambda: 0.5), 1000)
