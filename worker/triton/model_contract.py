"""How one model is asked, and the report on whether its configuration fits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

from worker.triton.codec import TensorValue
from worker.triton.description import VARIABLE, ModelDescription
from worker.triton.outputs import OutputNames
from worker.triton.values import DoesNotFit, fitted_all

if TYPE_CHECKING:
    from worker.triton.tensor_contract import TensorContract


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field: what the configuration says, what the model has, and what is wrong between them, if anything."""

    field: str
    configured: str
    actual: str
    reason: str = ""
    is_doubt: bool = False
    """What is wrong may still work; jobs are run."""
    remedy: str = ""
    """What to change in the configuration."""

    @property
    def is_mismatch(self) -> bool:
        """Tell whether no job can be run with this."""
        return bool(self.reason) and not self.is_doubt

    def __str__(self) -> str:
        return f"{self.field} = {self.configured} {self.reason} (the model has: {self.actual})"


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """An input that is sent: name, datatype, and shape with -1 where any number of values goes."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def shape_for(self, count: int) -> tuple[int, ...]:
        """Return the shape with ``count`` values: the last variable dimension takes them, each other is 1.

        Raises:
            DoesNotFit: it takes another number of values.
        """
        if not count:
            raise DoesNotFit("is empty")
        at = max((i for i, size in enumerate(self.shape) if size == VARIABLE), default=None)
        shape = tuple(count if i == at else 1 if size == VARIABLE else size for i, size in enumerate(self.shape))
        if prod(shape) != count:
            needed = prod(size for size in self.shape if size != VARIABLE)
            raise DoesNotFit("takes one value" if needed == 1 else f"takes {needed} values")
        return shape

    def holding(self, values: Sequence[object]) -> "FittedTensor":
        """Return the tensor with these values.

        Raises:
            DoesNotFit: they are of another kind, out of range, or of another number.
        """
        return FittedTensor(self.name, self.datatype, self.shape_for(len(values)), fitted_all(self.datatype, values))


@dataclass(frozen=True, slots=True)
class FittedTensor:
    """An input with its values, ready to be encoded."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[TensorValue, ...]

    @property
    def plan(self) -> TensorPlan:
        """Return the plan that these values fill."""
        return TensorPlan(self.name, self.datatype, self.shape)


@dataclass(frozen=True, slots=True)
class JsonOption:
    """What a parameter's value must fit that goes into the JSON input."""

    datatype: str
    takes_list: bool

    def check(self, value: object) -> None:
        """Raise DoesNotFit where the value is of another kind or out of range."""
        values = value if self.takes_list and isinstance(value, list) else [value]
        if not values:
            raise DoesNotFit("is empty")
        fitted_all(self.datatype, values)


@dataclass(frozen=True, slots=True)
class ModelContract:
    """How to ask one model: the same for each of its jobs."""

    prompt: TensorPlan
    max_tokens: TensorPlan | None
    constants: tuple[FittedTensor, ...]
    options: Mapping[str, TensorPlan]
    options_json: TensorPlan | None
    outputs: OutputNames
    json_options: Mapping[str, JsonOption] | None = None
    """What may go into the JSON input; None for any parameter, unchecked."""
    transport: Literal["infer", "generate"] = "infer"


@dataclass(frozen=True, slots=True)
class ContractReport:
    """A public name's configuration beside its model, with the contract where they fit."""

    public_name: str
    model_name: str
    versions: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    contract: "ModelContract | TensorContract | None"
    from_metadata: bool = False
    """The model's configuration was refused: what is optional or decoupled is not known."""
    model: ModelDescription | None = None
    """What the model takes and gives."""

    @property
    def mismatches(self) -> tuple[Comparison, ...]:
        """Return what keeps jobs from being run."""
        return tuple(each for each in self.comparisons if each.is_mismatch)

    @property
    def passed(self) -> bool:
        """Whether jobs can be run."""
        return self.contract is not None

    def __str__(self) -> str:
        if self.passed:
            return f"{self.public_name} fits Triton's model {self.model_name}"
        wrong = "; ".join(map(str, self.mismatches))
        return f"{self.public_name} does not fit Triton's model {self.model_name}: {wrong}"
