"""What an answer to a tensor job is worth: its outputs and its usage, or the coded error."""

import contextlib
import json
import struct
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import JobError, OutputInvalid, UsageUnavailable
from tasks.tensor_result import TensorGeneration
from tasks.tensors import OutputParameters
from tests.tensor_wire import answer_of, output, texts
from worker.triton.codec import NoInferenceAnswer
from worker.triton.http import Answer
from worker.triton.tensor_outputs import read_tensors

X: Final = output("x", "FP32", [1, 2], struct.pack("<2f", 0.5, float("inf")))
N: Final = output("n", "INT32", [2, 1], struct.pack("<2i", 3, 4))
PLAIN: Final = OutputParameters()
IN_MEMORY: Final = OutputParameters(shared_memory_region="r", shared_memory_byte_size=8, shared_memory_offset=4)


def read(
    *outputs: tuple[dict[str, Any], bytes],
    wanted: dict[str, OutputParameters] | None = None,
    usage: dict[str, str] | None = None,
    most: int = 1000,
    all_needed: bool = True,
    **changes: Any,
) -> TensorGeneration:
    """Read an answer with these outputs."""
    body, json_bytes = answer_of(*outputs, **changes)
    names = {"x": PLAIN} if wanted is None else wanted
    units = {"tokens": "n"} if usage is None else usage
    return read_tensors(
        Answer(200, body, json_bytes), names, units, request_id="id", max_result_bytes=most, all_needed=all_needed
    )


def refused(error: type[JobError], *outputs: tuple[dict[str, Any], bytes], **how: Any) -> JobError:
    """The error of an answer that cannot be settled."""
    with pytest.raises(error) as caught:
        read(*outputs, **how)
    assert type(caught.value) is error
    assert caught.value.upstream_status == 200
    return caught.value


def spent(error: JobError) -> dict[str, int] | None:
    """The units on an error."""
    return None if error.usage is None else error.usage.model_dump()


def test_a_right_answer_is_its_outputs_and_units() -> None:
    """In the order in which they are wanted; what is only billed by is not among them."""
    got = read(N, X)
    assert [each.model_dump() for each in got.outputs] == [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {}, "data": [0.5, "Infinity"]}
    ]
    assert (got.usage.model_dump(), got.model_version) == ({"inferences": 1, "tokens": 7}, "1")
    both = read(N, X, wanted={"x": PLAIN, "n": PLAIN})
    assert [each.name for each in both.outputs] == ["x", "n"]


def test_without_units_a_job_is_billed_by_request() -> None:
    """Nothing else is counted."""
    assert read(X, usage={}).usage.model_dump() == {"inferences": 1}


@pytest.mark.parametrize(
    ("code", "datatype"),
    [("b", "INT8"), ("h", "INT16"), ("q", "INT64"), ("B", "UINT8"), ("H", "UINT16"), ("I", "UINT32"), ("Q", "UINT64")],
)
def test_any_integer_datatype_will_do_for_a_unit(code: str, datatype: str) -> None:
    """Whatever the model declares; the values are added up exactly."""
    most = (1 << 8 * struct.calcsize(code) - code.islower()) - 1
    got = read(X, output("n", datatype, [2], struct.pack(f"<2{code}", most, most)))
    assert got.usage.model_dump() == {"inferences": 1, "tokens": 2 * most}


WRONG_UNITS: Final = {
    "none": output("n", "INT32", [0], b""),
    "a negative one": output("n", "INT32", [2], struct.pack("<2i", 5, -1)),
    "floats": output("n", "FP32", [1], struct.pack("<f", 3)),
    "truths": output("n", "BOOL", [1], b"\1"),
    "texts": output("n", "BYTES", [1], texts(b"3")),
    "in JSON, a float": ({"name": "n", "datatype": "INT32", "shape": [1], "data": [3.7]}, b""),
    "in JSON, too large": ({"name": "n", "datatype": "INT32", "shape": [1], "data": [2**32 + 1]}, b""),
    "without values": ({"name": "n", "datatype": "INT32", "shape": [1]}, b""),
}


@pytest.mark.parametrize("wrong", WRONG_UNITS.values(), ids=list(WRONG_UNITS))
def test_a_wrong_unit_is_no_usage(wrong: tuple[dict[str, Any], bytes]) -> None:
    """It is never 0, and the other units are not settled without it."""
    assert spent(refused(UsageUnavailable, X, wrong, usage={"tokens": "n", "rows": "r"})) is None
    assert spent(refused(UsageUnavailable, X, wrong)) is None


def test_an_absent_unit_is_no_usage() -> None:
    """Triton does not complain of an output that the model leaves out."""
    refused(UsageUnavailable, X)


def test_a_unit_of_zero_is_a_count() -> None:
    """A model may have nothing to count."""
    assert read(X, output("n", "INT32", [1], bytes(4))).usage.model_dump() == {"inferences": 1, "tokens": 0}


