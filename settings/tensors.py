"""What a model that takes tensor jobs allows in them, and what it is billed by."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from settings.fields import Bytes, FrozenMapping, ParameterName, Section, Shown, TensorName

INFERENCES = "inferences"
_WORKERS_OWN = {"binary_data_output", "headers"}


def _unit(name: str) -> str:
    if name == INFERENCES:
        raise PydanticCustomError("refused", "is counted by request, and by no output")
    return name


def _parameter(name: str) -> str:
    if name in _WORKERS_OWN or name.startswith("triton_"):
        raise PydanticCustomError("refused", "is not a job's to set: the worker or Triton sets it")
    if name.startswith("sequence_"):
        raise PydanticCustomError("refused", "cannot be kept: jobs of one queue run on any worker, in any order")
    return name


class TensorRules(Section):
    """Only of models of kind `tensors`: what jobs may ask for, and what they are billed by.

    Token limits and the names of text tensors have no meaning there. In `models` it replaces the one of `runtime_config` as
    a whole.
    """

    usage: Annotated[
        FrozenMapping[Annotated[ParameterName, AfterValidator(_unit)], TensorName],
        Shown(kind="mapping of unit to tensor name"),
    ] = Field(default={}, validate_default=True)
    """Units of a job's usage beside `inferences`, which is 1 by request: for each, the integer output whose values, added
    up, are the count. A job whose answer lacks one fails, and is not billed by a guess."""
    inference_parameters: Annotated[
        tuple[Annotated[ParameterName, AfterValidator(_parameter)], ...],
        Field(strict=False),
        Shown(kind="list of names"),
    ] = ()
    """Which `inference_parameters` a job may set. Any other is refused."""
    shared_memory_regions: Annotated[tuple[TensorName, ...], Field(strict=False), Shown(kind="list of names")] = ()
    """Regions, as they are registered with Triton, that a job may name for its inputs and outputs. Whoever may enqueue jobs
    may read and overwrite all of them."""
    max_input_bytes: Bytes = 16 << 20
    """Largest inputs of a job, all together, as they are sent; those in shared memory do not count. The job as JSON is
    bounded by `max_job_bytes`, what comes back, in binary and as JSON, by `max_result_bytes`."""
