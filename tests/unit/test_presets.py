"""A preset is a name for plain configuration: what is written wins over it, and nothing else hides behind it."""

from typing import Any, get_args

import pytest

from settings.load import ConfigurationError, settings_from
from settings.presets import PRESETS, PresetName
from settings.runtime import RuntimeConfig


def configured(**fields: Any) -> RuntimeConfig:
    """A configuration of the model ``lab``."""
    return RuntimeConfig.model_validate({"model_name": "lab", **fields})


def settings_of(runtime: dict[str, Any], **others: dict[str, Any]) -> Any:
    """Settings of the public names ``a``, and each that has fields of its own."""
    return settings_from(
        {
            "worker_id": "w",
            "runtime_endpoint": "http://triton:8000",
            "supported_models": ["a", *others],
            "runtime_config": {"model_name": "lab", **runtime},
            "models": others,
        }
    )


def reasons(runtime: dict[str, Any]) -> dict[str, str]:
    """Field and reason of everything that is refused."""
    with pytest.raises(ConfigurationError) as caught:
        settings_of(runtime)
    return {problem.field: problem.reason for problem in caught.value.problems}


def test_every_preset_has_its_name_and_fields() -> None:
    """The names that a file may hold are those that stand for something."""
    assert set(PRESETS) == set(get_args(PresetName))
    for fields in PRESETS.values():
        assert set(fields) <= set(RuntimeConfig.model_fields) - {"preset", "model_name"}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_the_same_as_its_fields_written_out(name: str) -> None:
    """Nothing but the fields depends on the name."""
    by_name = configured(preset=name)
    by_hand = configured(**PRESETS[name])  # type: ignore[index]  # the names are its keys
    assert by_name.model_dump(exclude={"preset"}) == by_hand.model_dump(exclude={"preset"})


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_asks_for_counts_that_are_true(name: str) -> None:
    """The prompt is in neither the text nor the completion's count, both counts are asked for, nothing is streamed."""
    constants = configured(preset=name).constants
    assert constants["exclude_input_in_output"] is True
    assert constants["return_num_input_tokens"] is True
    assert constants["return_num_output_tokens"] is True
    assert constants["stream"] is False


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_preset_lets_a_job_ask_for_several_texts(name: str) -> None:
    """What makes several texts of one job would make several counts, and none of them the job's."""
    parameters = configured(preset=name).parameters
    assert parameters is not None
    assert not parameters & {"n", "best_of", "num_return_sequences", "beam_width", "use_beam_search", "max_tokens"}
    assert {"temperature", "top_p", "top_k", "seed", "stop", "frequency_penalty", "presence_penalty"} <= parameters


def test_what_is_written_wins_over_the_preset() -> None:
    """Single fields replace the preset's; entries of a mapping are laid over it, and null takes one away."""
    config = configured(
        preset="tensorrt_llm",
        output_name="answer",
        timeout_seconds=9,
        constants={"beam_width": 2, "pad_id": 0, "stream": None},
        options={"seed": "random_seed", "min_tokens": None},
    )
    assert (config.output_name, config.timeout_seconds, config.input_name) == ("answer", 9, "text_input")
    assert (config.constants["beam_width"], config.constants["pad_id"]) == (2, 0)
    assert config.constants["return_num_input_tokens"] is True
    assert "stream" not in config.constants
    assert config.options["seed"] == "random_seed"
    assert config.options["top_k"] == "top_k"
    assert "min_tokens" not in config.options


def test_a_field_that_is_written_as_null_is_unset() -> None:
    """A preset's field may be taken away, where the model can do without."""
    assert configured(preset="vllm", finish_reason_output_name=None).finish_reason_output_name is None
    assert configured(preset="vllm", options_json_parameters=None).parameters is None


