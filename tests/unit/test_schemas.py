"""The published schemas: up to date, as closed as the contract, and of one mind with the parser."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tasks import schemas
from tasks.entries import DeadLetterEntry, SettlementEntry
from tasks.reading import DeadLetterReason, ModelLimits, ValidJob, read_job
from tasks.result import GenerateResult
from tests.garbage import WRONG_JOBS
from tests.jobs import (
    LEFT_OUT,
    MAX_JOB_BYTES,
    MAX_PROMPT_BYTES,
    MODEL,
    TRACEPARENT,
    changed,
    failed_result_content,
    full_job_content,
    job_content,
    result_content,
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "schemas"
ANY_PARAMETER = ModelLimits(max_prompt_bytes=MAX_PROMPT_BYTES, parameters=None)

JOB, RESULT, SETTLEMENT, DEAD_LETTER = (
    Draft202012Validator(json.loads(schemas.rendered()[name]))
    for name in ("job.json", "result.json", "settlement.json", "dead-letter.json")
)

BEYOND_A_SCHEMA = {
    "a prompt of too many bytes": "bytes",
    "a prompt of few characters and too many bytes": "bytes",
    "metadata with too many bytes": "bytes",
    "max_tokens as a float": "4.0 is an integer to JSON Schema",
    "a parameter that is not mapped": "the model's configuration",
    "a parameter without a name": "the model's configuration",
    "an expiry that is no date": "the calendar",
    "another queue's model": "the queue",
    "the model in another case": "the queue",
    "a parameter beyond every float": "the size of floats",
}
"""The wrong jobs that a schema takes, and what it would have to know."""


def is_valid_job(content: Any, model: str = MODEL) -> bool:
    """What the worker says, of a model that takes any parameter."""
    raw = json.dumps(content).encode()
    return isinstance(read_job(raw, queue_model=model, limits=ANY_PARAMETER, max_job_bytes=MAX_JOB_BYTES), ValidJob)


def is_result(content: Any) -> bool:
    """What the type says."""
    try:
        GenerateResult.model_validate_json(json.dumps(content))
    except ValueError:
        return False
    return True


def test_the_files_are_up_to_date() -> None:
    """Run ``python -m tasks.schemas docs/schemas`` after a change of the types."""
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == schemas.rendered()


def test_the_command_writes_the_files(tmp_path: Path) -> None:
    """The one that the page names, into a folder that need not be there."""
    subprocess.run([sys.executable, "-m", "tasks.schemas", str(tmp_path / "new")], cwd=ROOT, check=True)
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new").iterdir()}
    assert written == schemas.rendered()


@pytest.mark.parametrize("name", schemas.PUBLISHED)
def test_a_schema_is_whole_and_described(name: str) -> None:
    """Valid by its dialect, plain, and with a word on every field."""
    schema = json.loads(schemas.rendered()[name])
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert "$id" not in schema
    assert schema["title"]
    assert schema["description"]
    for part in (schema, *schema.get("$defs", {}).values()):
        for field, described in part.get("properties", {}).items():
            assert described.get("description"), field


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every part of a schema that lists fields; a mapping of units is none."""
    if isinstance(schema, dict):
        is_mapping = isinstance(schema.get("additionalProperties"), dict)
        own = [schema] if "properties" in schema and "type" in schema and not is_mapping else []
        return own + [found for part in schema.values() for found in objects(part)]
    return [found for part in schema for found in objects(part)] if isinstance(schema, list) else []


def test_jobs_are_closed_and_what_is_read_is_open() -> None:
    """A worker refuses fields that it does not know; readers of its results skip those."""
    for name in schemas.PUBLISHED:
        closed = {part.get("additionalProperties", True) for part in objects(json.loads(schemas.rendered()[name]))}
        assert closed == ({False} if name.endswith("job.json") else {True})


@pytest.mark.parametrize("content", [job_content(), full_job_content()], ids=["least", "full"])
def test_valid_jobs_are_valid_to_both(content: dict[str, Any]) -> None:
    """The parser's and the schema's idea of a job."""
    assert is_valid_job(content)
    JOB.validate(content)


def test_wrong_jobs_are_wrong_to_the_schema() -> None:
    """As far as a schema can know."""
    assert {wrong.name for wrong in WRONG_JOBS if JOB.is_valid(json.loads(wrong.raw))} == set(BEYOND_A_SCHEMA)


