"""A configuration for a model that nobody described: told by its tensors, and never one that could not be settled."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.runtime import RuntimeConfig
from tests.unit.test_triton_contract import OUTPUTS, described
from worker.triton.comparing import compare
from worker.triton.roles import words_of
from worker.triton.suggesting import Suggestion, suggest
from worker.triton.tensor_contract import compare_tensors

STRING, INT32, BOOL, FP32 = "TYPE_STRING", "TYPE_INT32", "TYPE_BOOL", "TYPE_FP32"


def of(inputs: list[tuple[str, str]], outputs: list[tuple[str, str]], **other: Any) -> Suggestion:
    """A suggestion for a model of these tensors; a name that begins with ``?`` is optional."""
    made = [(name.lstrip("?"), datatype, [1], name.startswith("?")) for name, datatype in inputs]
    return suggest(described(inputs=made, outputs=[(name, datatype, [1]) for name, datatype in outputs], **other))


def test_the_defaults_need_no_words() -> None:
    """A model of the contract's names needs its own name alone; its parameters are mapped by theirs."""
    found = suggest(described())
    assert found.works
    assert found.fields == {
        "model_name": "lab",
        "options": {"temperature": "temperature", "seed": "seed", "stop": "stop"},
    }
    assert found.notes == ()


@pytest.mark.parametrize(
    ("inputs", "outputs", "fields"),
    [
        (
            [("prompt", STRING), ("max_new_tokens", INT32)],
            [("generated_text", STRING), ("input_tokens", INT32), ("output_tokens", INT32)],
            {
                "input_name": "prompt",
                "max_tokens_input_name": "max_new_tokens",
                "output_name": "generated_text",
                "prompt_tokens_output_name": "input_tokens",
                "completion_tokens_output_name": "output_tokens",
            },
        ),
        (
            [("INPUT_TEXT", STRING), ("?maxLength", INT32), ("?someSeed", INT32)],
            [("OUTPUT", STRING), ("numPromptTokens", INT32), ("numGeneratedTokens", INT32), ("finishReason", STRING)],
            {
                "input_name": "INPUT_TEXT",
                "max_tokens_input_name": "maxLength",
                "output_name": "OUTPUT",
                "prompt_tokens_output_name": "numPromptTokens",
                "completion_tokens_output_name": "numGeneratedTokens",
                "finish_reason_output_name": "finishReason",
            },
        ),
        (
            [("q", STRING), ("?sampling_params", STRING)],
            [("a", STRING), ("n_in", INT32), ("n_out", INT32)],
            {
                "input_name": "q",
                "max_tokens_input_name": None,
                "options_json_input": "sampling_params",
                "output_name": "a",
                "prompt_tokens_output_name": "n_in",
                "completion_tokens_output_name": "n_out",
            },
        ),
        (
            [("text_input", STRING), ("max_tokens", INT32), ("stream", BOOL), ("?return_token_counts", BOOL)],
            [("text_output", STRING), ("prompt_tokens", INT32), ("completion_tokens", INT32)],
            {"constants": {"stream": False, "return_token_counts": True}},
        ),
    ],
)
def test_tensors_are_told_by_their_names(
    inputs: list[tuple[str, str]], outputs: list[tuple[str, str]], fields: dict[str, Any]
) -> None:
    """In whatever way their words are written; it is said that they were guessed."""
    found = of(inputs, outputs)
    assert found.works, found.missing
    assert found.fields == {"model_name": "lab", **fields}
    assert found.notes == ("tensors were told apart by their names: try it with --probe",)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ([], "no token count of the prompt and none of the completion"),
        ([("completion_tokens", INT32)], "no token count of the prompt,"),
        ([("prompt_tokens", INT32)], "no token count of the completion,"),
        ([("prompt_tokens", FP32), ("completion_tokens", INT32)], "no token count of the prompt,"),
        (
            [("sequence_length", INT32), ("output_ids", INT32)],
            "no token count of the prompt and none of the completion",
        ),
        ([("cached_prompt_tokens", INT32), ("total_draft_tokens", INT32)], "of the prompt and none of the completion"),
    ],
)
def test_a_model_that_does_not_count_both_is_told_so(outputs: list[tuple[str, str]], words: str) -> None:
    """Whatever else it reports; a price for each inference may do instead."""
    found = of([("text_input", STRING), ("max_tokens", INT32)], [("text_output", STRING), *outputs])
    assert not found.works
    assert words in found.missing[0]
    assert any('"kind": "tensors"' in note for note in found.notes)


