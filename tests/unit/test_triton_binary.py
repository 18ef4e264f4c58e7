"""Binary tensors by hand: what is sent is what tritonclient would send, and what is read is what it would read."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import triton_to_np_dtype

from worker.triton import binary
from worker.triton.binary import binary_slot, outputs_field, read_answer, request_body
from worker.triton.codec import InferenceAnswer, NoInferenceAnswer, Output, decode_answer
from worker.triton.model_contract import TensorPlan
from worker.triton.values import DATATYPES, INTEGER_RANGES, DoesNotFit, fitted_all

NAMES = ("text", "n")


def values_of(datatype: str) -> st.SearchStrategy[Any]:
    """Values that the datatype holds."""
    if datatype == "BYTES":
        return st.text(st.characters(codec="utf-8")).map(str.encode)
    if datatype == "BOOL":
        return st.booleans()
    if datatype in INTEGER_RANGES:
        return st.integers(*INTEGER_RANGES[datatype])
    largest = {"FP16": 65504.0, "BF16": 3.3e38, "FP32": 3.4e38, "FP64": 1e308}[datatype]
    return st.floats(-largest, largest)


def test_a_request_is_json_then_binary_tensors() -> None:
    """The prompt's bytes go as they are, with their length before them; the outputs are asked for in binary."""
    prompt = binary_slot(TensorPlan("text_input", "BYTES", (1, 1)))((b"a\x00\xff",))
    number = binary_slot(TensorPlan("n", "INT32", (1, 1)))((7,))
    body, json_bytes = request_body([prompt, number], outputs_field(["text_output"]), "j/1")
    assert json.loads(body[:json_bytes]) == {
        "id": "j/1",
        "inputs": [
            {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 7}},
            {"name": "n", "shape": [1, 1], "datatype": "INT32", "parameters": {"binary_data_size": 4}},
        ],
        "outputs": [{"name": "text_output", "parameters": {"binary_data": True}}],
    }
    assert body[json_bytes:] == b"\x03\x00\x00\x00a\x00\xff" + b"\x07\x00\x00\x00"


@pytest.mark.parametrize(
    ("datatype", "value", "raw"),
    [
        ("BOOL", True, b"\x01"),
        ("INT8", -1, b"\xff"),
        ("UINT64", 2**64 - 1, b"\xff" * 8),
        ("FP16", 1.0, b"\x00\x3c"),
        ("BF16", 1.0, b"\x80\x3f"),
        ("FP32", 1.0, b"\x00\x00\x80\x3f"),
        ("FP64", 1.0, b"\x00\x00\x00\x00\x00\x00\xf0\x3f"),
        ("BYTES", b"", b"\x00\x00\x00\x00"),
    ],
)
def test_each_datatype_is_sent_in_its_own_bytes(datatype: str, value: Any, raw: bytes) -> None:
    """Little-endian and exact."""
    assert binary_slot(TensorPlan("x", datatype, (1,)))((value,)).raw == raw


@given(st.data(), st.sampled_from(sorted(DATATYPES)), st.booleans(), st.text(max_size=8))
def test_a_request_is_what_tritonclient_makes_of_it(data: st.DataObject, datatype: str, one: bool, name: str) -> None:
    """Each datatype, alone and in lists, to the last byte; the JSON says the same."""
    values = data.draw(st.lists(values_of(datatype), min_size=1, max_size=1 if one else 5))
    shape = (1, 1) if one else (1, -1)
    body, json_bytes = request_body(
        [binary_slot(TensorPlan(name, datatype, shape))(values)], outputs_field(["text"]), "job/1"
    )
    tensor = InferInput(name, [1, len(values)], datatype)
    tensor.set_data_from_numpy(np.array([values], dtype=triton_to_np_dtype(datatype)), binary_data=True)
    theirs, their_json_bytes = InferenceServerClient.generate_request_body(
        [tensor], outputs=[InferRequestedOutput("text", binary_data=True)], request_id="job/1"
    )
    assert json.loads(body[:json_bytes]) == json.loads(theirs[:their_json_bytes])
    assert body[json_bytes:] == theirs[their_json_bytes:]


def test_several_inputs_stand_in_the_order_of_their_bytes() -> None:
    """The JSON's inputs and the bytes behind it go together."""
    slots = [binary_slot(TensorPlan("a", "BYTES", (1,))), binary_slot(TensorPlan("b", "INT32", (-1,)))]
    body, json_bytes = request_body([slots[0]((b"x",)), slots[1]((1, 2))], outputs_field([]), 'quoted "id"')
    content = json.loads(body[:json_bytes])
    assert content["id"] == 'quoted "id"'
    assert [(each["name"], each["shape"], each["parameters"]) for each in content["inputs"]] == [
        ("a", [1], {"binary_data_size": 5}),
        ("b", [2], {"binary_data_size": 8}),
    ]
    assert body[json_bytes:] == b"\x01\x00\x00\x00x\x01\x00\x00\x00\x02\x00\x00\x00"


@pytest.mark.parametrize("values", [(), (1, 2), (1, 2, 3)])
def test_another_number_of_values_than_the_input_takes_is_refused(values: tuple[int, ...]) -> None:
    """Nothing is padded or cut."""
    with pytest.raises(DoesNotFit):
        binary_slot(TensorPlan("a", "INT32", (1, 1)))(values)


