"""The result: what the settlement queue holds for each job (docs/wire-contract.md, section 3)."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.errors import RULES, ErrorCode, JobError
from tasks.usage import Usage

Timestamp = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
Milliseconds = Annotated[int, Field(ge=0)]


class AttemptCode(StrEnum):
    """How an attempt ended where the error codes have no word for it."""

    WORKER_LOST = "worker_lost"
    DRAINED = "drained"
    LEASE_LOST = "lease_lost"


class _Wire(BaseModel):
    """Frozen and strict; readers of results ignore fields they do not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Attempt(_Wire):
    """One attempt that may have reached Triton."""

    worker_id: Annotated[str, Field(description="Who made it.")]
    started_at: Annotated[Timestamp, Field(description="By Redis' clock.")]
    code: Annotated[ErrorCode | AttemptCode | None, Field(description="How it failed, if it did.")]
    inference_ms: Annotated[Milliseconds | None, Field(description="How long the inference took.")]
    usage: Annotated[Usage | None, Field(description="What it spent, where Triton said so.")]


class ErrorBody(_Wire):
    """Why a job failed."""

    code: ErrorCode
    message: Annotated[str, Field(description="One sentence for people; never upstream text.")]
    retryable: Annotated[bool, Field(description="Whether sending it as a new job may help.")]
    upstream_status: Annotated[int | None, Field(description="The runtime's HTTP status.")]

    @classmethod
    def of(cls, error: JobError) -> Self:
        """Return the customer's view of an error."""
        return cls(
            code=error.code,
            message=error.message,
            retryable=RULES[error.code].retryable,
            upstream_status=error.upstream_status,
        )


class Timings(_Wire):
    """Where the time went, in milliseconds; null where unknown."""

    queued_ms: Annotated[Milliseconds | None, Field(description="From enqueued_at to the last claim.")]
    pool_wait_ms: Annotated[Milliseconds | None, Field(description="From the last claim to the start.")]
    inference_ms: Annotated[Milliseconds | None, Field(description="The last inference.")]


class GenerateResult(_Wire):
    """A job's end. All fields are always there."""

    version: Literal[1]
    job_id: str
    model: str
    status: Literal["succeeded", "failed"]
    text: Annotated[str | None, Field(description="Never null where status is succeeded, else null.")]
    finish_reason: str | None
    usage: Annotated[Usage | None, Field(description="Never null where status is succeeded.")]
    error: ErrorBody | None
    worker_id: str
    model_version: str | None
    attempts: list[Attempt]
    timings: Timings
    finished_at: Timestamp
    tenant: str | None
    batch_id: str | None
    custom_id: str | None
    metadata: dict[str, str]

    @model_validator(mode="after")
    def _succeeds_with_usage_or_fails_with_an_error(self) -> Self:
        succeeded = self.status == "succeeded"
        if succeeded and (self.text is None or self.usage is None or self.error is not None):
            msg = "a succeeded result has text and usage and no error"
            raise ValueError(msg)
        if not succeeded and (self.text is not None or self.error is None):
            msg = "a failed result has an error and no text"
            raise ValueError(msg)
        return self
