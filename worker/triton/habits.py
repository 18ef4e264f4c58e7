"""What goes wrong with jobs though all fits: inputs that nothing fills, counts of something else. Doubts, not mismatches."""

from collections.abc import Iterator
from typing import Final

from settings.runtime import RuntimeConfig
from worker.triton.description import ModelDescription, named
from worker.triton.model_contract import Comparison
from worker.triton.outputs import INTEGER_DATATYPES
from worker.triton.remedies import name_another_count
from worker.triton.roles import OF_SOMETHING_ELSE, words_of

_PROMPT_IN_THE_TEXT: Final = "is not set: the text may begin with the prompt, and the completion's count include it"
_NOT_COUNTED: Final = "is not set: the model reports the count only when it is asked to"
_UNSET: Final = {
    "exclude_input_in_output": _PROMPT_IN_THE_TEXT,
    "sampling_param_exclude_input_from_output": _PROMPT_IN_THE_TEXT,
    "return_num_input_tokens": _NOT_COUNTED,
    "return_num_output_tokens": _NOT_COUNTED,
}
_SEVERAL_TEXTS: Final = frozenset({"beam_width", "num_return_sequences", "sampling_param_n", "sampling_param_best_of"})


def doubts(config: RuntimeConfig, model: ModelDescription) -> Iterator[Comparison]:
    """Yield what may go wrong with each job though every name and type fits."""
    mapped = {tensor: parameter for parameter, tensor in config.options.items()}
    for tensor in model.inputs:
        if tensor.name in _UNSET and config.constants.get(tensor.name) is not True:
            field = f"constants.{tensor.name}"
            remedy = f'add "{tensor.name}": true to constants'
            yield Comparison(field, "-", str(tensor), _UNSET[tensor.name], is_doubt=True, remedy=remedy)
        if tensor.name in _SEVERAL_TEXTS and tensor.name in mapped:
            field = f"options.{mapped[tensor.name]}"
            reason = "lets a job ask for several texts, and then it has none"
            yield Comparison(field, tensor.name, str(tensor), reason, is_doubt=True, remedy="take it away")
    yield from _counts_of_something_else(config, model)


def _counts_of_something_else(config: RuntimeConfig, model: ModelDescription) -> Iterator[Comparison]:
    for field in ("prompt_tokens_output_name", "completion_tokens_output_name"):
        name = getattr(config, field)
        tensor = named(model.outputs, name)
        if tensor is not None and words_of(name) & OF_SOMETHING_ELSE:
            reason = "is called like something else than a token count, and jobs would be billed by it"
            remedy = name_another_count(field, name, model.outputs, INTEGER_DATATYPES)
            yield Comparison(field, name, str(tensor), reason, is_doubt=True, remedy=remedy)
