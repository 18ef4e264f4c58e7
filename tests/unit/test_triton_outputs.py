"""What an inference's answer is worth: one text and two counts, or the coded error; never a 0 that was not reported."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import OutputInvalid, UsageUnavailable
from tasks.usage import Usage
from worker.triton.codec import InferenceAnswer, Output
from worker.triton.outputs import INTEGER_DATATYPES, OutputNames, ReadGeneration, read_generation

NAMES: Final = OutputNames("text_output", "prompt_tokens", "completion_tokens")
WITH_REASON: Final = OutputNames("text_output", "prompt_tokens", "completion_tokens", "why")
ABSENT: Final = None


def one(datatype: str, value: Any) -> Output:
    """An output of one value."""
    return Output(datatype, 1, value)


def answer(request_id: str | None = "j/1", **changed: Output | None) -> InferenceAnswer:
    """A right answer with these outputs changed or ABSENT."""
    outputs = {
        "text_output": one("BYTES", b"hi"),
        "prompt_tokens": one("INT32", 3),
        "completion_tokens": one("INT32", 1),
        **changed,
    }
    return InferenceAnswer(request_id, "1", {name: output for name, output in outputs.items() if output is not None})


def read(of: InferenceAnswer, names: OutputNames = NAMES, max_result_bytes: int = 100) -> ReadGeneration:
    """Read it as the answer to request j/1."""
    return read_generation(of, names, request_id="j/1", max_result_bytes=max_result_bytes)


def test_a_right_answer_is_its_text_and_counts() -> None:
    """The generation holds what the runtime reported, and which version it was."""
    got = read(answer())
    assert got.generation.text == "hi"
    assert got.generation.usage == Usage(prompt_tokens=3, completion_tokens=1, total_tokens=4)
    assert got.generation.model_version == "1"
    assert got.generation.finish_reason is None
    assert not got.bytes_replaced


@pytest.mark.parametrize("datatype", sorted(INTEGER_DATATYPES))
def test_any_integer_datatype_will_do_for_a_count(datatype: str) -> None:
    """Models report counts in all of them, whatever they declare."""
    usage = read(answer(prompt_tokens=one(datatype, 5), completion_tokens=one(datatype, 0))).generation.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 0)


def test_the_largest_count_is_kept() -> None:
    """A UINT64 is not squeezed into fewer bits."""
    assert read(answer(completion_tokens=one("UINT64", 2**64 - 1))).generation.usage.completion_tokens == 2**64 - 1


WRONG_COUNTS: Final = {
    "absent": ABSENT,
    "two values": Output("INT32", 2, None),
    "no value": Output("INT32", 0, None),
    "float": one("FP32", 3.0),
    "double": one("FP64", 3.0),
    "text": one("BYTES", b"3"),
    "boolean": one("BOOL", True),
    "negative": one("INT32", -1),
    "unknown datatype": one("INT128", 3),
    "integer datatype without an integer": one("INT32", 3.0),
    "integer datatype with a boolean": one("INT32", True),
}


@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
@pytest.mark.parametrize("wrong", WRONG_COUNTS.values(), ids=WRONG_COUNTS)
def test_a_wrong_count_is_no_usage(name: str, wrong: Output | None) -> None:
    """Whatever is not one integer is runtime_usage_unavailable, with nothing spent on it."""
    with pytest.raises(UsageUnavailable) as caught:
        read(answer("j/1", **{name: wrong}))
    assert caught.value.usage is None


def test_a_prompt_of_no_tokens_is_no_usage() -> None:
    """A prompt is never empty, so its count is never 0; a completion's may be."""
    with pytest.raises(UsageUnavailable):
        read(answer(prompt_tokens=one("INT32", 0)))


WRONG_TEXTS: Final = {
    "absent": ABSENT,
    "two values": Output("BYTES", 2, None),
    "no value": Output("BYTES", 0, None),
    "integer": one("INT32", 7),
    "float": one("FP32", 0.5),
    "too large": one("BYTES", b"x" * 101),
}


