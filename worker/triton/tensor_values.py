"""Values of tensors between JSON and arrays: what fits the datatype becomes it, what does not is refused before it is sent.

FP16, BF16 and FP32 take the value that is nearest to the number, of two equally near ones the even one. A number beyond the
largest finite value is refused, never infinity; what is too small becomes 0. Back in JSON each value is itself, to the last bit.
"""

import base64
import binascii
import math
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from worker.triton.codec import BFLOAT16
from worker.triton.values import INTEGER_RANGES, LARGEST_FLOAT, DoesNotFit

Array = NDArray[Any]

NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no numbers for these."""

_FLOATS: Final = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
_BF16_NAN: Final = 0x7FC0


def array_of(datatype: str, shape: Sequence[int], data: list[Any], *, is_base64: bool = False) -> Array:
    """Return the values of a tensor, in its shape.

    Raises:
        DoesNotFit: they are not of the datatype, or not as many as the shape says.
    """
    values = _flat(data, shape)
    if datatype == "BYTES":
        array = _texts(values, is_base64=is_base64)
    elif datatype == "BOOL":
        array = np.array(_only(values, {bool}, "true or false"), dtype=np.bool_)
    elif datatype in INTEGER_RANGES:
        array = _integers(datatype, values)
    else:
        array = _floats(datatype, values)
    return array.reshape(shape)


def json_values(array: Array) -> list[Any]:
    """Return the values, row by row, as JSON has them: numbers, true and false, or the names of what is no finite number."""
    if array.dtype.kind in "biu":
        return list(array.ravel().tolist())
    with np.errstate(invalid="ignore"):  # A NaN of any kind is one.
        numbers = array.astype(np.float64).ravel()
    values: list[Any] = numbers.tolist()
    for index in np.flatnonzero(~np.isfinite(numbers)).tolist():
        values[index] = "NaN" if math.isnan(values[index]) else "Infinity" if values[index] > 0 else "-Infinity"
    return values


def json_texts(array: Array) -> tuple[list[str], bool]:
    """Return the values of a BYTES tensor as texts, and whether they are base64: all of them, where one is no UTF-8."""
    values: list[bytes] = array.ravel().tolist()
    try:
        return [value.decode() for value in values], False
    except UnicodeDecodeError:
        return [base64.b64encode(value).decode("ascii") for value in values], True


def _flat(data: list[Any], shape: Sequence[int]) -> list[Any]:
    values = data
    if len(shape) > 1 and list in set(map(type, data)):
        level: list[Any] = [data]
        for size in shape:
            if any(not isinstance(each, list) or len(each) != size for each in level):
                raise DoesNotFit("is nested otherwise than its shape")
            level = list(chain.from_iterable(level))
        values = level
    if len(values) != prod(shape):
        raise DoesNotFit("has not as many values as its shape says")
    return values


def _only(values: list[Any], kinds: set[type], words: str) -> list[Any]:
    # By type: to Python true is an integer.
    if not set(map(type, values)) <= kinds:
        raise DoesNotFit(f"has values that are not {words}")
    return values


def _texts(values: list[Any], *, is_base64: bool) -> Array:
    _only(values, {str}, "texts")
    array = np.empty(len(values), dtype=np.object_)
    try:
        array[:] = [base64.b64decode(value, validate=True) if is_base64 else value.encode() for value in values]
    except (binascii.Error, ValueError):
        raise DoesNotFit(f"has texts that are no {'base64' if is_base64 else 'Unicode'}") from None
    return array


def _integers(datatype: str, values: list[Any]) -> Array:
    _only(values, {int}, "integers")
    least, most = INTEGER_RANGES[datatype]
    if values and not least <= min(values) <= max(values) <= most:
        raise DoesNotFit(f"has values that are not from {least} to {most}")
    return np.array(values, dtype=datatype.lower())


def _floats(datatype: str, values: list[Any]) -> Array:
    kinds = set(map(type, _only(values, {int, float, str}, "numbers")))
    try:
        numbers = np.array(
            [NOT_FINITE[v] if type(v) is str else v for v in values] if str in kinds else values, np.float64
        )
    except KeyError:
        raise DoesNotFit("has texts other than NaN, Infinity and -Infinity") from None
    except OverflowError:
        raise DoesNotFit("has values that are out of range") from None
    finite = np.isfinite(numbers)
    named = sum(type(value) is str for value in values) if str in kinds else 0
    if len(values) - int(np.count_nonzero(finite)) != named or np.any(
        np.abs(numbers[finite]) > LARGEST_FLOAT[datatype]
    ):
        raise DoesNotFit("has values that are out of range")
    return _bfloat16(numbers) if datatype == "BF16" else numbers.astype(_FLOATS[datatype])


def _bfloat16(numbers: NDArray[np.float64]) -> Array:
    """Return the nearest BF16 of each, which is not the nearest of the nearest FP32: rounding twice can take the other one."""
    single = numbers.astype(np.float32)
    bits = single.view(np.uint32).copy()
    finite = np.isfinite(numbers)
    # Cut off, with the last bit set where something was: that decides a tie, and rounds nothing by itself.
    bits[finite & (np.abs(single.astype(np.float64)) > np.abs(numbers))] -= 1
    bits[finite & (single != numbers)] |= 1
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded[np.isnan(numbers)] = _BF16_NAN
    return rounded.view(BFLOAT16)