def test_an_output_that_was_named_has_to_be_there() -> None:
    """What was spent is said; of those that nobody named, the model gives what it gives."""
    assert spent(refused(OutputInvalid, N)) == {"inferences": 1, "tokens": 7}
    assert read(N, all_needed=False).outputs == []


@pytest.mark.parametrize(
    ("wrong", "is_answer"),
    [
        (output("x", "FP8", [1], b"\0"), False),
        (output("x", "FP32", [3], bytes(8)), False),
        (output("x", "FP32", [2], bytes(7)), False),
        (output("x", "BYTES", [2], texts(b"a")), False),
        (output("x", "BYTES", [1], b"\xff\0\0\0a"), False),
        (({"name": "x", "datatype": "FP32", "shape": [2], "data": [1]}, b""), True),
        (({"name": "x", "datatype": "FP32", "shape": [1], "data": ["nan"]}, b""), True),
        (({"name": "x", "datatype": "FP32", "shape": [1]}, b""), True),
        (({"name": "x", "datatype": "FP8", "shape": [1], "data": [1]}, b""), True),
    ],
)
def test_values_that_are_none_are_never_settled(wrong: tuple[dict[str, Any], bytes], is_answer: bool) -> None:
    """Bytes that do not fill the shape, datatypes that nobody knows."""
    if is_answer:
        assert spent(refused(OutputInvalid, N, wrong)) == {"inferences": 1, "tokens": 7}
    else:
        with pytest.raises(NoInferenceAnswer):
            read(N, wrong)


def test_what_came_as_json_is_read_as_strictly() -> None:
    """Some servers of the protocol have no binary tensors."""
    got = read(N, ({"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [[1, 2**53 + 1]]}, b""))
    assert got.outputs[0].data == [1, 2**53 + 1]


def test_an_output_in_shared_memory_says_where() -> None:
    """Its values are not in the answer."""
    got = read(N, ({"name": "x", "datatype": "FP32", "shape": [1, 2]}, b""), wanted={"x": IN_MEMORY})
    assert got.outputs[0].model_dump() == {
        "name": "x",
        "datatype": "FP32",
        "shape": [1, 2],
        "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": 4},
        "data": None,
    }


def test_texts_are_base64_where_one_is_no_utf8() -> None:
    """All of the tensor's, and its parameters say so."""
    plain, other = output("a", "BYTES", [2], texts(b"x", b"\xc3\xa9")), output("b", "BYTES", [2], texts(b"x", b"\xff"))
    got = read(N, plain, other, wanted={"a": PLAIN, "b": PLAIN})
    assert [(each.parameters, each.data) for each in got.outputs] == [
        ({}, ["x", "é"]),
        ({"content_type": "base64"}, ["eA==", "/w=="]),
    ]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_the_size_of_a_result_is_that_of_its_json(counts: list[int]) -> None:
    """At the limit it is settled, one byte over it is not, though its tensors are much smaller."""
    names = [f"o{index}" for index in range(len(counts))]
    outputs = [
        output(name, "FP64", [n], struct.pack(f"<{n}d", *[1 / 3] * n)) for name, n in zip(names, counts, strict=True)
    ]
    wanted = dict.fromkeys(names, PLAIN)
    got = read(*outputs, wanted=wanted, usage={}, most=10_000)
    size = sum(len(each.model_dump_json()) for each in got.outputs)
    assert read(*outputs, wanted=wanted, usage={}, most=size) == got
    assert spent(refused(OutputInvalid, *outputs, wanted=wanted, usage={}, most=size - 1)) == {"inferences": 1}


def test_an_answer_to_another_request_is_never_settled() -> None:
    """Nor billed: it is another job's."""
    assert spent(refused(OutputInvalid, X, N, id="other")) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"<html>", b'{"error":"x"}', b'{"outputs":[]}'])
def test_what_is_no_inferences_answer_is_said_to_be_none(body: bytes) -> None:
    """A proxy's page, or an error with 200."""
    with pytest.raises(NoInferenceAnswer):
        read_tensors(Answer(200, body, None), {"x": PLAIN}, {}, request_id="id", max_result_bytes=9, all_needed=True)


def test_two_outputs_of_one_name_are_no_answer() -> None:
    """Which one would be billed?"""
    with pytest.raises(NoInferenceAnswer):
        read(X, N, N)


@given(st.binary(max_size=60), st.none() | st.text("0123456789-x", max_size=3))
def test_no_bytes_raise_anything_else(body: bytes, json_bytes: str | None) -> None:
    """Whatever comes, it is an answer or it is none."""
    head = json.dumps({"id": "id", "outputs": [N[0]]}).encode()
    for whole in (body, head + body):
        with contextlib.suppress(NoInferenceAnswer, JobError):
            read_tensors(
                Answer(200, whole, json_bytes), {"n": PLAIN}, {}, request_id="id", max_result_bytes=99, all_needed=True
            )
