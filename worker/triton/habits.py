"""Inputs that models are known to have, and what happens to a job where nothing fills them: doubts, not mismatches."""

from collections.abc import Iterator
from typing import Final

from settings.runtime import RuntimeConfig
from worker.triton.description import ModelDescription
from worker.triton.model_contract import Comparison

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
