"""v2's binary tensors by hand: what a text job needs of them, at a tenth of what arrays and a general parser cost.

Sending is all here. Of answers only the plain form is read: each output in binary, each wanted one a single value.
``codec`` has the last word on any other.
"""

import json
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from worker.triton.codec import InferenceAnswer, NoInferenceAnswer, Output, TensorValue, decode_answer
from worker.triton.model_contract import TensorPlan
from worker.triton.values import DoesNotFit

_FORMATS: Final = dict(
    zip(
        ("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP16", "FP32", "FP64"),
        "?bhiqBHIQefd",
        strict=True,
    )
)
_READERS: Final = {datatype: struct.Struct(f"<{code}") for datatype, code in _FORMATS.items() if datatype != "BOOL"}
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class BinaryPart:
    """An input as it is sent: what the JSON says of it, and its bytes."""

    head: str
    raw: bytes


def binary_slot(plan: TensorPlan) -> Callable[[Sequence[TensorValue]], BinaryPart]:
    """Return what makes a part of an input's values, which are of its datatype; it raises DoesNotFit for a wrong number."""
    pack = _packer(plan.datatype)
    try:
        head_of_one = _head(plan, 1)
    except DoesNotFit:
        head_of_one = None

    def part(values: Sequence[TensorValue]) -> BinaryPart:
        count = len(values)
        head = head_of_one if count == 1 and head_of_one is not None else _head(plan, count)
        raw = pack(values)
        return BinaryPart(f"{head}{len(raw)}}}}}", raw)

    return part


def _head(plan: TensorPlan, count: int) -> str:
    tensor = {"name": plan.name, "shape": plan.shape_for(count), "datatype": plan.datatype}
    return f'{json.dumps(tensor)[:-1]}, "parameters": {{"binary_data_size": '


def _packer(datatype: str) -> Callable[[Sequence[Any]], bytes]:
    if datatype == "BYTES":
        return lambda values: b"".join([piece for value in values for piece in (_LENGTH.pack(len(value)), value)])
    if datatype == "BF16":
        return lambda values: b"".join(map(_bfloat16, values))
    code = _FORMATS[datatype]
    return lambda values: struct.pack(f"<{len(values)}{code}", *values)


def _bfloat16(value: float) -> bytes:
    (bits,) = _LENGTH.unpack(struct.pack("<f", value))
    # The upper half of a float, to the nearest, a tie to the even one.
    return _LENGTH.pack(bits + 0x7FFF + (bits >> 16 & 1))[2:]


def outputs_field(names: Iterable[str]) -> str:
    """Return the field of a request that asks for these outputs in binary."""
    return '"outputs": ' + json.dumps([{"name": name, "parameters": {"binary_data": True}} for name in names])


def request_body(parts: Sequence[BinaryPart], outputs: str, request_id: str) -> tuple[bytes, int]:
    """Return the body of an inference request, and how many bytes of it are JSON; ``outputs`` is ``outputs_field``'s."""
    inputs = ", ".join([part.head for part in parts])
    head = f'{{"id": {json.dumps(request_id)}, "inputs": [{inputs}], {outputs}}}'.encode()
    return b"".join([head, *(part.raw for part in parts)]), len(head)


def read_answer(body: bytes, json_bytes: str | None, names: Collection[str]) -> InferenceAnswer:
    """Return what an inference answered, with those of its outputs that have these names.

    Raises:
        NoInferenceAnswer: the body cannot be read as one.
    """
    plain = _plain_answer(body, json_bytes, names) if json_bytes is not None else None
    return decode_answer(body, json_bytes, names) if plain is None else plain


def _plain_answer(body: bytes, json_bytes: str, names: Collection[str]) -> InferenceAnswer | None:
    """Return a plain answer's content, None where it is not plain, or nothing that can be read."""
    if not json_bytes.isdecimal():
        return None
    try:
        at = int(json_bytes)
        response = json.loads(str(body[:at], "utf-8"))
        found: dict[str, Output] = {}
        tensors = response["outputs"]
        for tensor in tensors:
            end = at + tensor["parameters"]["binary_data_size"]
            if end < at:
                return None
            if tensor["name"] in names:
                found[tensor["name"]] = _output(tensor["datatype"], prod(tensor["shape"]), body[at:end])
            at = end
        if at != len(body) or len({tensor["name"] for tensor in tensors}) != len(tensors):
            return None
        return InferenceAnswer(_text(response.get("id")), _text(response.get("model_version")), found)
    except (LookupError, TypeError, ValueError, RecursionError, AttributeError, NoInferenceAnswer, struct.error):
        return None


def _output(datatype: str, size: int, raw: bytes) -> Output:
    if size != 1:
        raise NoInferenceAnswer
    if datatype == "BYTES":
        (length,) = _LENGTH.unpack_from(raw)
        if len(raw) != length + _LENGTH.size:
            raise NoInferenceAnswer
        return Output(datatype, 1, raw[_LENGTH.size :])
    (value,) = _READERS[datatype].unpack(raw)
    return Output(datatype, 1, value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
