"""Values of every datatype: from JSON into a request's bytes, and back from an answer's."""

import json
import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tensor_wire import DATATYPES, FLOATS, INTEGERS, answer_of, output, request_of
from worker.triton.codec import BFLOAT16, decode_tensors, encode_tensor
from worker.triton.tensor_values import Array, array_of, json_texts, json_values
from worker.triton.values import INTEGER_RANGES, LARGEST_FLOAT, DoesNotFit

SHAPES = st.lists(st.integers(0, 4), max_size=4).filter(lambda shape: prod(shape) <= 24)
TYPES: dict[str, Any] = {"FP16": np.float16, "BF16": BFLOAT16}
FIRST_INFINITE = {"FP16": 0x7C00, "BF16": 0x7F80}


def there_and_back(datatype: str, shape: list[int], data: list[Any]) -> Array:
    """What Triton gives back that was sent this, if it keeps the bytes."""
    request, raw = request_of(encode_tensor("a", datatype, shape, array_of(datatype, shape, data)))
    (sent,) = request["inputs"]
    assert (sent["datatype"], sent["shape"], sent["parameters"]) == (datatype, shape, {"binary_data_size": len(raw)})
    received = decode_tensors(*answer_of(output("a", datatype, shape, raw))).outputs["a"]
    assert received.array is not None
    return received.array


def as_json(array: Array) -> list[Any]:
    """The values as a consumer reads them, whose JSON has no NaN."""
    read: list[Any] = json.loads(json.dumps(json_values(array), allow_nan=False))
    return read


def values_of(datatype: str) -> st.SearchStrategy[Any]:
    """Values that the datatype holds exactly."""
    if datatype == "BOOL":
        return st.booleans()
    if datatype in INTEGERS:
        return st.integers(*INTEGER_RANGES[datatype])
    if datatype == "BYTES":
        return st.text()
    finite = {
        "FP16": st.floats(width=16, allow_nan=False, allow_infinity=False),
        "BF16": st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7FFF < FIRST_INFINITE["BF16"]).map(_bfloat16),
        "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "FP64": st.floats(allow_nan=False, allow_infinity=False),
    }
    return finite[datatype] | st.sampled_from(["NaN", "Infinity", "-Infinity"])


def _bfloat16(bits: int) -> float:
    return float(np.array(bits, dtype=np.uint16).view(BFLOAT16))


@pytest.mark.parametrize("datatype", DATATYPES)
@settings(max_examples=15)
@given(st.data())
def test_what_fits_comes_back_as_it_was(datatype: str, data: st.DataObject) -> None:
    """Of every datatype, in any shape, NaN and the infinities included."""
    shape = data.draw(SHAPES)
    values: list[Any] = data.draw(listed(values_of(datatype), shape))
    array = there_and_back(datatype, shape, values)
    assert list(array.shape) == shape
    if datatype == "BYTES":
        assert json_texts(array) == (values, False)
    else:
        assert [repr(value) for value in as_json(array)] == [repr(_plain(datatype, value)) for value in values]


def listed(values: st.SearchStrategy[Any], shape: list[int]) -> st.SearchStrategy[list[Any]]:
    """As many values as the shape has."""
    return st.lists(values, min_size=prod(shape), max_size=prod(shape))


def _plain(datatype: str, value: Any) -> Any:
    return float(value) if datatype in FLOATS and not isinstance(value, str) else value


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_every_value_of_16_bits_comes_back_to_the_last_bit(datatype: str) -> None:
    """All 65536 of them, through JSON; NaNs as some NaN."""
    every = np.arange(1 << 16, dtype=np.uint16).view(TYPES[datatype])
    back = array_of(datatype, [1 << 16], as_json(every))
    before, after = every.view(np.uint16), back.view(np.uint16)
    is_nan = (before & 0x7FFF) > FIRST_INFINITE[datatype]
    assert np.array_equal((after & 0x7FFF) > FIRST_INFINITE[datatype], is_nan)
    assert np.array_equal(after[~is_nan], before[~is_nan])


