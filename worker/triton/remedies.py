"""What to change in a configuration that does not fit its model, in words for whoever wrote it."""

import difflib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from worker.triton.description import TensorDescription
from worker.triton.roles import COMPLETION_TOKENS, PROMPT_TOKENS

_MOST_NAMED: Final = 8
_COUNTS: Final = {
    "prompt_tokens_output_name": ("prompt", PROMPT_TOKENS),
    "completion_tokens_output_name": ("completion", COMPLETION_TOKENS),
}


def name_another(field: str, wanted: str, tensors: Sequence[TensorDescription], datatypes: AbstractSet[str]) -> str:
    """Return what to do about a field whose tensor is not there, or not of these datatypes; "" where nothing fits."""
    offered = others_for(wanted, tensors, datatypes)
    if not offered:
        return ""
    if len(offered) == 1:
        return f"set {field} to {offered[0]}"
    more = ", …" if len(offered) > _MOST_NAMED else ""
    return f"set {field} to one of {', '.join(offered[:_MOST_NAMED])}{more}"


def others_for(wanted: str, tensors: Sequence[TensorDescription], datatypes: AbstractSet[str]) -> list[str]:
    """Return which tensors may be meant instead: the one of the nearest name, or else all of these datatypes.

    None is an input whose name says that a constant goes there.
    """
    usable = [tensor for tensor in tensors if tensor.datatype in datatypes and likely_constant(tensor) is None]
    fitting = [tensor.name for tensor in usable if tensor.name != wanted]
    return difflib.get_close_matches(wanted, fitting, n=1, cutoff=0.5) or fitting


def name_another_count(field: str, wanted: str, tensors: Sequence[TensorDescription], kind: AbstractSet[str]) -> str:
    """Return what to do about a count that the model does not report under that name.

    Only what is called like that very count is offered: a bill by another number is worse than none.
    """
    counted, like = _COUNTS[field]
    alike = [tensor for tensor in tensors if like.fits(tensor.name)]
    if said := name_another(field, wanted, alike, kind):
        return said
    if any(tensor.name == wanted and tensor.datatype not in kind for tensor in alike):
        return "let the model return it as an integer: otherwise its jobs cannot be billed (runtime_usage_unavailable)"
    return (
        f"the model reports no token count of the {counted} that can be told by its name: without one its jobs cannot be "
        "billed (runtime_usage_unavailable)"
    )


def name_another_limit(field: str, wanted: str, tensors: Sequence[TensorDescription], kind: AbstractSet[str]) -> str:
    """Return what to do about a max_tokens that the model does not take under that name."""
    said = name_another(field, wanted, tensors, kind)
    return said or "the model has no integer input: set it to null and options_json_input to one that takes JSON"


def rename(wanted: str, tensors: Sequence[TensorDescription], parameter: str = "") -> str:
    """Return what to do about a constant, or a parameter's tensor, that is none of the model's inputs."""
    names = [tensor.name for tensor in tensors]
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    near = near or [name for name in names if name == parameter]
    return f"call it {near[0]}, or take it away" if near else "take it away"


def add_constant(tensor: TensorDescription) -> str:
    """Return what to do about an input that the model requires and nothing fills."""
    value = likely_constant(tensor)
    return f'add "{tensor.name}": {"VALUE" if value is None else _json(value)} to constants'


def likely_constant(tensor: TensorDescription) -> "bool | int | None":
    """Return the value that an input of this name most likely has to have for a job to be settled; None for any guess.

    What streams is switched off, what reports or leaves the prompt out is switched on, and one text comes of one prompt.
    """
    name = tensor.name.lower()
    if tensor.datatype == "BOOL":
        if "stream" in name:
            return False
        if name.startswith(_SWITCHED_ON) or "exclude_input" in name:
            return True
    if "beam_width" in name and tensor.datatype.startswith(("INT", "UINT")):
        return 1
    return None


_SWITCHED_ON = (
    "return_num_",
    "return_count",
    "return_token",
    "return_usage",
    "return_finish_reason",
    "report_",
    "include_usage",
    "include_token",
)


def _json(value: bool | int) -> str:  # noqa: FBT001 - a value, not a switch
    return str(value).lower()