def test_what_a_model_requires_and_nobody_can_guess_is_named() -> None:
    """The rest is suggested all the same."""
    found = of([("text_input", STRING), ("max_tokens", INT32), ("tenant_no", INT32)], [(n, t) for n, t, _ in OUTPUTS])
    assert found.missing == (
        'constants.tenant_no is missing: the model requires this input: add "tenant_no": VALUE to constants',
    )


def test_a_preset_is_preferred_where_its_tensors_are() -> None:
    """Without those that an older version lacks, which are taken away by null."""
    inputs = [("text_input", STRING), ("max_tokens", INT32), ("?stop_words", STRING), ("?temperature", FP32)]
    inputs += [(f"?return_num_{side}_tokens", BOOL) for side in ("input", "output")]
    inputs += [("?exclude_input_in_output", BOOL), ("?stream", BOOL)]
    found = of(inputs, [("text_output", STRING), ("num_input_tokens", INT32), ("num_output_tokens", INT32)])
    assert found.works
    assert found.fields["preset"] == "tensorrt_llm"
    assert found.fields["constants"] == {"beam_width": None}
    assert set(found.fields["options"]) >= {"seed", "top_p"}
    assert set(found.fields["options"].values()) == {None}
    assert "stop" not in found.fields["options"]


def test_a_model_of_no_text_takes_tensors() -> None:
    """Its jobs are billed by the inference."""
    found = of([("image", FP32)], [("scores", FP32)])
    assert found.works
    assert found.fields == {"model_name": "lab", "kind": "tensors"}


@pytest.mark.parametrize(
    ("inputs", "outputs", "words"),
    [
        ([("image", FP32)], [("scores", FP32)], "it takes no text and it gives no text"),
        ([("audio", FP32)], [("text", STRING)], "it takes no text"),
        ([("a", STRING), ("b", STRING)], [("text", STRING)], "the prompt could not be told from the other inputs"),
        ([("prompt", STRING)], [("a", STRING), ("b", STRING)], "the text could not be told from the other outputs"),
        (
            [("INPUT_0", STRING), ("INPUT_1", "TYPE_UINT32"), ("INPUT_2", STRING), ("INPUT_3", STRING)],
            [("OUTPUT_0", STRING)],
            "the prompt could not be told from the other inputs: none is called like a limit of tokens, and no output like a count",
        ),
    ],
)
def test_a_text_that_cannot_be_told_is_not_called_missing(
    inputs: list[tuple[str, str]], outputs: list[tuple[str, str]], words: str
) -> None:
    """Whoever knows which tensor it is can name it; where there is none at all, that is said."""
    found = of(inputs, outputs)
    assert found.fields == {"model_name": "lab", "kind": "tensors"}
    assert found.notes == (f"{words}, so its jobs carry tensors",)


def test_words_are_found_however_they_are_written() -> None:
    """Underscores, hyphens, capitals and digits part them."""
    assert words_of("numInputTokens") == words_of("num_input_tokens") == words_of("NUM-INPUT-TOKENS2")


_tensors = st.tuples(
    st.sampled_from(
        ["text_input", "prompt", "max_tokens", "stream", "text_output", "n_in", "prompt_tokens", "id", "x"]
    ),
    st.sampled_from([STRING, INT32, BOOL, FP32, "TYPE_FP16", "TYPE_UINT64"]),
    st.lists(st.sampled_from([-1, 1, 2]), min_size=1, max_size=2),
)


@given(
    st.lists(st.tuples(_tensors, st.booleans()), max_size=5, unique_by=lambda each: each[0][0]),
    st.lists(_tensors, max_size=5, unique_by=lambda each: each[0]),
    st.booleans(),
    st.sampled_from([0, 8]),
)
def test_what_is_said_to_work_fits(inputs: list[Any], outputs: list[Any], decoupled: bool, batch: int) -> None:
    """Whatever the model: the suggestion is a configuration, and fits if it says so."""
    model = described(
        inputs=[(*tensor, optional) for tensor, optional in inputs],
        outputs=outputs,
        batch=batch,
        model_transaction_policy={"decoupled": decoupled},
    )
    found = suggest(model)
    config = RuntimeConfig.model_validate(dict(found.fields))
    report = (compare_tensors if config.kind == "tensors" else compare)("m", config, model)
    assert report.passed is found.works