def test_an_input_of_two_values_takes_two() -> None:
    """Where one value does not fit, there is no slot for one."""
    slot = binary_slot(TensorPlan("pair", "INT32", (2,)))
    assert slot((1, 2)).raw == b"\x01\x00\x00\x00\x02\x00\x00\x00"
    with pytest.raises(DoesNotFit, match="takes 2 values"):
        slot((1,))


# Answers


def answer(*tensors: tuple[str, str, list[int], bytes], **changes: Any) -> tuple[bytes, str]:
    """An answer of binary tensors: name, datatype, shape, bytes."""
    outputs = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
        for name, datatype, shape, raw in tensors
    ]
    head = json.dumps({"id": "j/1", "model_version": "1", "outputs": outputs, **changes}).encode()
    return head + b"".join(raw for *_, raw in tensors), str(len(head))


def plainly(body: bytes, json_bytes: str) -> InferenceAnswer | None:
    """Read it without tritonclient."""
    return binary._plain_answer(body, json_bytes, NAMES)


@pytest.mark.parametrize("shape", [[], [1], [1, 1], [1, 1, 1]])
def test_a_plain_answer_is_read_by_hand(shape: list[int]) -> None:
    """One value each, of whatever shape; other outputs may stand between."""
    got = plainly(
        *answer(
            ("text", "BYTES", shape, b"\x02\x00\x00\x00\xffz"),
            ("logits", "FP32", [2], b"\x00" * 8),
            ("n", "UINT16", shape, b"\x01\x01"),
        )
    )
    assert got == InferenceAnswer("j/1", "1", {"text": Output("BYTES", 1, b"\xffz"), "n": Output("UINT16", 1, 257)})


ODD = {
    "two values": answer(("n", "INT32", [2], b"\x00" * 8)),
    "no value": answer(("n", "INT32", [0], b"")),
    "two texts": answer(("text", "BYTES", [2], b"\x01\x00\x00\x00a\x01\x00\x00\x00b")),
    "boolean": answer(("n", "BOOL", [1], b"\x01")),
    "a datatype that is none": answer(("n", "INT128", [1], b"\x01")),
    "too few bytes": answer(("n", "INT32", [1], b"\x01")),
    "a text longer than its bytes": answer(("text", "BYTES", [1], b"\x09\x00\x00\x00a")),
    "a text shorter than its bytes": answer(("text", "BYTES", [1], b"\x01\x00\x00\x00ab")),
    "a name twice": answer(("n", "INT32", [1], b"\x01\x00\x00\x00"), ("n", "INT32", [1], b"\x02\x00\x00\x00")),
    "no outputs": answer(outputs=None),
    "bytes behind the last output": (
        answer(("n", "INT8", [1], b"\x01"))[0] + b"\x00",
        answer(("n", "INT8", [1], b"\x01"))[1],
    ),
    "length that is none": (b"{}", "-5"),
    "length of two": (b"{}", "1, 2"),
}


@pytest.mark.parametrize(("body", "json_bytes"), ODD.values(), ids=ODD)
def test_what_is_odd_is_left_to_tritonclient(body: bytes, json_bytes: str) -> None:
    """What is not plain is not guessed at: the general parser says what it is worth, or that it is nothing."""
    assert plainly(body, json_bytes) is None
    assert outcome(read_answer, body, json_bytes) == outcome(decode_answer, body, json_bytes)


def outcome(read: Any, body: bytes, json_bytes: str | None) -> InferenceAnswer | None:
    """What is read of a body, None for nothing."""
    try:
        got: InferenceAnswer = read(body, json_bytes, NAMES)
    except NoInferenceAnswer:
        return None
    return got


_tensors = st.tuples(
    st.sampled_from([*NAMES, "other"]),
    st.sampled_from([*sorted(DATATYPES), "INT128"]),
    st.lists(st.integers(0, 2), max_size=3),
    st.binary(max_size=12) | st.binary(max_size=4).map(lambda text: len(text).to_bytes(4, "little") + text),
)


@given(st.lists(_tensors, max_size=3), st.data())
def test_an_answer_is_what_tritonclient_reads(
    tensors: list[tuple[str, str, list[int], bytes]], data: st.DataObject
) -> None:
    """Whatever is read by hand is read so by tritonclient too, of right, odd and mutilated answers."""
    body, json_bytes = answer(*tensors)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(body) - 1))
        body = body[:at] + data.draw(st.binary(max_size=2)) + body[at + 1 :]
    by_hand = plainly(body, json_bytes)
    if by_hand is not None:
        assert by_hand == outcome(decode_answer, body, json_bytes)


@given(values_of("BYTES"), st.sampled_from(sorted(INTEGER_RANGES)), st.data())
def test_what_can_be_sent_can_be_read(text: bytes, datatype: str, data: st.DataObject) -> None:
    """A text and a count of any integer datatype come back as they went."""
    count = data.draw(values_of(datatype))
    raw = binary_slot(TensorPlan("n", datatype, (1,)))(fitted_all(datatype, (count,))).raw
    text_raw = binary_slot(TensorPlan("text", "BYTES", (1,)))((text,)).raw
    got = plainly(*answer(("n", datatype, [1], raw), ("text", "BYTES", [1], text_raw)))
    assert got is not None
    assert got.outputs == {"n": Output(datatype, 1, count), "text": Output("BYTES", 1, text)}
