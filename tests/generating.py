"""Runs of the task as a plain function, and what came of them."""

import dataclasses
from typing import Any

from tasks.delivery import Delivery, Outcome, Settlement
from tasks.errors import ErrorCode
from tasks.generate import Generation, Ports, generate
from tasks.result import GenerateResult
from tasks.retry import RetryPolicy
from tests.fakes import GENERATION, FakeInference
from tests.jobs import LIMITS, MAX_JOB_BYTES, MODEL, delivery


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
        max_deliveries=5,
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
