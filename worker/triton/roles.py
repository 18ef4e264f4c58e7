"""What a model's tensors are most likely for, told by their names and datatypes. A guess, to be tried before it is used."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from worker.triton.description import ModelDescription, TensorDescription
from worker.triton.model_contract import TensorPlan
from worker.triton.outputs import INTEGER_DATATYPES
from worker.triton.values import DoesNotFit

_BYTES: Final = frozenset({"BYTES"})
_FLOATS: Final = frozenset({"FP32", "FP64", "FP16", "BF16"})
_BOOL: Final = frozenset({"BOOL"})


@dataclass(frozen=True, slots=True)
class Likeness:
    """What names a role goes by: first whole names, then words that must, and words that must not, be in a name."""

    names: tuple[str, ...]
    words: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    besides: frozenset[str] = frozenset()
    """Words of which one must be there beside one of ``words``."""

    def of(self, tensors: Sequence[TensorDescription]) -> TensorDescription | None:
        """Return the tensor that is most like it, None where none is."""
        for name in self.names:
            found = next((tensor for tensor in tensors if tensor.name.lower() == name), None)
            if found is not None:
                return found
        alike = [(len(words_of(tensor.name)), tensor) for tensor in tensors if self._is_like(words_of(tensor.name))]
        return min(alike, key=lambda each: each[0])[1] if alike else None

    def fits(self, name: str) -> bool:
        """Tell whether a tensor of this name may be it."""
        return name.lower() in self.names or self._is_like(words_of(name))

    def _is_like(self, words: AbstractSet[str]) -> bool:
        return bool(words & self.words) and not words & self.never and (not self.besides or bool(words & self.besides))


def words_of(name: str) -> frozenset[str]:
    """Return the words that a tensor's name is made of, whatever parts them."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return frozenset(re.findall(r"[a-z]+", parted.lower()))


_COUNTED: Final = frozenset({"token", "tokens", "num", "n", "count", "counts", "len", "length", "usage"})
_OF_THE_PROMPT: Final = frozenset({"prompt", "input", "in", "context"})
_OF_THE_COMPLETION: Final = frozenset({"completion", "output", "out", "generated", "generation", "response", "new"})
OF_SOMETHING_ELSE: Final = frozenset(
    {"cached", "cache", "draft", "accepted", "index", "ids", "id", "block", "blocks", "sequence", "time"}
)
"""Words of what models report beside the counts that a job is billed by."""

PROMPT: Final = Likeness(
    ("text_input", "prompt", "input_text", "text", "query", "question", "input", "inputs"),
    frozenset({"prompt", "text", "query", "question", "input"}),
    frozenset({"decoder", "image", "system", "stop", "bad", "words", "sampling", "parameters", "template"}),
)
TEXT: Final = Likeness(
    ("text_output", "generated_text", "output_text", "completion", "response", "generated", "output", "text", "answer"),
    frozenset({"text", "completion", "response", "generated", "output", "answer"}),
    frozenset({"finish", "reason", "stop", "logprobs"}),
)
PROMPT_TOKENS: Final = Likeness(
    ("prompt_tokens", "num_input_tokens", "input_tokens", "num_prompt_tokens"),
    _OF_THE_PROMPT,
    _OF_THE_COMPLETION | OF_SOMETHING_ELSE,
    _COUNTED,
)
COMPLETION_TOKENS: Final = Likeness(
    ("completion_tokens", "num_output_tokens", "output_tokens", "num_completion_tokens", "generated_tokens"),
    _OF_THE_COMPLETION,
    _OF_THE_PROMPT | OF_SOMETHING_ELSE,
    _COUNTED,
)
FINISH_REASON: Final = Likeness(("finish_reason",), frozenset({"finish"}))
MAX_TOKENS: Final = Likeness(
    ("max_tokens", "max_new_tokens", "max_output_tokens", "max_completion_tokens", "num_predict", "request_output_len"),
    frozenset({"max"}),
    frozenset({"min", "batch"}),
    frozenset({"token", "tokens", "length", "len"}),
)
SAMPLING: Final = Likeness(
    ("sampling_parameters", "sampling_params", "generation_config", "parameters", "params"), frozenset({"sampling"})
)


