"""What a circuit is told of a delivery: what counts, whose content may be the cause, and no names."""

import pytest

from tasks import errors
from tasks.errors import ErrorCode, JobError
from worker.circuit import CircuitTerms
from worker.circuit_calls import Call
from worker.observation import Observation, as_call

TERMS = CircuitTerms(slow_call_ms=500.0)
CONTENT = [errors.ModelException, errors.UsageUnavailable, errors.OutputInvalid, errors.RuntimeTimeout]
COUNTS = [*CONTENT, errors.RuntimeUnavailable, errors.ContractMismatch, errors.ConnectionLost, errors.ModelCrashed]
NEUTRAL = [
    errors.InvalidJob,
    errors.InferenceRejected,
    errors.JobCancelled,
    errors.QueueFull,
    errors.ModelNotReady,
    errors.InternalError,
]


def seen(error: JobError | None = None, *, tenant: str | None = "Müller & Co", inference_ms: int | None = 10) -> Call:
    """What the circuit is told of such a delivery."""
    return as_call(Observation("acme/m", 1000, error, tenant, inference_ms), TERMS, 1010)


def test_a_success_is_a_call_of_nobody() -> None:
    """From its claim to now."""
    assert seen() == Call(1000, 1010)
    assert seen().is_plain_success


@pytest.mark.parametrize("error", COUNTS)
def test_what_counts_by_the_table_counts(error: type[JobError]) -> None:
    """With its code."""
    call = seen(error())
    assert (call.code, call.counts, call.is_neutral) == (error.code, True, False)


@pytest.mark.parametrize("error", NEUTRAL)
def test_what_does_not_count_is_neutral(error: type[JobError]) -> None:
    """It is neither for nor against the model, however long it took."""
    assert seen(error(), inference_ms=10_000).is_neutral


@pytest.mark.parametrize("error", COUNTS)
def test_a_tenant_is_named_where_content_may_be_the_cause(error: type[JobError]) -> None:
    """And nowhere else: a lost connection is nobody's fault."""
    assert (seen(error()).tenant is not None) == (error in CONTENT)


@pytest.mark.parametrize("error", COUNTS)
def test_a_dead_process_and_a_mismatch_open_at_once(error: type[JobError]) -> None:
    """Nothing else does."""
    assert seen(error()).opens_at_once == (error in {errors.ModelCrashed, errors.ContractMismatch})


def test_a_slow_call_is_longer_than_configured() -> None:
    """Of a tenant, if the job names one."""
    assert not seen(inference_ms=500).slow
    slow = seen(inference_ms=501)
    assert (slow.slow, slow.is_plain_success) == (True, False)
    assert slow.tenant == seen(errors.RuntimeTimeout()).tenant
    assert seen(tenant=None, inference_ms=501).tenant is None
    assert not as_call(Observation("acme/m", 0, None, None, 10**9), CircuitTerms(), 0).slow


def test_tenants_are_told_apart_and_not_named() -> None:
    """The circuit stands in Redis for longer than their jobs."""
    one, same, other = (seen(errors.RuntimeTimeout(), tenant=name).tenant for name in ("a", "a", "b"))
    assert one == same != other
    assert one is not None
    assert one.isalnum()
    assert len(one) == 16


def test_an_exception_brings_its_digest() -> None:
    """Where there is one."""
    raised = errors.ModelException()
    assert seen(raised).text_digest is None
    raised.text_digest = "0011"
    assert seen(raised).text_digest == "0011"
    assert seen(errors.RuntimeTimeout()).code is ErrorCode.RUNTIME_TIMEOUT