TEXTS = st.sampled_from(
    ["", "j", "j-1", "j" * 128, "j" * 129, "a/b", "..", "a b", "4", "t" * 200, "t" * 201, MODEL, "é"]
)
TIMES = st.sampled_from(
    [
        *(
            "2026-11-30T10:00:00Z",
            "2026-11-30t10:00:00.123456789z",
            "2026-11-30T10:00:00+23:59",
            "2016-12-31T23:59:60Z",
        ),
        *("2026-11-30T24:00:00Z", "2026-11-30T10:00:00", "2026-11-30T10:00:00+02:60", "2026-11-30 10:00:00Z", "now"),
    ]
)
TRACES = st.sampled_from([TRACEPARENT, TRACEPARENT.upper(), f"00-{'0' * 32}-{'1' * 16}-00", f"ff{TRACEPARENT[2:]}"])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 4, 2**31 - 1, 2**31, 10**30, 0.5, 1e-300])
VALUES = st.one_of(
    *(st.none(), st.booleans(), NUMBERS, TEXTS, TIMES, TRACES),
    st.lists(st.none(), max_size=1),
    st.dictionaries(TEXTS, st.one_of(TEXTS, NUMBERS, st.none()), max_size=3),
    st.just({str(number): "v" for number in range(17)}),
)
"""Without what BEYOND_A_SCHEMA lists: the two have to agree on all of these."""


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from([*full_job_content(), "more"]), st.just(LEFT_OUT) | VALUES, max_size=2))
def test_schema_and_parser_agree_on_jobs(changes: dict[str, Any]) -> None:
    """Whatever is changed in a valid job, both take it or neither does."""
    content = changed(full_job_content(), changes)
    model = content.get("model")
    assert JOB.is_valid(content) == is_valid_job(content, model if isinstance(model, str) else MODEL)


@pytest.mark.parametrize("field", full_job_content())
def test_schema_and_parser_agree_on_each_field(field: str) -> None:
    """Every field, with a value of every type."""
    values: list[Any] = [None, True, False, 0, 1, "", "x", [], {}, LEFT_OUT]
    for value in values:
        content = full_job_content(**{field: value})
        model = "x" if field == "model" and value == "x" else MODEL
        assert JOB.is_valid(content) == is_valid_job(content, model), value


@settings(max_examples=100)
@given(
    st.sampled_from([result_content, failed_result_content]),
    st.dictionaries(st.sampled_from([*result_content(), "more"]), st.just(LEFT_OUT) | VALUES, max_size=2),
)
def test_schema_and_type_agree_on_results(content: Any, changes: dict[str, Any]) -> None:
    """Whatever is changed in a result, both take it or neither does."""
    assert RESULT.is_valid(content(**changes)) == is_result(content(**changes))


@pytest.mark.parametrize("usage_changes", [{"prompt_tokens": 0}, {"completion_tokens": -1}, {"total_tokens": None}])
def test_wrong_usage_is_wrong_to_both(usage_changes: dict[str, Any]) -> None:
    """Also in an attempt."""
    content = result_content()
    wrong = {**content["usage"], **usage_changes}
    for broken in ({**content, "usage": wrong}, {**content, "attempts": [{**content["attempts"][0], "usage": wrong}]}):
        assert not RESULT.is_valid(broken)
        assert not is_result(broken)


def test_entries_are_what_a_stream_holds() -> None:
    """Fields of texts; a dead letter's raw bytes may be none."""
    entry = {"job_id": "j-1", "status": "failed", "model": MODEL, "result": json.dumps(failed_result_content())}
    SETTLEMENT.validate({**entry, "more": "later"})
    assert json.loads(SettlementEntry.model_validate(entry).result)["status"] == "failed"
    assert not SETTLEMENT.is_valid({**entry, "status": "cancelled"})
    letter = {"queue": "q", "reason": "not_json", "raw": "x", "worker_id": "w", "at": "2026-11-30T10:00:00.000Z"}
    DEAD_LETTER.validate({**letter, "more": "later"})
    assert not DEAD_LETTER.is_valid({**letter, "reason": "no reason"})
    binary = {**letter, "raw": b"\xff\x00", "reason": DeadLetterReason.NOT_JSON}
    assert DeadLetterEntry.model_validate(binary).raw == b"\xff\x00"