@given(st.integers(0, (1 << 32) - 1))
def test_every_value_of_32_bits_comes_back_to_the_last_bit(bits: int) -> None:
    """As its exact value, which no reader of JSON can round."""
    value = np.array([bits], dtype=np.uint32).view(np.float32)
    back = array_of("FP32", [1], as_json(value))
    assert np.isnan(value[0]) if np.isnan(back[0]) else back.view(np.uint32)[0] == bits


@cache
def ladder(datatype: str) -> list[float]:
    """Every finite value of a datatype of 16 bits from 0 upwards; the place of each is its bits."""
    values: list[float] = (
        np.arange(FIRST_INFINITE[datatype], dtype=np.uint16).view(TYPES[datatype]).astype(np.float64).tolist()
    )
    return values


def nearest(datatype: str, number: float) -> float:
    """The nearest value; of two equally near ones the one with an even last bit."""
    values, size = ladder(datatype), abs(number)
    above = bisect_left(values, size)
    if above == 0:
        return 0.0
    below = above - 1
    up, down = Fraction(values[above]) - Fraction(size), Fraction(size) - Fraction(values[below])
    at = above if up < down or (up == down and above % 2 == 0) else below
    return values[at] if number >= 0 else -values[at]


def between(datatype: str) -> st.SearchStrategy[float]:
    """Numbers exactly between two neighbours, and beside that by the least there is."""
    values = ladder(datatype)
    middles = st.integers(0, len(values) - 2).map(lambda at: (values[at] + values[at + 1]) / 2)
    return st.tuples(middles, st.sampled_from([0, 1, -1]), st.sampled_from([1, -1])).map(
        lambda drawn: drawn[2] * (math.nextafter(drawn[0], drawn[1] * math.inf) if drawn[1] else drawn[0])
    )


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
@settings(max_examples=50)
@given(st.data())
@example(None)
def test_a_number_between_two_values_becomes_the_nearest_one(datatype: str, data: st.DataObject | None) -> None:
    """Rounded once: by way of FP32, 1 + 2**-8 + 2**-40 would become the farther BF16."""
    most = LARGEST_FLOAT[datatype]
    numbers = between(datatype) | st.floats(-most, most)
    number = 1 + 2**-8 + 2**-40 if data is None else data.draw(numbers)
    (got,) = json_values(array_of(datatype, [1], [number]))
    assert got == nearest(datatype, number)


@given(st.floats(-LARGEST_FLOAT["FP32"], LARGEST_FLOAT["FP32"]))
def test_a_number_between_two_values_of_fp32_becomes_the_nearest_one(number: float) -> None:
    """No neighbour is nearer."""
    value = array_of("FP32", [1], [number])[0]
    distance = abs(Fraction(float(value)) - Fraction(number))
    for way in (-LARGEST_FLOAT["FP32"], LARGEST_FLOAT["FP32"]):
        neighbour = float(np.nextafter(value, np.float32(way)))
        assert neighbour == value or abs(Fraction(neighbour) - Fraction(number)) >= distance


@pytest.mark.parametrize("datatype", FLOATS)
def test_what_is_beyond_the_largest_value_is_refused(datatype: str) -> None:
    """It would become infinity; the largest itself, and what is too small to be told from 0, are values."""
    most = LARGEST_FLOAT[datatype]
    assert json_values(array_of(datatype, [3], [most, -most, 1e-320 if datatype != "FP64" else 0])) == [most, -most, 0]
    beyond = [10**400, -(10**400), float("inf"), float("-inf")]
    beyond += [] if datatype == "FP64" else [most * 1.0001, -most * 1.0001]
    for number in beyond:
        with pytest.raises(DoesNotFit, match="out of range"):
            array_of(datatype, [2], [0, number])


@pytest.mark.parametrize("datatype", INTEGERS)
def test_an_integer_beyond_its_datatype_is_refused(datatype: str) -> None:
    """Triton would wrap it."""
    least, most = INTEGER_RANGES[datatype]
    assert json_values(array_of(datatype, [2], [least, most])) == [least, most]
    for number in (least - 1, most + 1, 10**30):
        with pytest.raises(DoesNotFit, match=f"not from {least} to {most}"):
            array_of(datatype, [1], [number])


