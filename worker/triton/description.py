"""A Triton model as Triton describes it: from its configuration, or its metadata where the configuration is refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_DATATYPES: Final = {"TYPE_STRING": "BYTES"}
VARIABLE: Final = -1


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """An input or output: its datatype as requests name it, and its shape in a request; -1 takes any number of values."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    is_batched: bool = False

    def __str__(self) -> str:
        return f"{self.datatype} [{','.join(map(str, self.shape))}]"


def named(tensors: Sequence[TensorDescription], name: str) -> TensorDescription | None:
    """Return the tensor of this name, None where there is none."""
    return next((tensor for tensor in tensors if tensor.name == name), None)


def in_words(tensors: Sequence[TensorDescription]) -> str:
    """Return all tensors in one line, with their datatypes and shapes."""
    return ", ".join(f"{tensor.name} {tensor}" for tensor in tensors) or "-"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What is known of a model. Only its configuration (``complete``) tells what is optional, decoupled or batched.

    Of a model with a ``max_batch_size`` the shapes begin with the batch, here of 1.
    """

    name: str
    versions: tuple[str, ...]
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    decoupled: bool
    complete: bool
    max_batch_size: int = 0


class NotADescription(Exception):
    """Whatever answered, it does not describe a model as Triton does."""


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


_T = TypeVar("_T", bound=_Read)


class _MetadataTensor(_Read):
    name: str
    datatype: str
    shape: tuple[int, ...]

    def described(self) -> TensorDescription:
        return TensorDescription(self.name, self.datatype, self.shape)


class Metadata(_Read):
    """``GET /v2/models/M``."""

    name: str
    versions: tuple[str, ...] = ()
    inputs: tuple[_MetadataTensor, ...] = ()
    outputs: tuple[_MetadataTensor, ...] = ()

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Return the metadata in an answer, or raise NotADescription."""
        return _read(cls, body)

    def described(self) -> ModelDescription:
        """Return what the metadata alone says. A batch dimension is variable here as any other."""
        return ModelDescription(
            name=self.name,
            versions=self.versions,
            inputs=tuple(tensor.described() for tensor in self.inputs),
            outputs=tuple(tensor.described() for tensor in self.outputs),
            decoupled=False,
            complete=False,
        )


class _ConfigTensor(_Read):
    name: str
    data_type: str
    dims: tuple[int, ...]
    optional: bool = False
    is_shape_tensor: bool = False

    def described(self, batch: tuple[int, ...]) -> TensorDescription:
        datatype = _DATATYPES.get(self.data_type, self.data_type.removeprefix("TYPE_"))
        own_batch = () if self.is_shape_tensor else batch  # A tensor that says a shape is the same for a whole batch.
        return TensorDescription(self.name, datatype, own_batch + self.dims, self.optional, bool(own_batch))


class _TransactionPolicy(_Read):
    decoupled: bool = False


class Config(_Read):
    """``GET /v2/models/M/config``."""

    name: str
    max_batch_size: Annotated[int, Field(ge=0)] = 0
    input: tuple[_ConfigTensor, ...] = ()
    output: tuple[_ConfigTensor, ...] = ()
    model_transaction_policy: _TransactionPolicy = _TransactionPolicy()

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Return the configuration in an answer, or raise NotADescription."""
        return _read(cls, body)

    def described(self, versions: tuple[str, ...]) -> ModelDescription:
        """Return the whole description; ``versions`` are those that the metadata lists."""
        # A request carries one job, so its batch dimension is 1.
        batch = (1,) if self.max_batch_size else ()
        return ModelDescription(
            name=self.name,
            versions=versions,
            inputs=tuple(tensor.described(batch) for tensor in self.input),
            outputs=tuple(tensor.described(batch) for tensor in self.output),
            decoupled=self.model_transaction_policy.decoupled,
            complete=True,
            max_batch_size=self.max_batch_size,
        )


def _read(kind: type[_T], body: bytes) -> _T:
    try:
        return kind.model_validate_json(body)
    except ValidationError:
        raise NotADescription from None
