"""What the settings accept of a model of kind tensors."""

from typing import Any

import pytest

from settings.load import ConfigurationError, settings_from
from settings.schema import Settings


def tree(rules: Any = None, **runtime: Any) -> dict[str, Any]:
    """A configuration with one text model and one of tensors."""
    own = {"model_name": "echo", "kind": "tensors", **runtime, **({} if rules is None else {"tensors": rules})}
    return {
        "worker_id": "triton-01",
        "runtime_endpoint": "http://triton:8000",
        "supported_models": ["acme/text", "acme/tensors"],
        "runtime_config": {"model_name": "text_generation"},
        "models": {"acme/tensors": own},
    }


def problems_of(rules: Any = None, **runtime: Any) -> list[tuple[str, str]]:
    """Field and reason of what is refused."""
    with pytest.raises(ConfigurationError) as caught:
        settings_from(tree(rules, **runtime))
    return [(problem.field.removeprefix("models.acme/tensors."), problem.reason) for problem in caught.value.problems]


def rules_of(settings: Settings) -> Any:
    """The rules of the tensor model."""
    return settings.runtime_for("acme/tensors").tensors


def test_a_tensor_model_needs_no_rules() -> None:
    """Then a job is billed by request and may ask for nothing special."""
    settings = settings_from(tree())
    assert rules_of(settings).model_dump() == {
        "usage": {},
        "inference_parameters": (),
        "shared_memory_regions": (),
        "max_input_bytes": 16 << 20,
    }
    assert settings.runtime_for("acme/text").kind == "text"


def test_rules_are_kept_as_they_are_written() -> None:
    """And cannot be changed."""
    rules = {
        "usage": {"tokens": "n"},
        "inference_parameters": ["priority", "mode"],
        "shared_memory_regions": ["a b"],
        "max_input_bytes": 5,
    }
    kept = rules_of(settings_from(tree(rules)))
    assert (kept.usage, kept.inference_parameters) == ({"tokens": "n"}, ("priority", "mode"))
    assert (kept.shared_memory_regions, kept.max_input_bytes) == (("a b",), 5)
    with pytest.raises(TypeError):
        kept.usage["more"] = "m"


def test_rules_of_all_models_can_be_replaced_for_one() -> None:
    """As a whole, so that what one model allows is read in one place."""
    written = tree({"usage": {"tokens": "n"}})
    written["runtime_config"]["tensors"] = {"shared_memory_regions": ["everywhere"]}
    settings = settings_from(written)
    assert rules_of(settings).shared_memory_regions == ()
    assert settings.runtime_config.tensors.shared_memory_regions == ("everywhere",)


def test_what_is_inherited_for_texts_is_nothing_to_a_tensor_model() -> None:
    """The text models' way of asking may be any."""
    written = tree()
    written["runtime_config"] |= {"max_tokens_input_name": None, "options_json_input": "o", "constants": {"x": 1}}
    assert settings_from(written).runtime_for("acme/tensors").kind == "tensors"
    assert settings_from(tree(max_tokens_input_name=None)).runtime_for("acme/tensors").kind == "tensors"


@pytest.mark.parametrize(
    ("rules", "field", "words"),
    [
        ({"usage": {"inferences": "n"}}, "tensors.usage.inferences", "is counted by request"),
        ({"usage": {"a b": "n"}}, "tensors.usage.a b", "letters, digits"),
        ({"usage": {"a": ""}}, "tensors.usage.a", "printable characters"),
        ({"usage": ["n"]}, "tensors.usage", "must be a mapping"),
        ({"inference_parameters": ["binary_data_output"]}, "tensors.inference_parameters.0", "not a job's to set"),
        ({"inference_parameters": ["headers"]}, "tensors.inference_parameters.0", "not a job's to set"),
        ({"inference_parameters": ["triton_enable"]}, "tensors.inference_parameters.0", "not a job's to set"),
        ({"inference_parameters": ["sequence_id"]}, "tensors.inference_parameters.0", "in any order"),
        ({"inference_parameters": "mode"}, "tensors.inference_parameters", "must be a list"),
        ({"shared_memory_regions": [1]}, "tensors.shared_memory_regions.0", "must be text"),
        ({"max_input_bytes": 0}, "tensors.max_input_bytes", "greater than or equal to 1"),
        ({"max_input_byte": 1}, "tensors.max_input_byte", "there is no such field; did you mean max_input_bytes?"),
        (5, "tensors", "must be a mapping"),
    ],
)
def test_a_wrong_rule_is_refused_where_it_stands(rules: Any, field: str, words: str) -> None:
    """With its reason."""
    ((found, reason),) = problems_of(rules)
    assert found.removesuffix(".[key]") == field
    assert words in reason


def test_generate_has_no_tensors() -> None:
    """Also where it is inherited."""
    assert problems_of(transport="generate") == [
        ("transport", "has no tensors: a model of kind tensors takes infer"),
    ]
    written = tree()
    written["runtime_config"] |= {"preset": "vllm"}
    with pytest.raises(ConfigurationError, match="a model of kind tensors takes infer"):
        settings_from(written)
    written["models"]["acme/tensors"] |= {"transport": "infer"}
    assert settings_from(written).runtime_for("acme/tensors").transport == "infer"
