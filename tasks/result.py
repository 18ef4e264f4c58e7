"""The result: what the settlement queue holds for each job (docs/wire-contract.md, section 3)."""

from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from tasks.errors import RULES, ErrorCode, JobError
from tasks.job import ContractVersion
from tasks.usage import Spent, Usage

Timestamp = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$")]
Milliseconds = Annotated[int, Field(ge=0)]

_STATUS_DECIDES: Final[dict[str, JsonValue]] = {
    "if": {"properties": {"status": {"const": "succeeded"}}},
    "then": {"properties": {"text": {"type": "string"}, "usage": {"type": "object"}, "error": {"type": "null"}}},
    "else": {"properties": {"text": {"type": "null"}, "error": {"type": "object"}}},
}
"""What the validator of GenerateResult checks, in JSON Schema's words."""


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
    usage: Annotated[Spent | None, Field(description="What it spent, where Triton said so.")]


class ErrorBody(_Wire):
    """Why a job failed."""

    code: Annotated[ErrorCode, Field(description="Which of the codes of the contract.")]
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


class Headed(_Wire):
    """Which job ended, and how: the first fields of a result of any kind."""

    version: Annotated[ContractVersion, Field(description="The version of this contract.")]
    job_id: Annotated[str, Field(description="The job's.")]
    model: Annotated[str, Field(description="The public name of the model.")]
    status: Annotated[Literal["succeeded", "failed"], Field(description="How the job ended.")]


class Footed(_Wire):
    """What led there: the last fields of a result of any kind."""

    error: Annotated[ErrorBody | None, Field(description="Never null where status is failed, else null.")]
    worker_id: Annotated[str, Field(description="Who settled the job.")]
    model_version: Annotated[str | None, Field(description="The version of the model that the runtime ran.")]
    attempts: Annotated[list[Attempt], Field(description="All that may have reached the runtime, oldest first.")]
    timings: Annotated[Timings, Field(description="Where the time went.")]
    finished_at: Annotated[Timestamp, Field(description="By Redis' clock.")]
    tenant: Annotated[str | None, Field(description="The job's.")]
    batch_id: Annotated[str | None, Field(description="The job's.")]
    custom_id: Annotated[str | None, Field(description="The job's.")]
    metadata: Annotated[dict[str, str], Field(description="The job's.")]


class _Generated(_Wire):
    text: Annotated[str | None, Field(repr=False, description="Never null where status is succeeded, else null.")]
    finish_reason: Annotated[str | None, Field(description="Why the text ends, where the model says so.")]
    usage: Annotated[
        Usage | None,
        Field(description="Never null where status is succeeded; of a failure, what the last attempt really spent."),
    ]


class GenerateResult(Footed, _Generated, Headed):  # pydantic takes the fields of the last one first
    """A job's end. All fields are always there."""

    model_config = ConfigDict(json_schema_extra=_STATUS_DECIDES)

    @model_validator(mode="after")
    def _succeeds_with_usage_or_fails_with_an_error(self) -> Self:
        check_end(self.status, "text", self.text, self.usage, self.error)
        return self


def check_end(
    status: Literal["succeeded", "failed"], name: str, product: object, usage: object, error: ErrorBody | None
) -> None:
    """Refuse, with a ValueError, an end between success and failure; the field ``name`` holds what the job was for."""
    if status == "succeeded" and (product is None or usage is None or error is not None):
        msg = f"a succeeded result has {name} and usage and no error"
        raise ValueError(msg)
    if status == "failed" and (product is not None or error is None):
        msg = f"a failed result has an error and no {name}"
        raise ValueError(msg)
