"""What goes to /generate and what comes back: JSON without datatypes, read by what it holds and never made to fit."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.triton.codec import InferenceAnswer, NoInferenceAnswer, Output
from worker.triton.generating import generate_body, json_slot, read_generated
from worker.triton.model_contract import TensorPlan
from worker.triton.values import DoesNotFit

NAMES = ("text_output", "n")


def sent(name: str, datatype: str, values: tuple[Any, ...], shape: tuple[int, ...] = (1, -1)) -> dict[str, Any]:
    """The body with one input."""
    body: dict[str, Any] = json.loads(generate_body([json_slot(TensorPlan(name, datatype, shape))(values)], "j/1"))
    return body


@pytest.mark.parametrize(
    ("datatype", "values", "content"),
    [
        ("BYTES", (b"x",), "x"),
        ("BYTES", ('a "b" \\ \x00 \N{SNOWMAN}'.encode(),), 'a "b" \\ \x00 \N{SNOWMAN}'),
        ("BYTES", (b"a", b"b"), ["a", "b"]),
        ("BOOL", (True,), True),
        ("INT32", (7,), 7),
        ("UINT64", (2**64 - 1,), 2**64 - 1),
        ("FP32", (1.0,), 1.0),
        ("FP32", (1e-9, 0.5), [1e-9, 0.5]),
    ],
)
def test_an_input_is_a_key_of_its_name(datatype: str, values: tuple[Any, ...], content: object) -> None:
    """One value alone, several as a list; an integer stays one, a float stays one."""
    body = sent('an "input"', datatype, values)
    assert body == {"id": "j/1", 'an "input"': content}
    assert type(body['an "input"']) is type(content)


def test_another_number_of_values_than_the_input_takes_is_refused() -> None:
    """Triton would make some shape of it."""
    with pytest.raises(DoesNotFit):
        sent("n", "INT32", (1, 2), (1, 1))


def answered(**content: Any) -> InferenceAnswer:
    """Read an answer."""
    whole = {"model_name": "m", "model_version": "1", "id": "j/1", **content}
    return read_generated(json.dumps(whole).encode(), NAMES)


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("hi", Output("BYTES", 1, b"hi")),
        ("", Output("BYTES", 1, b"")),
        (7, Output("INT64", 1, 7)),
        (-1, Output("INT64", 1, -1)),
        (2**64 - 1, Output("UINT64", 1, 2**64 - 1)),
        (7.0, Output("FP64", 1, 7.0)),
        (True, Output("BOOL", 1, True)),
        ([], Output("", 0, None)),
        ([1, 2], Output("", 2, None)),
        (["a", "b"], Output("", 2, None)),
    ],
)
def test_an_output_is_what_the_json_says_it_is(value: Any, output: Output) -> None:
    """A float is no integer even where it is a whole number, and a list is never one value."""
    assert answered(n=value).outputs == {"n": output}


def test_an_answer_tells_its_request_and_its_version() -> None:
    """What nobody asked about is not read."""
    got = answered(text_output="hi", n=1, other={"not": "read"})
    assert (got.request_id, got.model_version) == ("j/1", "1")
    assert set(got.outputs) == {"text_output", "n"}
    assert answered(id=7).request_id is None


def test_text_that_is_no_utf8_comes_back_as_it_was() -> None:
    """Triton writes such bytes into its JSON as they are."""
    body = b'{"model_name":"m","id":"j/1","text_output":"caf\xe9 \\"\xff","n":1}'
    assert read_generated(body, NAMES).outputs["text_output"] == Output("BYTES", 1, b'caf\xe9 "\xff')


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"<html></html>",
        b'{"error":"generate expects model to produce exactly 1 response"}',
        b'{"id":"j/1","text_output":"hi","n":1}',
        b'{"model_name":"m","text_output":',
        b'{"model_name":"m","n":{"a":1}}',
        b'{"model_name":"m","n":null}',
        b'{"model_name":"m","text_output":"\\ud800"}',
        b"[" * 1_000_000,
    ],
)
def test_what_is_no_answer_is_said_to_be_none(body: bytes) -> None:
    """An error that comes with 200 is none, and neither is another server's JSON."""
    with pytest.raises(NoInferenceAnswer) as caught:
        read_generated(body, NAMES)
    assert caught.value.__cause__ is None


@given(
    st.binary()
    | st.dictionaries(st.sampled_from([*NAMES, "model_name", "id"]), st.text() | st.integers()).map(
        lambda content: json.dumps(content).encode()
    )
)
def test_any_bytes_are_an_answer_or_none(body: bytes) -> None:
    """Nothing that a server may send gets past as another exception."""
    try:
        got = read_generated(body, NAMES)
    except NoInferenceAnswer:
        return
    assert isinstance(got, InferenceAnswer)
