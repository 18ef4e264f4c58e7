"""The tensor job: a KServe v2 inference request in a queue (docs/wire-contract.md, section 2; docs/tensor-jobs.md)."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from tasks.job import INT32_MAX, Addressed, Attended, GenerateJob

MOST_DIMENSIONS: Final = 32
BASE64: Final = "base64"
TRITONS_OWN: Final = ("priority", "timeout")
"""Inference parameters that Triton itself reads: integers."""

# fmt: off
Datatype = Literal[
    "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
    "FP16", "BF16", "FP32", "FP64", "BYTES",
]
# fmt: on
TensorName = Annotated[str, Field(min_length=1, max_length=200)]
Shape = Annotated[list[Annotated[int, Field(ge=0, le=INT32_MAX)]], Field(max_length=MOST_DIMENSIONS)]
Region = Annotated[str, Field(min_length=1, max_length=200)]


def _of_64_bits(value: float | str) -> float | str:
    if isinstance(value, int) and not -(1 << 63) <= value < (1 << 63):
        msg = "is no integer of 64 bits"
        raise ValueError(msg)
    return value


def _as_triton_reads(parameters: dict[str, float | str]) -> dict[str, float | str]:
    for name in TRITONS_OWN:
        value = parameters.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            msg = f"{name} is no integer from 0"
            raise ValueError(msg)
    return parameters


ParameterValue = Annotated[bool | int | float | str, AfterValidator(_of_64_bits)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class InSharedMemory(_Part):
    """The part of a shared-memory region that holds a tensor's values, if one does."""

    shared_memory_region: Annotated[
        Region | None, Field(description="A region that is registered with Triton and allowed by the configuration.")
    ] = None
    shared_memory_byte_size: Annotated[int | None, Field(ge=1, description="Bytes of the region to use.")] = None
    shared_memory_offset: Annotated[int, Field(ge=0, description="Where in the region they begin.")] = 0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.shared_memory_region is None) != (self.shared_memory_byte_size is None) or (
            self.shared_memory_region is None and self.shared_memory_offset
        ):
            msg = "takes shared_memory_region and shared_memory_byte_size together"
            raise ValueError(msg)
        return self


class InputParameters(InSharedMemory):
    """Where and how the values of an input are."""

    content_type: Annotated[
        Literal["base64"] | None, Field(description="Of BYTES: the data is base64, and sent decoded.")
    ] = None


class OutputParameters(InSharedMemory):
    """How an output is wanted."""

    classification: Annotated[
        int | None,
        Field(ge=1, le=INT32_MAX, description="Give the so many largest values as texts `value:index:label`."),
    ] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.classification is not None and self.shared_memory_region is not None:
            msg = "has both classification and shared_memory_region"
            raise ValueError(msg)
        return self


class InputTensor(_Part):
    """One input of the model, with its values or the region that holds them."""

    name: Annotated[TensorName, Field(description="The model's name for it.")]
    shape: Annotated[Shape, Field(description="With the batch dimension, where the model has one.")]
    datatype: Annotated[Datatype, Field(description="The model's.")]
    parameters: Annotated[InputParameters, Field(description="Shared memory, or base64.")] = InputParameters()
    data: Annotated[
        list[Any] | None,
        Field(repr=False, description="The values, row by row: flat, or nested as the shape is."),
        WithJsonSchema({"anyOf": [{"type": "array"}, {"type": "null"}]}),
    ] = None

    @model_validator(mode="after")
    def _from_one_place(self) -> Self:
        if (self.data is None) == (self.parameters.shared_memory_region is None):
            raise ValueError("has no data" if self.data is None else "has both data and shared_memory_region")
        if self.parameters.content_type is not None and (self.data is None or self.datatype != "BYTES"):
            msg = "has a content_type that is for data of BYTES only"
            raise ValueError(msg)
        return self


class WantedOutput(_Part):
    """One output that the job asks for."""

    name: Annotated[TensorName, Field(description="The model's name for it.")]
    parameters: Annotated[OutputParameters, Field(description="Classification, or shared memory.")] = OutputParameters()


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _each_once(tensors: Sequence[_Named]) -> None:
    if any(count > 1 for count in Counter(tensor.name for tensor in tensors).values()):
        msg = "names a tensor twice"
        raise ValueError(msg)


def _inputs_once(tensors: list[InputTensor]) -> list[InputTensor]:
    _each_once(tensors)
    return tensors


def _outputs_once(tensors: list[WantedOutput]) -> list[WantedOutput]:
    _each_once(tensors)
    return tensors


class _Tensors(_Part):
    inputs: Annotated[
        list[InputTensor], Field(min_length=1, description="The model's inputs."), AfterValidator(_inputs_once)
    ]
    outputs: Annotated[
        list[WantedOutput],
        Field(description="The outputs wanted; all of them if empty."),
        AfterValidator(_outputs_once),
    ] = []
    inference_parameters: Annotated[
        dict[str, ParameterValue],
        Field(description="The request's parameters; each must be allowed by the model's configuration."),
        AfterValidator(_as_triton_reads),
    ] = {}


class TensorJob(Attended, _Tensors, Addressed):  # pydantic takes the fields of the last one first
    """One inference on tensors, as asked for by the gateway."""


Job = GenerateJob | TensorJob