@pytest.mark.parametrize("datatype", DATATYPES)
def test_what_is_of_another_kind_is_refused(datatype: str) -> None:
    """Nothing is converted: true is no 1, 1.0 is no integer, "1" is no number."""
    everything: list[Any] = [None, True, 1, 1.5, "1", "nan", "inf", {}, [1], float("nan")]
    kinds: set[type] = {bool} if datatype == "BOOL" else {int} if datatype in INTEGERS else {str}
    for value in everything:
        is_number = datatype in FLOATS and type(value) in {int, float} and value == value  # noqa: PLR0124 - NaN is not
        if is_number or (datatype not in FLOATS and type(value) in kinds):
            array_of(datatype, [1], [value])
            continue
        with pytest.raises(DoesNotFit):
            array_of(datatype, [1], [value])


@settings(max_examples=30)
@given(SHAPES, st.data())
def test_data_may_be_nested_as_the_shape_is(shape: list[int], data: st.DataObject) -> None:
    """Flat and nested mean the same tensor."""
    values = data.draw(listed(st.integers(-9, 9), shape))
    array = np.array(values, dtype=np.int32).reshape(shape)
    nested = array.tolist() if shape else [array.tolist()]
    assert np.array_equal(array_of("INT32", shape, nested), array)
    assert np.array_equal(array_of("INT32", shape, values), array)


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        *(([2], [1]), ([2], [1, 2, 3]), ([2], []), ([0], [1]), ([], []), ([], [1, 2]), ([2, 0], [1])),
        *(([2, 2], [[1, 2], [3]]), ([2, 2], [[1, 2, 3, 4]]), ([2, 2], [[1, 2], 3, 4]), ([2, 2], [1, [2, 3], 4])),
        *(([2, 2], [[1], [2], [3], [4]]), ([4], [[1, 2], [3, 4]]), ([1, 2], [[[1], [2]]]), ([1, 1], [[[1]]])),
        *(([2147483647, 2147483647], [1]), ([1, 2], [[], [1, 2]])),
    ],
)
def test_data_that_is_not_of_its_shape_is_refused(shape: list[int], data: list[Any]) -> None:
    """Too few, too many, or nested otherwise."""
    with pytest.raises(DoesNotFit):
        array_of("INT32", shape, data)


@given(st.lists(st.binary(max_size=6), max_size=4))
def test_any_bytes_come_and_go(values: list[bytes]) -> None:
    """Texts where all of them are UTF-8, else base64, which is taken back as what it was."""
    array = np.empty(len(values), dtype=np.object_)
    array[:] = values
    texts, are_base64 = json_texts(array)
    assert are_base64 == any(value.decode(errors="replace").encode() != value for value in values)
    assert array_of("BYTES", [len(values)], texts, is_base64=are_base64).tolist() == values


@pytest.mark.parametrize("text", ["a", "ab=", "YQ=", "YQ==\n", "é===", "Y Q=", "-_-_", "YQ==YQ=="])
def test_what_is_no_base64_is_refused(text: str) -> None:
    """Nothing is skipped or padded."""
    with pytest.raises(DoesNotFit, match="base64"):
        array_of("BYTES", [1], [text], is_base64=True)


def test_numbers_in_json_are_the_exact_values() -> None:
    """The FP16 nearest to 0.1 is no 0.1, and does not look like it."""
    assert as_json(array_of("FP16", [1], [0.1])) == [0.0999755859375]
    assert as_json(array_of("BF16", [1], [0.1])) == [0.10009765625]
    assert as_json(array_of("FP32", [1], [0.1])) == [0.10000000149011612]
    assert repr(as_json(array_of("FP64", [2], [0.1, -0.0]))) == "[0.1, -0.0]"
    assert as_json(array_of("FP16", [1], [2049])) == [2048.0]