@dataclass(frozen=True, slots=True)
class Roles:
    """Which tensor is what, None where none can be told."""

    prompt: TensorDescription | None
    max_tokens: TensorDescription | None
    sampling: TensorDescription | None
    text: TensorDescription | None
    prompt_tokens: TensorDescription | None
    completion_tokens: TensorDescription | None
    finish_reason: TensorDescription | None
    options: dict[str, TensorDescription] = field(default_factory=dict)

    @classmethod
    def in_model(cls, model: ModelDescription) -> "Roles":
        """Return what the tensors of a model are most likely for."""
        texts_in, texts_out = _takes_one(model.inputs, _BYTES), _of(model.outputs, _BYTES)
        counts = _of(model.outputs, INTEGER_DATATYPES)
        required = [tensor for tensor in texts_in if not tensor.optional]
        finish_reason = FINISH_REASON.of(texts_out)
        texts_out = [tensor for tensor in texts_out if tensor != finish_reason]
        return cls(
            prompt=PROMPT.of(texts_in) or _only(required or texts_in),
            max_tokens=MAX_TOKENS.of(_takes_one(model.inputs, INTEGER_DATATYPES)),
            sampling=SAMPLING.of(texts_in),
            text=TEXT.of(texts_out) or _only(texts_out),
            prompt_tokens=PROMPT_TOKENS.of(counts),
            completion_tokens=COMPLETION_TOKENS.of(counts),
            finish_reason=finish_reason,
            options=_options(model.inputs),
        )


_PARAMETERS: Final = {
    "temperature": (_FLOATS, ("temperature",)),
    "top_p": (_FLOATS, ("top_p",)),
    "top_k": (INTEGER_DATATYPES, ("top_k",)),
    "min_p": (_FLOATS, ("min_p",)),
    "seed": (INTEGER_DATATYPES, ("seed", "random_seed")),
    "stop": (_BYTES, ("stop", "stop_words", "stop_sequences", "stop_strings")),
    "bad_words": (_BYTES, ("bad_words",)),
    "frequency_penalty": (_FLOATS, ("frequency_penalty",)),
    "presence_penalty": (_FLOATS, ("presence_penalty",)),
    "repetition_penalty": (_FLOATS, ("repetition_penalty", "repeat_penalty")),
    "length_penalty": (_FLOATS, ("length_penalty", "len_penalty")),
    "min_tokens": (INTEGER_DATATYPES, ("min_tokens", "min_length")),
    "ignore_eos": (_BOOL, ("ignore_eos",)),
}
_PREFIXES: Final = re.compile(r"^(sampling_param_|sampling_|runtime_|request_)")


def _options(inputs: Sequence[TensorDescription]) -> dict[str, TensorDescription]:
    by_name = {_PREFIXES.sub("", tensor.name.lower()): tensor for tensor in inputs}
    found = {}
    for parameter, (datatypes, names) in _PARAMETERS.items():
        tensor = next((by_name[name] for name in names if name in by_name), None)
        if tensor is not None and tensor.datatype in datatypes:
            found[parameter] = tensor
    return found


def _of(tensors: Sequence[TensorDescription], datatypes: AbstractSet[str]) -> list[TensorDescription]:
    return [tensor for tensor in tensors if tensor.datatype in datatypes]


def _takes_one(tensors: Sequence[TensorDescription], datatypes: AbstractSet[str]) -> list[TensorDescription]:
    return [tensor for tensor in _of(tensors, datatypes) if _can_be_one(tensor)]


def _can_be_one(tensor: TensorDescription) -> bool:
    try:
        TensorPlan(tensor.name, tensor.datatype, tensor.shape).shape_for(1)
    except DoesNotFit:
        return False
    return True


def _only(tensors: Sequence[TensorDescription]) -> TensorDescription | None:
    return tensors[0] if len(tensors) == 1 else None
