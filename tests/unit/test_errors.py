"""The error tree and what follows from each failure, held against the contract's table."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tasks import errors
from tasks.errors import RULES, Again, ErrorCode, JobError
from tests.jobs import usage

NEVER, ONCE, OFTEN, LATER = Again.NEVER, Again.ONCE, Again.UP_TO_MAX_ATTEMPTS, Again.WHEN_RECOVERED


class Row(NamedTuple):
    """A failure as the contract has it."""

    failure: type[JobError]
    code: str
    again: Again
    circuit: bool
    retryable: bool
    may_have_run: bool


CONTRACT = (
    Row(errors.InvalidJob, "invalid_job", NEVER, circuit=False, retryable=False, may_have_run=False),
    Row(errors.ModelNotSupported, "model_not_supported", NEVER, circuit=False, retryable=False, may_have_run=False),
    Row(
        errors.StreamingNotSupported,
        "streaming_not_supported",
        NEVER,
        circuit=False,
        retryable=False,
        may_have_run=False,
    ),
    Row(errors.JobExpired, "job_expired", NEVER, circuit=False, retryable=True, may_have_run=False),
    Row(errors.JobCancelled, "job_cancelled", NEVER, circuit=False, retryable=True, may_have_run=True),
    Row(errors.InferenceRejected, "triton_inference_failed", NEVER, circuit=False, retryable=False, may_have_run=True),
    Row(errors.ModelException, "triton_inference_failed", ONCE, circuit=True, retryable=False, may_have_run=True),
    Row(errors.UsageUnavailable, "runtime_usage_unavailable", NEVER, circuit=True, retryable=False, may_have_run=True),
    Row(errors.OutputInvalid, "runtime_output_invalid", NEVER, circuit=True, retryable=False, may_have_run=True),
    Row(errors.RuntimeTimeout, "runtime_timeout", NEVER, circuit=True, retryable=True, may_have_run=True),
    Row(errors.RuntimeUnavailable, "runtime_unavailable", LATER, circuit=True, retryable=True, may_have_run=False),
    Row(errors.QueueFull, "runtime_unavailable", LATER, circuit=False, retryable=True, may_have_run=False),
    Row(errors.ModelNotReady, "runtime_unavailable", LATER, circuit=False, retryable=True, may_have_run=False),
    Row(errors.ContractMismatch, "runtime_contract_mismatch", LATER, circuit=True, retryable=True, may_have_run=False),
    Row(errors.ConnectionLost, "runtime_connection_lost", OFTEN, circuit=True, retryable=True, may_have_run=True),
    Row(errors.ModelCrashed, "runtime_model_crashed", OFTEN, circuit=True, retryable=False, may_have_run=True),
    Row(errors.ExceedsPoolLimit, "exceeds_pool_limit", NEVER, circuit=False, retryable=False, may_have_run=False),
    Row(
        errors.DeliveryLimitExceeded,
        "delivery_limit_exceeded",
        NEVER,
        circuit=False,
        retryable=False,
        may_have_run=False,
    ),
    Row(errors.InternalError, "internal_error", OFTEN, circuit=False, retryable=True, may_have_run=True),
)


def public_failures(root: type[JobError] = JobError) -> Iterator[type[JobError]]:
    """Every failure that can be raised."""
    for failure in root.__subclasses__():
        if failure.__module__ == errors.__name__:
            if not failure.__name__.startswith("_"):
                yield failure
            yield from public_failures(failure)


@pytest.mark.parametrize("row", CONTRACT, ids=lambda row: row.failure.__name__)
def test_a_failure_means_what_the_contract_says(row: Row) -> None:
    """Its code, whether it is tried again, whether it counts, and whether a new job may help."""
    failure = row.failure()
    assert Row(
        row.failure, failure.code, failure.again, failure.counts_for_circuit, failure.retryable, failure.may_have_run
    ) == (row)


def test_the_table_is_complete() -> None:
    """Every failure there is stands in it, once, and every code has one."""
    assert sorted(row.failure.__name__ for row in CONTRACT) == sorted(each.__name__ for each in public_failures())
    assert {row.code for row in CONTRACT} == set(ErrorCode) == set(RULES)


def test_what_is_tried_again_has_run() -> None:
    """A retry uses up an attempt, so the attempt belongs in the ledger; what waits for recovery uses up none."""
    for failure in public_failures():
        if failure.again in (ONCE, OFTEN):
            assert failure.may_have_run
        if failure.again is LATER:
            assert not failure.may_have_run


def test_the_tree_of_the_docstring_is_the_tree() -> None:
    """Whoever reads the module's head sees every failure and nothing else."""
    drawn = re.findall(r"\b[A-Z][a-z]+[A-Z]\w+\b", str(errors.__doc__).partition("What follows")[0])
    assert sorted(drawn) == sorted(["JobError", *(failure.__name__ for failure in public_failures())])


@pytest.mark.parametrize("code", ErrorCode)
def test_a_message_is_one_sentence(code: ErrorCode) -> None:
    """For people, without a value in it."""
    assert re.fullmatch(r"[A-Z][a-z A-Z']+\.", RULES[code].message)
    assert len({rule.message for rule in RULES.values()}) == len(RULES)


def test_a_detail_ends_the_sentence() -> None:
    """The names of fields and limits follow a colon."""
    assert errors.InvalidJob().message == "The job does not meet the contract."
    assert errors.InvalidJob("prompt is missing").message == "The job does not meet the contract: prompt is missing."


def test_a_failure_keeps_what_is_known_of_it() -> None:
    """Triton's status, and what the attempt spent."""
    failure = errors.OutputInvalid(upstream_status=200, usage=usage())
    assert (failure.upstream_status, failure.usage, failure.detail) == (200, usage(), "")
    nothing = errors.OutputInvalid()
    assert (nothing.upstream_status, nothing.usage) == (None, None)
