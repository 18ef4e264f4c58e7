"""The result of a tensor job, and reading results of both kinds (docs/wire-contract.md, section 3)."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, WithJsonSchema, model_validator

from tasks.result import Footed, GenerateResult, Headed, check_end
from tasks.tensors import Datatype
from tasks.usage import Units

_STATUS_DECIDES: Final[dict[str, JsonValue]] = {
    "if": {"properties": {"status": {"const": "succeeded"}}},
    "then": {"properties": {"outputs": {"type": "array"}, "usage": {"type": "object"}, "error": {"type": "null"}}},
    "else": {"properties": {"outputs": {"type": "null"}, "error": {"type": "object"}}},
}
"""What the validator of TensorResult checks, in JSON Schema's words."""


class OutputTensor(BaseModel):
    """One output of the model: its values, or the region that holds them."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: Annotated[str, Field(description="The model's name for it.")]
    datatype: Annotated[Datatype, Field(description="What the values are; BYTES for a classification.")]
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(description="With the batch dimension, if any.")]
    parameters: Annotated[
        dict[str, str | int],
        Field(description="content_type base64 where BYTES are no UTF-8; where in shared memory the values are."),
    ]
    data: Annotated[
        list[Any] | None,
        Field(repr=False, description="The values, row by row and flat; null where they are in shared memory."),
        WithJsonSchema(
            {"anyOf": [{"type": "array", "items": {"type": ["number", "boolean", "string"]}}, {"type": "null"}]}
        ),
    ]


class _Computed(BaseModel):
    outputs: Annotated[list[OutputTensor] | None, Field(description="Never null where status is succeeded, else null.")]
    finish_reason: Annotated[None, Field(description="Only texts have one.")]
    usage: Annotated[
        Units | None,
        Field(description="Never null where status is succeeded; of a failure, what the last attempt really spent."),
    ]


class TensorResult(Footed, _Computed, Headed):  # pydantic takes the fields of the last one first
    """A tensor job's end. All fields are always there."""

    model_config = ConfigDict(json_schema_extra=_STATUS_DECIDES)

    @model_validator(mode="after")
    def _succeeds_with_usage_or_fails_with_an_error(self) -> Self:
        check_end(self.status, "outputs", self.outputs, self.usage, self.error)
        return self


Result = GenerateResult | TensorResult
_RESULT: Final[TypeAdapter[Result]] = TypeAdapter(Result)


def read_result(result: str | bytes) -> Result:
    """Return a settled result from its JSON, whichever kind of job it is of; a ValueError where it is neither."""
    return _RESULT.validate_json(result)


@dataclass(frozen=True, slots=True)
class TensorGeneration:
    """What an inference on tensors gave: the outputs that were wanted, and what it spent."""

    outputs: list[OutputTensor]
    usage: Units
    model_version: str | None
