"""The result of a job that has ended, of the kind that its model takes."""

from typing import Literal, TypedDict

from tasks.errors import JobError
from tasks.result import Attempt, ErrorBody, GenerateResult, Timings
from tasks.tensor_result import Result, TensorGeneration, TensorResult
from tasks.usage import Spent, Units, Usage


class Common(TypedDict):
    """The fields of a result that do not depend on how the job ended."""

    version: Literal[1]
    job_id: str
    model: str
    worker_id: str
    attempts: list[Attempt]
    timings: Timings
    finished_at: str
    tenant: str | None
    batch_id: str | None
    custom_id: str | None
    metadata: dict[str, str]


def computed(common: Common, generation: TensorGeneration) -> TensorResult:
    """Return the result of a tensor job that succeeded."""
    return TensorResult(
        **common,
        status="succeeded",
        outputs=generation.outputs,
        finish_reason=None,
        usage=generation.usage,
        error=None,
        model_version=generation.model_version,
    )


def failed(common: Common, error: JobError, spent: Spent | None, *, takes_tensors: bool) -> Result:
    """Return the result of a job that failed. What was spent in units of the other kind, before the model was configured anew, is left to the attempts."""
    body = ErrorBody.of(error)
    if takes_tensors:
        units = spent if isinstance(spent, Units) else None
        return TensorResult(
            **common, status="failed", outputs=None, finish_reason=None, usage=units, error=body, model_version=None
        )
    tokens = spent if isinstance(spent, Usage) else None
    return GenerateResult(
        **common, status="failed", text=None, finish_reason=None, usage=tokens, error=body, model_version=None
    )


def made_a_failure(result: Result, error: JobError) -> Result:
    """Return a result as that of a failed job: with the usage that was spent, without what it was spent on."""
    product = "text" if isinstance(result, GenerateResult) else "outputs"
    changes = {"status": "failed", product: None, "finish_reason": None, "error": ErrorBody.of(error)}
    return result.model_copy(update=changes)
