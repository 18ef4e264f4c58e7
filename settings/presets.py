"""Kinds of models that are known by name, as the fields of `runtime_config` that each name stands for."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

PresetName = Literal["vllm", "tensorrt_llm"]

_COUNTED_WITHOUT_THE_PROMPT: Final = {
    "exclude_input_in_output": True,
    "return_num_input_tokens": True,
    "return_num_output_tokens": True,
    "stream": False,
}

PRESETS: Final[Mapping[PresetName, Mapping[str, object]]] = MappingProxyType(
    {
        "vllm": {
            "transport": "generate",  # its models are always decoupled
            "input_name": "text_input",
            "max_tokens_input_name": None,
            "output_name": "text_output",
            "prompt_tokens_output_name": "num_input_tokens",
            "completion_tokens_output_name": "num_output_tokens",
            "finish_reason_output_name": "finish_reason",
            "constants": {**_COUNTED_WITHOUT_THE_PROMPT, "return_finish_reason": True},
            "options_json_input": "sampling_parameters",
            # Neither n nor best_of: with them an answer has as many texts and counts.
            "options_json_parameters": {
                "temperature": "FP32",
                "top_p": "FP32",
                "top_k": "INT32",
                "min_p": "FP32",
                "seed": "INT64",
                "stop": "BYTES[]",
                "stop_token_ids": "INT32[]",
                "bad_words": "BYTES[]",
                "frequency_penalty": "FP32",
                "presence_penalty": "FP32",
                "repetition_penalty": "FP32",
                "min_tokens": "INT32",
                "ignore_eos": "BOOL",
                "skip_special_tokens": "BOOL",
                "include_stop_str_in_output": "BOOL",
            },
        },
        "tensorrt_llm": {
            "input_name": "text_input",
            "max_tokens_input_name": "max_tokens",
            "output_name": "text_output",
            "prompt_tokens_output_name": "num_input_tokens",
            "completion_tokens_output_name": "num_output_tokens",
            # num_output_tokens is a sum over the beams.
            "constants": {**_COUNTED_WITHOUT_THE_PROMPT, "beam_width": 1},
            "options": {
                "temperature": "temperature",
                "top_p": "top_p",
                "top_k": "top_k",
                "seed": "seed",
                "stop": "stop_words",
                "bad_words": "bad_words",
                "frequency_penalty": "frequency_penalty",
                "presence_penalty": "presence_penalty",
                "repetition_penalty": "repetition_penalty",
                "length_penalty": "length_penalty",
                "min_tokens": "min_tokens",
            },
        },
    }
)


TENSORS: Final = frozenset(field for fields in PRESETS.values() for field in fields)
"""Fields that say what a model's tensors are, in contrast to what its jobs may take of time and space."""


def inherited(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is written of one model, over what is written for all.

    A model of another kind than the others has nothing of their tensors: one that names another preset starts from that.
    """
    preset = own.get("preset")
    is_of_another_kind = preset is not None and preset != common.get("preset")
    kept = {name: value for name, value in common.items() if not (is_of_another_kind and name in TENSORS)}
    return {**kept, **own}


def expanded(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with those of the preset that they name beneath them.

    What is written wins. Mappings are laid over each other entry by entry, and an entry that is written as null takes the
    preset's away. A name that is no preset's is left for the schema to refuse.
    """
    preset = written.get("preset")
    known = PRESETS.get(preset) if isinstance(preset, str) else None  # type: ignore[call-overload]  # any text is looked up
    if known is None:
        return dict(written)
    return {**known, **{name: _laid_over(known.get(name), value) for name, value in written.items()}}


def _laid_over(below: object, value: object) -> object:
    if not isinstance(below, Mapping) or not isinstance(value, Mapping):
        return value
    return {name: each for name, each in {**below, **value}.items() if each is not None}