@pytest.mark.parametrize("wrong", WRONG_TEXTS.values(), ids=WRONG_TEXTS)
def test_a_wrong_text_still_tells_what_was_spent(wrong: Output | None) -> None:
    """Whatever is not one text is runtime_output_invalid, and carries the valid counts."""
    with pytest.raises(OutputInvalid) as caught:
        read(answer(text_output=wrong))
    assert caught.value.usage == Usage(prompt_tokens=3, completion_tokens=1, total_tokens=4)


def test_a_wrong_text_with_a_wrong_count_tells_nothing() -> None:
    """No usage is made up for a failure either."""
    with pytest.raises(OutputInvalid) as caught:
        read(answer(text_output=ABSENT, prompt_tokens=one("INT32", -1)))
    assert caught.value.usage is None


@pytest.mark.parametrize("request_id", [None, "", "j/2", "J/1"])
def test_an_answer_to_another_request_is_refused(request_id: str | None) -> None:
    """Two customers' answers can never change places; what another request spent is not this one's."""
    with pytest.raises(OutputInvalid) as caught:
        read(answer(request_id))
    assert caught.value.usage is None


@pytest.mark.parametrize(
    ("raw", "text", "replaced"),
    [
        (b"caf\xc3\xa9", "café", False),
        (b"caf\xe9 \xff", "caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}", True),
        (b"a\x00b", "a\x00b", False),
        (b"", "", False),
        (b"\xed\xa0\x80", "\N{REPLACEMENT CHARACTER}" * 3, True),
        ("\N{REPLACEMENT CHARACTER}".encode(), "\N{REPLACEMENT CHARACTER}", False),
    ],
)
def test_text_is_utf8_with_the_rest_replaced(raw: bytes, text: str, replaced: bool) -> None:
    """Bytes that are no UTF-8 are replaced, and it is known that they were."""
    got = read(answer(text_output=one("BYTES", raw)))
    assert (got.generation.text, got.bytes_replaced) == (text, replaced)


def test_the_largest_text_is_kept() -> None:
    """A text of max_result_bytes is not too large."""
    assert len(read(answer(text_output=one("BYTES", b"x" * 100))).generation.text) == 100


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (one("BYTES", b"length"), "length"),
        (one("BYTES", b"\xff"), "\N{REPLACEMENT CHARACTER}"),
        (one("INT32", 1), None),
        (Output("BYTES", 2, None), None),
        (ABSENT, None),
    ],
)
def test_a_finish_reason_is_nice_to_have(output: Output | None, reason: str | None) -> None:
    """One that is absent or odd fails no job."""
    assert read(answer(why=output), WITH_REASON).generation.finish_reason == reason


def test_the_outputs_to_ask_for_are_those_configured() -> None:
    """Nothing is asked for that nobody reads."""
    assert NAMES.wanted == ("text_output", "prompt_tokens", "completion_tokens")
    assert WITH_REASON.wanted == (*NAMES.wanted, "why")


_outputs = st.builds(
    Output,
    st.sampled_from([*sorted(INTEGER_DATATYPES), "BOOL", "BYTES", "FP32", ""]),
    st.integers(0, 3),
    st.none() | st.integers() | st.booleans() | st.floats() | st.binary(),
)


@given(st.dictionaries(st.sampled_from(WITH_REASON.wanted), _outputs))
def test_whatever_comes_is_a_generation_or_a_coded_error(outputs: dict[str, Output]) -> None:
    """No combination of outputs raises anything else, and a generation always has true counts."""
    try:
        got = read(InferenceAnswer("j/1", None, outputs), WITH_REASON)
    except (OutputInvalid, UsageUnavailable):
        return
    assert got.generation.usage.prompt_tokens == outputs["prompt_tokens"].value
    assert got.generation.usage.completion_tokens == outputs["completion_tokens"].value
