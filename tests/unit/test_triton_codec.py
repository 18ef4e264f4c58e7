"""Answers on the wire: what comes is an answer or is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.triton.codec import InferenceAnswer, NoInferenceAnswer, Output, decode_answer


def tensor(name: str, datatype: str, data: list[Any], shape: list[Any] | None = None) -> dict[str, Any]:
    """An output in JSON."""
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data}


def answer(*outputs: dict[str, Any], **changes: Any) -> bytes:
    """An answer in JSON alone."""
    return json.dumps({"id": "j/1", "model_version": "1", "outputs": list(outputs), **changes}).encode()


def test_an_answer_tells_its_request_and_its_outputs() -> None:
    """Only the outputs asked about are read; one of several values has none of its own."""
    body = answer(tensor("a", "INT64", [2**40]), tensor("b", "BYTES", ["x", "y"]), tensor("c", "FP32", [1.5]))
    assert decode_answer(body, None, ["a", "b", "nope"]) == InferenceAnswer(
        "j/1", "1", {"a": Output("INT64", 1, 2**40), "b": Output("BYTES", 2, None)}
    )


def test_binary_outputs_are_read() -> None:
    """The counts and the text come as bytes after the JSON."""
    head = json.dumps(
        {
            "id": "j",
            "outputs": [
                {"name": "t", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": 6}},
                {"name": "n", "datatype": "UINT16", "shape": [], "parameters": {"binary_data_size": 2}},
            ],
        }
    ).encode()
    got = decode_answer(head + b"\x02\x00\x00\x00\xffz" + b"\x01\x01", str(len(head)), ["t", "n"])
    assert got.outputs == {"t": Output("BYTES", 1, b"\xffz"), "n": Output("UINT16", 1, 257)}
    assert got.model_version is None


@pytest.mark.parametrize(
    ("body", "json_bytes"),
    [
        (b"", None),
        (b"<html></html>", None),
        (b'{"id":"j","outputs":[', None),
        (b"[]", None),
        (b"null", None),
        (b"7", None),
        (b"\xff\xfe", None),
        (answer({"name": "a"}), None),
        (answer(tensor("a", "INT32", [1], [2])), None),
        (answer(tensor("a", "INT32", [1], [10**30])), None),
        (answer(tensor("a", "INT32", [1], ["x"])), None),
        (answer(tensor("a", "INT32", [1]), tensor("a", "INT32", [2])), None),
        (answer(outputs=None), None),
        (answer(outputs=7), None),
        (answer(tensor("a", "INT32", [1])), "x"),
        (answer(tensor("a", "INT32", [1])), "-5"),
        (answer(tensor("a", "INT32", [1])), "1, 2"),
        (answer(tensor("a", "INT32", [1])), "3"),
        (answer({"name": "a", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 9}}), "107"),
        (b"[" * 1_000_000, None),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(body: bytes, json_bytes: str | None) -> None:
    """However an answer is malformed, that is all that is raised, and without a word of it."""
    with pytest.raises(NoInferenceAnswer) as caught:
        decode_answer(body, json_bytes, ["a"])
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("value", "read_as"),
    [(3.7, 3.7), (2**32 + 1, 2**32 + 1), (-(2**40), -(2**40)), (True, True), ("7", b"7"), (None, None), ({}, None)],
)
def test_a_number_in_json_is_never_made_to_fit(value: Any, read_as: Any) -> None:
    """What an output holds is judged as it came: neither cut to its datatype nor wrapped around."""
    got = decode_answer(answer(tensor("a", "INT32", [[value]], [1, 1])), None, ["a"]).outputs["a"]
    assert got == Output("INT32", 1, read_as)
    assert type(got.value) is type(read_as)


def test_objects_without_outputs_are_empty_answers() -> None:
    """An object of other JSON has no request id, by which it is refused later."""
    assert decode_answer(b'{"error":"x"}', None, ["a"]) == InferenceAnswer(None, None, {})
    assert decode_answer(b"{}", None, ["a"]).request_id is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "outputs", "name", "datatype", "shape", "data", "parameters"]), inner)
    ),
    max_leaves=12,
)


@given(_json.map(lambda content: json.dumps(content).encode()) | st.binary(), st.none() | st.text(max_size=4))
def test_any_bytes_are_an_answer_or_none(body: bytes, json_bytes: str | None) -> None:
    """Nothing that a server may send gets past as another exception."""
    try:
        got = decode_answer(body, json_bytes, ["a"])
    except NoInferenceAnswer:
        return
    assert isinstance(got, InferenceAnswer)
