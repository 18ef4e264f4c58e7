"""A model's tensors beside what a configuration makes of each: the table that shows where the two part."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from settings.runtime import RuntimeConfig
    from worker.triton.description import ModelDescription, TensorDescription

HEADINGS = ("", "model has", "of", "configuration says")
_NOT_THERE = "(not there)"


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor that the model has, or that the configuration names and the model has not."""

    side: str
    tensor: str
    of: str
    configuration: str

    @property
    def is_used(self) -> bool:
        """Tell whether the configuration has anything to do with it."""
        return bool(self.configuration)

    def cells(self) -> tuple[str, str, str, str]:
        """Return the row as the table has it."""
        return self.side, self.tensor, self.of, self.configuration


def tensor_rows(config: "RuntimeConfig", model: "ModelDescription") -> tuple[TensorRow, ...]:
    """Return a row for each tensor, the model's own first."""
    rest = "as jobs have it" if config.kind == "tensors" else ""
    inputs = _side("input", model.inputs, _inputs(config), rest, says_required=model.complete)
    return (*inputs, *_side("output", model.outputs, _outputs(config), rest, says_required=False))


def _side(
    side: str, tensors: "tuple[TensorDescription, ...]", uses: dict[str, list[str]], rest: str, *, says_required: bool
) -> Iterator[TensorRow]:
    for tensor in tensors:
        needed = ", required" if says_required and not tensor.optional else ""
        yield TensorRow(side, tensor.name, f"{tensor}{needed}", ", ".join(uses.pop(tensor.name, [])) or rest)
    for name, fields in uses.items():
        yield TensorRow(side, _NOT_THERE, "", ", ".join(f"{field} = {name}" for field in fields))


def _inputs(config: "RuntimeConfig") -> dict[str, list[str]]:
    if config.kind == "tensors":
        return {}
    uses: dict[str, list[str]] = {}
    for field in ("input_name", "max_tokens_input_name", "options_json_input"):
        _use(uses, getattr(config, field), field)
    for name, value in config.constants.items():
        _use(uses, name, f"constants: {_as_written(value)}")
    for parameter, name in config.options.items():
        _use(uses, name, f"options.{parameter}")
    return uses


def _outputs(config: "RuntimeConfig") -> dict[str, list[str]]:
    uses: dict[str, list[str]] = {}
    if config.kind == "tensors":
        for unit, name in config.tensors.usage.items():
            _use(uses, name, f"tensors.usage.{unit}")
        return uses
    for field in (
        "output_name",
        "prompt_tokens_output_name",
        "completion_tokens_output_name",
        "finish_reason_output_name",
    ):
        _use(uses, getattr(config, field), field)
    return uses


def _use(uses: dict[str, list[str]], name: str | None, words: str) -> None:
    if name is not None:
        uses.setdefault(name, []).append(words)


def _as_written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "[…]" if isinstance(value, tuple) else str(value)
