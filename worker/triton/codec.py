"""Tensors to request bodies and answers to tensors, by tritonclient: its one importer."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tritonclient.http import (
    InferenceServerClient,
    InferenceServerException,
    InferInput,
    InferRequestedOutput,
    InferResult,
)
from tritonclient.utils import triton_to_np_dtype

TensorValue = bool | int | float | bytes

BFLOAT16: Final[np.dtype[Any]] = np.dtype(triton_to_np_dtype("BF16"))
"""What arrays of BF16 are of; numpy itself has none."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input tensor as it is sent; may be sent any number of times."""

    encoded: Any


@dataclass(frozen=True, slots=True)
class RequestedOutputs:
    """The outputs that are asked for; may be asked for any number of times."""

    encoded: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """An output tensor: its datatype as Triton names it, how many values it has, and its value if that is one."""

    datatype: str
    size: int
    value: TensorValue | None


@dataclass(frozen=True, slots=True)
class InferenceAnswer:
    """An inference's result as it came, unchecked; names that the answer lacks are not in ``outputs``."""

    request_id: str | None
    model_version: str | None
    outputs: Mapping[str, Output]


@dataclass(frozen=True, slots=True)
class Held:
    """The part of a registered shared-memory region that holds a tensor's values."""

    region: str
    byte_size: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """An output of any shape: its values as an array, or as JSON (``data``) where they came so; neither in shared memory."""

    datatype: str
    shape: tuple[int, ...]
    array: NDArray[Any] | None = None
    data: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class TensorAnswer:
    """An inference's result with all the outputs that came, unchecked."""

    request_id: str | None
    model_version: str | None
    outputs: Mapping[str, Tensor]


class NoInferenceAnswer(Exception):
    """The body is not what Triton answers to an inference."""


_WHAT_GARBAGE_RAISES: Final = (
    ArithmeticError,
    AttributeError,
    InferenceServerException,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


def encode_tensor(name: str, datatype: str, shape: Sequence[int], values: NDArray[Any] | Held) -> Input:
    """Return a binary tensor of an array of the datatype, or one that is held in shared memory."""
    tensor = InferInput(name, list(shape), datatype)
    if isinstance(values, Held):
        return Input(tensor.set_shared_memory(values.region, values.byte_size, values.offset))
    return Input(tensor.set_data_from_numpy(values, binary_data=True))


def request_output(name: str, *, classification: int = 0, held: Held | None = None) -> Any:
    """Return the request for one output, in binary, as so many classes, or into shared memory; a part of RequestedOutputs."""
    output = InferRequestedOutput(name, binary_data=True, class_count=classification)
    if held is not None:
        output.set_shared_memory(held.region, held.byte_size, held.offset)
    return output


def encode_request(
    inputs: Iterable[Input], outputs: RequestedOutputs, request_id: str, parameters: Mapping[str, Any] | None = None
) -> tuple[bytes, int]:
    """Return the body of an inference request, and how many bytes of it are JSON."""
    others = dict(parameters or {})
    body, json_bytes = InferenceServerClient.generate_request_body(
        [tensor.encoded for tensor in inputs],
        outputs=outputs.encoded,
        request_id=request_id,
        priority=others.pop("priority", 0),
        timeout=others.pop("timeout", None),
        parameters=others,
    )
    return body, len(body) if json_bytes is None else json_bytes


def decode_answer(body: bytes, json_bytes: str | None, names: Iterable[str]) -> InferenceAnswer:
    """Return what an inference answered, with those of its outputs that have these names.

    Raises:
        NoInferenceAnswer: the body cannot be read as one.
    """
    try:
        result, found = _parsed(body, json_bytes)
        request_id, version = _about(result)
        return InferenceAnswer(request_id, version, {name: _output(result, name) for name in names if name in found})
    except _WHAT_GARBAGE_RAISES as error:
        # Without its cause, whose words hold parts of the answer.
        raise NoInferenceAnswer(type(error).__name__) from None


def decode_tensors(body: bytes, json_bytes: str | None) -> TensorAnswer:
    """Return what an inference answered, with all of its outputs.

    Raises:
        NoInferenceAnswer: the body cannot be read as one.
    """
    try:
        result, found = _parsed(body, json_bytes)
        request_id, version = _about(result)
        return TensorAnswer(request_id, version, {name: _tensor(result, name) for name in found})
    except _WHAT_GARBAGE_RAISES as error:
        raise NoInferenceAnswer(type(error).__name__) from None


def _parsed(body: bytes, json_bytes: str | None) -> tuple[InferResult, list[str]]:
    result = InferenceServerClient.parse_response_body(
        body, header_length=None if json_bytes is None else int(json_bytes)
    )
    found = [output["name"] for output in result.get_response().get("outputs", ())]
    if len(set(found)) != len(found):
        raise NoInferenceAnswer
    return result, found


def _about(result: InferResult) -> tuple[str | None, str | None]:
    response = result.get_response()
    return _text_or_none(response.get("id")), _text_or_none(response.get("model_version"))


def _tensor(result: InferResult, name: str) -> Tensor:
    tensor = result.get_output(name)
    datatype, shape = str(tensor["datatype"]), tuple(int(size) for size in tensor["shape"])
    if "binary_data_size" in (tensor.get("parameters") or {}):
        return Tensor(datatype, shape, array=result.as_numpy(name))
    data = tensor.get("data")
    return Tensor(datatype, shape, data=None if data is None else list(data))


def _output(result: InferResult, name: str) -> Output:
    tensor = result.get_output(name)
    datatype = str(tensor["datatype"])
    if "binary_data_size" in (tensor.get("parameters") or {}):
        array = result.as_numpy(name)
        return Output(datatype, array.size, _plain(array.item()) if array.size == 1 else None)
    # Not by numpy, which would make any number fit the datatype: 3.7 tokens would be 3, and 2**32 + 1 would be 1.
    values = tuple(_leaves(tensor["data"]))
    if len(values) != prod(tensor["shape"]):
        raise NoInferenceAnswer
    return Output(datatype, len(values), _plain(values[0]) if len(values) == 1 else None)


def _leaves(data: object) -> Iterator[object]:
    if isinstance(data, list):
        for each in data:
            yield from _leaves(each)
    else:
        yield data


def _plain(value: object) -> TensorValue | None:
    if isinstance(value, str):
        return value.encode("utf-8", errors="surrogatepass")
    return value if isinstance(value, (bool, int, float, bytes)) else None


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