def test_a_model_of_another_kind_starts_from_its_own_preset() -> None:
    """It inherits what was written of time and size, and nothing of the others' tensors, written or from a preset."""
    settings = settings_of(
        {"timeout_seconds": 7, "output_name": "answer", "constants": {"extra": 1}},
        b={"preset": "tensorrt_llm", "model_name": "ensemble"},
        c={"preset": "vllm", "constants": {"own": 2}},
    )
    b, c = (settings.runtime_for(name) for name in "bc")
    assert (b.model_name, b.timeout_seconds, b.output_name) == ("ensemble", 7, "text_output")
    assert b.model_dump(exclude={"model_name", "timeout_seconds"}) == configured(
        preset="tensorrt_llm", timeout_seconds=7
    ).model_dump(exclude={"model_name", "timeout_seconds"})
    assert (c.output_name, c.options_json_input) == ("text_output", "sampling_parameters")
    assert c.constants == {**configured(preset="vllm").constants, "own": 2}


def test_a_model_of_the_same_kind_keeps_what_was_written_for_all() -> None:
    """With the same preset, or none of its own; a preset of null leaves what was written by hand."""
    settings = settings_of(
        {"preset": "vllm", "timeout_seconds": 7, "constants": {"extra": 1}},
        b={"model_name": "other"},
        c={"preset": None},
        d={"constants": {"extra": 2}},
        e={"preset": "vllm", "model_name": "another"},
    )
    b, c, d, e = (settings.runtime_for(name) for name in "bcde")
    assert (b.model_name, b.constants["extra"], b.options_json_input) == ("other", 1, "sampling_parameters")
    assert (c.prompt_tokens_output_name, c.constants) == ("prompt_tokens", {"extra": 1})
    assert (d.options_json_input, d.constants["extra"]) == ("sampling_parameters", 2)
    assert (e.model_name, e.constants["extra"], e.timeout_seconds) == ("another", 1, 7)


def test_what_is_refused_is_refused_beneath_a_preset_too() -> None:
    """A preset excuses nothing."""
    assert (
        "streaming is not supported"
        in reasons({"preset": "vllm", "constants": {"stream": True}})["runtime_config.constants.stream"]
    )
    assert reasons({"preset": "llama"}) == {"runtime_config.preset": "must be 'vllm' or 'tensorrt_llm'"}
    assert reasons({"preset": ["vllm"]}) == {"runtime_config.preset": "must be 'vllm' or 'tensorrt_llm'"}
    assert reasons({"preset": "vllm", "constants": 7}) == {
        "runtime_config.constants": "must be a mapping of names to values"
    }
    assert reasons({"preset": "vllm", "options_json_input": None}) == {
        "runtime_config.max_tokens_input_name": "may be null only where options_json_input is set",
        "runtime_config.options_json_parameters": "has no use without options_json_input",
    }


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"max_tokens": "INT32"}, "is no parameter: a job's own max_tokens goes there"),
        ({"stream": "BOOL"}, "streaming is not supported: no job may ask for it"),
        ({"seed": "INT"}, "must be 'BOOL'"),
        ({"a b": "INT32"}, "must be 1 to 100 letters"),
    ],
)
def test_parameters_of_the_json_input_are_checked(parameters: dict[str, str], reason: str) -> None:
    """Neither a field of the job nor a datatype that is none may be listed."""
    (found,) = reasons({"options_json_input": "sampling", "options_json_parameters": parameters}).values()
    assert found.startswith(reason)


def test_the_parameters_of_a_job_are_those_of_both_ways() -> None:
    """Some go into tensors of their own, some into the JSON input; None means that any may come."""
    assert configured().parameters == frozenset()
    assert configured(options={"seed": "seed"}).parameters == frozenset({"seed"})
    assert configured(options_json_input="sampling").parameters is None
    both = configured(
        options={"seed": "seed"}, options_json_input="sampling", options_json_parameters={"top_p": "FP32"}
    )
    assert both.parameters == frozenset({"seed", "top_p"})
