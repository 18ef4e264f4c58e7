"""Inputs that a model requires and its configuration fills with nothing: no job could be run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from settings.runtime import RuntimeConfig
from worker.triton.description import ModelDescription
from worker.triton.model_contract import Comparison
from worker.triton.outputs import INTEGER_DATATYPES
from worker.triton.remedies import add_constant, others_for

_REASON: Final = "is missing: the model requires this input"
_DATATYPES: Final = {
    "input_name": frozenset({"BYTES"}),
    "max_tokens_input_name": INTEGER_DATATYPES,
    "options_json_input": frozenset({"BYTES"}),
}
"""Fields that fill an input of these datatypes with each job."""


def unfilled(config: RuntimeConfig, model: ModelDescription, found: Sequence[Comparison]) -> Iterator[Comparison]:
    """Yield them, beside what has been ``found`` wrong so far; none where the model does not show what it requires."""
    if not model.complete:
        return
    filled = {config.input_name, config.max_tokens_input_name, config.options_json_input, *config.constants}
    # What is to go into a field that names another input is no constant: both could not be done.
    filled.update(_offered(model, found))
    for tensor in model.inputs:
        if not tensor.optional and tensor.name not in filled:
            yield Comparison(f"constants.{tensor.name}", "-", str(tensor), _REASON, remedy=add_constant(tensor))


def _offered(model: ModelDescription, found: Iterable[Comparison]) -> Iterator[str]:
    for each in found:
        if each.is_mismatch and each.field in _DATATYPES:
            yield from others_for(each.configured, model.inputs, _DATATYPES[each.field])
