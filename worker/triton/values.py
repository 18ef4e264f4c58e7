"""Plain values as values of a tensor's datatype: what fits is given its type, what does not is refused before it is sent.

Triton wraps an integer that is too large, without a word.
"""

import struct
from collections.abc import Sequence
from typing import Final

from worker.triton.codec import TensorValue

LARGEST_FLOAT: Final = {
    "FP16": 65504.0,
    "BF16": struct.unpack(">f", b"\x7f\x7f\x00\x00")[0],
    "FP32": struct.unpack(">f", b"\x7f\x7f\xff\xff")[0],
    "FP64": struct.unpack(">d", b"\x7f\xef\xff\xff\xff\xff\xff\xff")[0],
}
INTEGER_RANGES: Final = {
    **{f"INT{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}
DATATYPES: Final = frozenset({"BOOL", "BYTES", *LARGEST_FLOAT, *INTEGER_RANGES})


class DoesNotFit(Exception):
    """The value is none of the tensor's; the words, such as "is not an integer", go after its name."""


def fitted(datatype: str, value: object) -> TensorValue:
    """Return one value as the datatype (of ``DATATYPES``) has it.

    Raises:
        DoesNotFit: it is of another kind, or out of range.
    """
    if datatype == "BYTES":
        return _bytes(value)
    if datatype == "BOOL":
        if not isinstance(value, bool):
            raise DoesNotFit("is not true or false")
        return value
    if datatype in INTEGER_RANGES:
        return _integer(value, *INTEGER_RANGES[datatype])
    return _float(value, LARGEST_FLOAT[datatype])


def fitted_all(datatype: str, values: Sequence[object]) -> tuple[TensorValue, ...]:
    """Return each value as ``fitted`` does."""
    return tuple(fitted(datatype, value) for value in values)


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise DoesNotFit("is not text")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise DoesNotFit("is not valid text") from None


def _integer(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DoesNotFit("is not an integer")
    if not least <= value <= most:
        raise DoesNotFit(f"is not from {least} to {most}")
    return value


def _float(value: object, largest: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise DoesNotFit("is not a number")
    if not -largest <= value <= largest:
        raise DoesNotFit("is out of range")
    return float(value)
