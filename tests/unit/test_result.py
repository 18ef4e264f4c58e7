"""The result's types: what may be settled, and what never may."""

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.errors import RULES, ErrorCode, ModelException
from tasks.result import Attempt, AttemptCode, ErrorBody, GenerateResult, Timings
from tasks.usage import Usage
from tests.jobs import LEFT_OUT, failed_result_content, result_content, usage


def parsed(content: dict[str, Any]) -> GenerateResult:
    """The result as a consumer reads it."""
    return GenerateResult.model_validate_json(json.dumps(content))


@pytest.mark.parametrize("content", [result_content(), failed_result_content()], ids=["succeeded", "failed"])
def test_a_result_goes_through_json_unchanged(content: dict[str, Any]) -> None:
    """What is written is what is read, all fields and their order included."""
    assert list(json.loads(parsed(content).model_dump_json()).items()) == list(content.items())


@pytest.mark.parametrize("name", list(GenerateResult.model_fields))
def test_every_field_is_always_there(name: str) -> None:
    """A consumer need not ask whether it is."""
    for content in (result_content, failed_result_content):
        with pytest.raises(ValidationError):
            parsed(content(**{name: LEFT_OUT}))


@pytest.mark.parametrize("model", [GenerateResult, Attempt, ErrorBody, Timings, Usage])
def test_readers_ignore_what_they_do_not_know(model: type[Any]) -> None:
    """A later worker may say more."""
    examples: dict[type[Any], dict[str, Any]] = {
        GenerateResult: result_content(),
        Attempt: result_content()["attempts"][0],
        ErrorBody: failed_result_content()["error"],
        Timings: result_content()["timings"],
        Usage: result_content()["usage"],
    }
    more = json.dumps({**examples[model], "more": {"than": ["known"]}})
    assert model.model_validate_json(more) == model.model_validate_json(json.dumps(examples[model]))


@pytest.mark.parametrize(
    "content",
    [
        result_content(text=None),
        result_content(usage=None),
        result_content(error=failed_result_content()["error"]),
        result_content(status="failed"),
        failed_result_content(error=None),
        failed_result_content(text=""),
        failed_result_content(text="Hello"),
        failed_result_content(status="succeeded"),
        result_content(status="cancelled"),
    ],
)
def test_success_has_text_and_usage_and_failure_an_error(content: dict[str, Any]) -> None:
    """Nothing between the two can be written or read."""
    with pytest.raises(ValidationError):
        parsed(content)


def test_an_empty_text_is_a_text() -> None:
    """A model may say nothing, and that is billed too."""
    assert parsed(result_content(text="")).text == ""


def test_a_failure_may_have_been_paid_for() -> None:
    """What the last attempt really spent."""
    assert parsed(failed_result_content(usage=result_content()["usage"])).usage == usage()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("version", version) for version in (2, 0, "1", True, 1.0, None)),
        *(("text", text) for text in (1, ["x"], {"x": 1})),
        *(("worker_id", text) for text in (None, 1)),
        *(("attempts", None), ("attempts", {}), ("attempts", [None]), ("attempts", ["x"])),
        *(("timings", None), ("timings", {}), ("timings", [1, 2, 3])),
        *(("metadata", None), ("metadata", []), ("metadata", {"a": 1})),
        *(
            ("finished_at", time)
            for time in (
                *(None, 1796032800, "", "2026-11-30T10:00:00Z", "2026-11-30T10:00:00.000+00:00", "2026-11-30"),
                *("2026-11-30T10:00:00.0000Z", "٢٠٢٦-11-30T10:00:00.000Z", "2026-11-30T10:00:00.000Z\n"),
            )
        ),
    ],
)
def test_a_field_of_another_type_is_refused(field: str, value: Any) -> None:
    """Nothing is converted."""
    with pytest.raises(ValidationError):
        parsed(result_content(**{field: value}))


@pytest.mark.parametrize("name", ["queued_ms", "pool_wait_ms", "inference_ms"])
@pytest.mark.parametrize("value", [-1, 1.0, "1", True])
def test_times_are_whole_milliseconds(name: str, value: Any) -> None:
    """Never negative."""
    with pytest.raises(ValidationError):
        Timings.model_validate({"queued_ms": None, "pool_wait_ms": None, "inference_ms": None, name: value})


@pytest.mark.parametrize(
    ("prompt", "completion", "total"),
    [
        *((0, 1, 1), (-1, 2, 1), (1, -1, 0), (1, 1, 3), (1, 1, 1)),
        *((None, 1, 1), (1, None, 1), (1, 1, None), ("1", 1, 2), (1, "1", 2), (1.0, 1, 2), (1, 1.0, 2), (1, 1, 2.0)),
        *((True, 1, 2), (1, True, 2), (1, False, 1)),
    ],
)
def test_usage_is_true_counts_and_their_sum(prompt: Any, completion: Any, total: Any) -> None:
    """At least 1 for the prompt, at least 0 for the text, integers, and a total that is right."""
    with pytest.raises(ValidationError):
        Usage.model_validate({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total})


@pytest.mark.parametrize(("prompt", "completion"), [(1, 0), (5, 32), (10**6, 10**6)])
def test_usage_makes_its_sum(prompt: int, completion: int) -> None:
    """Whoever has the counts need not add them."""
    assert Usage.of(prompt_tokens=prompt, completion_tokens=completion).total_tokens == prompt + completion


@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens", "total_tokens"])
def test_no_count_has_a_default(name: str) -> None:
    """A count that is not there is never 0."""
    content = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    del content[name]
    with pytest.raises(ValidationError):
        Usage.model_validate(content)


@pytest.mark.parametrize("code", [*ErrorCode, *AttemptCode, None])
def test_an_attempt_ends_with_any_code_or_none(code: ErrorCode | AttemptCode | None) -> None:
    """Those of results, and those that only an attempt can end with; each is read as what it was."""
    content = result_content()["attempts"][0] | {"code": code}
    assert Attempt.model_validate_json(json.dumps(content)).code is code


def test_an_attempt_ends_with_no_other_code() -> None:
    """A word that nobody knows is a fault of its writer."""
    with pytest.raises(ValidationError):
        Attempt.model_validate_json(json.dumps(result_content()["attempts"][0] | {"code": "lost"}))


@pytest.mark.parametrize("code", [*AttemptCode, "lost", None])
def test_a_job_fails_with_an_error_code(code: str | None) -> None:
    """What only an attempt can end with is no end of a job."""
    with pytest.raises(ValidationError):
        parsed(failed_result_content(error=failed_result_content()["error"] | {"code": code}))


def test_the_error_is_the_customers_view_of_the_failure() -> None:
    """The fixed sentence, and what follows from the code."""
    body = ErrorBody.of(ModelException(upstream_status=500))
    assert body.model_dump(mode="json") == {
        "code": "triton_inference_failed",
        "message": RULES[ErrorCode.TRITON_INFERENCE_FAILED].message,
        "retryable": False,
        "upstream_status": 500,
    }


def test_a_code_is_a_plain_string_outside() -> None:
    """As JSON, as a Redis argument and in a log line."""
    assert all(f"{code}" == code.value and re.fullmatch("[a-z_]+", code) for code in (*ErrorCode, *AttemptCode))


@pytest.mark.parametrize("model", [GenerateResult, Attempt, ErrorBody, Timings, Usage])
def test_what_is_settled_cannot_be_changed(model: type[Any]) -> None:
    """All of it is frozen."""
    assert model.model_config["frozen"] is True
    assert model.model_config["strict"] is True
