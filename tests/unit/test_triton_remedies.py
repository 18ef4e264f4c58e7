"""What does not fit comes with what to change; what fits may still be doubted for a habit that its model is known to have."""

from typing import Any

import pytest

from tests.unit.test_triton_contract import INPUTS, OUTPUTS, changed_input, described, report
from worker.triton.model_contract import Comparison

COUNTS = ("prompt_tokens", "completion_tokens")


def remedies(model: Any = None, **fields: Any) -> dict[str, str]:
    """What to change, by field."""
    return {each.field: each.remedy for each in report(model, **fields).mismatches}


def doubted(model: Any, **fields: Any) -> list[Comparison]:
    """The doubts about a configuration that fits."""
    found = report(model, **fields)
    assert found.passed, str(found)
    return [each for each in found.comparisons if each.is_doubt]


@pytest.mark.parametrize(
    ("fields", "field", "remedy"),
    [
        ({"output_name": "text_out"}, "output_name", "set output_name to text_output"),
        ({"output_name": "zzz"}, "output_name", "set output_name to one of text_output, why"),
        (
            {"prompt_tokens_output_name": "prompt_token"},
            "prompt_tokens_output_name",
            "set prompt_tokens_output_name to prompt_tokens",
        ),
        ({"max_tokens_input_name": "max_token"}, "max_tokens_input_name", "set max_tokens_input_name to max_tokens"),
        ({"options": {"seed": "sed"}}, "options.seed", "call it seed, or take it away"),
        ({"options": {"seed": "zzz"}}, "options.seed", "call it seed, or take it away"),
        ({"options": {"x": "zzz"}}, "options.x", "take it away"),
        ({"constants": {"flags": True}}, "constants.flags", "call it flag, or take it away"),
        ({"constants": {"seed": "x"}}, "constants.seed", "give it what fits UINT64 [1,1]"),
        ({"model_version": "3"}, "model_version", "set it to one of 1"),
    ],
)
def test_a_name_or_value_that_does_not_fit_comes_with_one_that_does(
    fields: dict[str, Any], field: str, remedy: str
) -> None:
    """The nearest name of the right datatype, or all that there are."""
    assert remedies(**fields)[field] == remedy


def test_a_model_without_counts_is_told_plainly() -> None:
    """No configuration helps: nothing could be settled."""
    outputs = [each for each in OUTPUTS if each[0] not in COUNTS]
    assert remedies(described(outputs=outputs)) == uncounted()


def uncounted() -> dict[str, str]:
    """What is said, by field, of a model that reports neither count."""
    return {
        f"{side}_tokens_output_name": (
            f"the model reports no token count of the {side} that can be told by its name: "
            "without one its jobs cannot be billed (runtime_usage_unavailable)"
        )
        for side in ("prompt", "completion")
    }


OF_SOMETHING_ELSE = ("kv_cache_reused_block", "total_draft_tokens", "sequence_index", "arrival_time_ns")


def with_counts(*names: str) -> Any:
    """A model of these integer outputs in the place of its counts."""
    others = [each for each in OUTPUTS if each[0] not in COUNTS]
    return described(outputs=[*others, *((name, "TYPE_INT32", [1]) for name in names)])


def test_nobody_is_told_to_bill_by_what_is_no_token_count() -> None:
    """Whatever integers the model reports beside; what is called like a count is offered for that count alone."""
    assert remedies(with_counts(*OF_SOMETHING_ELSE)) == uncounted()
    found = remedies(with_counts(*OF_SOMETHING_ELSE, "n_in"))
    assert found == {**uncounted(), "prompt_tokens_output_name": "set prompt_tokens_output_name to n_in"}
    found = remedies(with_counts("input_tokens", "n_in", "n_out"))
    assert found["completion_tokens_output_name"] == "set completion_tokens_output_name to n_out"


def test_a_count_of_another_datatype_is_not_replaced_by_the_other_one() -> None:
    """A prompt is not billed by its completion's tokens."""
    outputs = [(n, "TYPE_FP32" if n == "prompt_tokens" else t, d) for n, t, d in OUTPUTS]
    (doubt,) = doubted(described(outputs=outputs))
    assert doubt.remedy.startswith("let the model return it as an integer")


@pytest.mark.parametrize("name", OF_SOMETHING_ELSE)
@pytest.mark.parametrize("side", ["prompt", "completion"])
def test_a_count_that_is_called_like_something_else_is_doubted(side: str, name: str) -> None:
    """It fits, and every bill would be wrong."""
    field = f"{side}_tokens_output_name"
    (doubt,) = doubted(with_counts(*COUNTS, name), **{field: name})
    assert (doubt.field, doubt.configured, doubt.remedy) == (field, name, f"set {field} to {side}_tokens")
    other = next(each for each in OF_SOMETHING_ELSE if each != name)
    both = doubted(with_counts(name, other), **dict(zip(uncounted(), (name, other), strict=True)))
    assert {each.field: each.remedy for each in both} == uncounted()


