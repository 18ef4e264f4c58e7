"""The body of ``POST /v2/models/M/generate`` and its answer: JSON alone, without datatypes or shapes.

A key that is an input's name becomes that input; Triton makes its shape. In the answer an output of one value is that value
and any other a list, so a count's datatype is only known to be one of integers.
"""

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from worker.triton.codec import InferenceAnswer, NoInferenceAnswer, Output, TensorValue
from worker.triton.model_contract import TensorPlan

NOT_IN_JSON: Final = frozenset({"FP16", "BF16"})
"""Datatypes that Triton takes and sends in binary only."""

RESERVED_INPUTS: Final = frozenset({"id", "parameters"})
RESERVED_OUTPUTS: Final = frozenset({"id", "model_name", "model_version"})
"""Keys that mean something else than a tensor of that name."""


def json_slot(plan: TensorPlan) -> Callable[[Sequence[TensorValue]], str]:
    """Return what makes a part of an input's values, which are of its datatype; it raises DoesNotFit for a wrong number."""
    key = json.dumps(plan.name)

    def part(values: Sequence[TensorValue]) -> str:
        plan.shape_for(len(values))
        plain = [value.decode() if isinstance(value, bytes) else value for value in values]
        return f"{key}: {json.dumps(plain[0] if len(plain) == 1 else plain, ensure_ascii=False)}"

    return part


def generate_body(parts: Sequence[str], request_id: str) -> bytes:
    """Return the body of a request."""
    return f'{{"id": {json.dumps(request_id)}, {", ".join(parts)}}}'.encode()


def read_generated(body: bytes, names: Collection[str]) -> InferenceAnswer:
    """Return what was answered, with those of its outputs that have these names.

    Raises:
        NoInferenceAnswer: the body cannot be read as an answer; ``{"error": …}``, which may come with 200, is none either.
    """
    try:
        # What is no UTF-8 in a text is not escaped; it comes back as it was.
        content = json.loads(body.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        raise NoInferenceAnswer from None
    if not isinstance(content, dict) or not isinstance(content.get("model_name"), str):
        raise NoInferenceAnswer
    request_id, version = content.get("id"), content.get("model_version")
    return InferenceAnswer(
        request_id if isinstance(request_id, str) else None,
        version if isinstance(version, str) else None,
        {name: _output(content[name]) for name in names if name in content},
    )


def _output(value: Any) -> Output:
    match value:
        case bool():
            return Output("BOOL", 1, value)
        case int():
            return Output("INT64" if value < 1 << 63 else "UINT64", 1, value)
        case float():
            return Output("FP64", 1, value)
        case str():
            return Output("BYTES", 1, _as_sent(value))
        case list():
            return Output("", len(value), None)
        case _:
            raise NoInferenceAnswer


def _as_sent(text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise NoInferenceAnswer from None