@pytest.mark.parametrize(
    ("name", "datatype", "value"),
    [
        ("stream", "TYPE_BOOL", "false"),
        ("streaming", "TYPE_BOOL", "false"),
        ("return_num_input_tokens", "TYPE_BOOL", "true"),
        ("exclude_input_in_output", "TYPE_BOOL", "true"),
        ("beam_width", "TYPE_INT32", "1"),
        ("other", "TYPE_BOOL", "VALUE"),
        ("other", "TYPE_FP32", "VALUE"),
    ],
)
def test_a_required_input_comes_with_its_likely_value(name: str, datatype: str, value: str) -> None:
    """Where the name says what it must be for a job to be settled."""
    model = described(inputs=[*INPUTS, (name, datatype, [1], False)])
    assert remedies(model) == {f"constants.{name}": f'add "{name}": {value} to constants'}


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"input_name": "prompt"}, "set input_name to one of text_input, stop, sampling"),
        ({"input_name": "text"}, "set input_name to text_input"),
        ({"max_tokens_input_name": "max_new_tokens"}, "set max_tokens_input_name to max_tokens"),
        ({"max_tokens_input_name": "temperature"}, "set max_tokens_input_name to one of max_tokens, seed, pair"),
        ({"options_json_input": "sampling_parameters"}, "set options_json_input to sampling"),
    ],
)
def test_an_input_that_one_remedy_names_is_no_constant_of_another(fields: dict[str, Any], remedy: str) -> None:
    """Both could not be done; what else is missing is still said."""
    required = [(n, t, d, False if n == "sampling" and "options_json_input" in fields else o) for n, t, d, o in INPUTS]
    model = described(inputs=[*required, ("stream", "TYPE_BOOL", [1], False)])
    (field,) = fields
    assert remedies(model, **fields) == {field: remedy, "constants.stream": 'add "stream": false to constants'}


def test_an_input_that_is_to_be_a_constant_is_offered_for_nothing_else() -> None:
    """The number of beams is no limit of tokens."""
    model = described(inputs=[INPUTS[0], ("beam_width", "TYPE_INT32", [1], False), ("len", "TYPE_INT32", [1], False)])
    assert remedies(model, max_tokens_input_name="zzz") == {
        "max_tokens_input_name": "set max_tokens_input_name to len",
        "constants.beam_width": 'add "beam_width": 1 to constants',
    }


def test_a_model_that_takes_no_limit_is_told_plainly() -> None:
    """One JSON input may take it instead."""
    inputs = [each for each in INPUTS if each[1] not in {"TYPE_INT32", "TYPE_UINT64"}]
    assert remedies(described(inputs=inputs)) == {
        "max_tokens_input_name": (
            "the model has no integer input: set it to null and options_json_input to one that takes JSON"
        )
    }


def test_a_wrong_datatype_comes_with_a_right_one() -> None:
    """A limit that its tensor cannot hold, a transport that cannot run the model: each has its words."""
    model = described(inputs=changed_input("max_tokens", datatype="TYPE_FP32"))
    assert remedies(model) == {"max_tokens_input_name": "set max_tokens_input_name to one of seed, pair"}
    small = described(inputs=changed_input("max_tokens", datatype="TYPE_INT16"))
    assert remedies(small, max_tokens_limit=40_000) == {"max_tokens_limit": "set it to at most 32767"}
    decoupled = described(model_transaction_policy={"decoupled": True})
    assert remedies(decoupled, transport="infer") == {"transport": "set transport to auto or generate"}


def test_what_fits_has_no_remedy() -> None:
    """Words of what to change stand where something has to be changed."""
    assert [each.remedy for each in report().comparisons if each.remedy] == []


@pytest.mark.parametrize("name", ["exclude_input_in_output", "return_num_input_tokens", "return_num_output_tokens"])
def test_an_input_that_changes_text_or_counts_is_missed(name: str) -> None:
    """A model that has it and is not given it fits, and is doubted; given it, it is not."""
    model = described(inputs=[*INPUTS, (name, "TYPE_BOOL", [1], True)])
    (doubt,) = doubted(model)
    assert (doubt.field, doubt.remedy) == (f"constants.{name}", f'add "{name}": true to constants')
    assert doubted(model, constants={name: True}) == []
    assert len(doubted(model, constants={name: False})) == 1


def test_jobs_that_may_ask_for_several_texts_are_doubted() -> None:
    """An answer of several texts is none."""
    model = described(inputs=[*INPUTS, ("beam_width", "TYPE_INT32", [1], True)])
    assert [each.field for each in doubted(model, options={"beams": "beam_width"})] == ["options.beams"]
    assert doubted(model, constants={"beam_width": 1}) == []
