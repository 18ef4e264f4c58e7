"""The job's type: what each field takes, and that nothing is read as something else."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.job import GenerateJob
from tests.jobs import LEFT_OUT, TRACEPARENT, full_job_content, job, job_content

ZERO_TRACE = f"00-{'0' * 32}-00f067aa0ba902b7-01"
ZERO_PARENT = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01"

TAKEN: dict[str, tuple[Any, ...]] = {
    "job_id": ("j", "j" * 128, "a.B_c:d-1", "-", "."),
    "model": ("m", "m" * 200, "acme/model-1", "a/b/c", "/", "a.b.c"),
    "prompt": ("x", " ", "\n", "\0", "😀", "x" * 100_000),
    "max_tokens": (1, 2**31 - 1),
    "parameters": ({}, {"a": None}, {"": 0}, {"a": [1, 2.5, "x", True, {"b": []}]}, {"big": 10**400}),
    "stream": (False, LEFT_OUT),
    "expires_at": (None, "2026-11-30T10:00:00Z", "2026-11-30t10:00:00.5z", "2026-11-30T12:00:00+02:00"),
    "tenant": (None, "", "t" * 200, "😀" * 200),
    "batch_id": (None, "b"),
    "custom_id": (None, "c"),
    "metadata": ({}, {"": ""}, {str(n): "v" for n in range(16)}, {"a": "v" * 4095}, {"é": "v" * 4094}),
    "enqueued_at": (None, "2026-11-30T10:00:00Z"),
    "traceparent": (None, TRACEPARENT, TRACEPARENT.replace("00-", "cc-", 1)),
    "version": (1, LEFT_OUT),
}

NO_STRING = (1, 1.0, True, b"x", ["x"], {"x": 1})
NO_TIME = (*NO_STRING, "", "now", "2026-11-30", "2026-11-30 10:00:00Z", "2026-11-30T10:00:00", "1796032800")
REFUSED: dict[str, tuple[Any, ...]] = {
    "job_id": (*NO_STRING, None, LEFT_OUT, "", "j" * 129, "a b", "a/b", "j\n", "\nj", "é", "١"),
    "model": (*NO_STRING, None, LEFT_OUT, "", "m" * 201, "a:b", "a b", "..", "a/../b", "m\n", "é"),
    "prompt": (*NO_STRING, None, LEFT_OUT, ""),
    "max_tokens": (None, LEFT_OUT, 0, -1, 2**31, "4", 4.0, 4.5, True, False, math.nan, math.inf, 1e400, [4], b"4"),
    "parameters": (None, [], "x", 1, {1: 2}, {"a": math.nan}, {"a": [math.inf]}, {"a": {"b": -math.inf}}, {"a": b"x"}),
    "stream": (True, None, 0, 0.0, "", "false", "true"),
    "expires_at": NO_TIME,
    "tenant": (*NO_STRING, "t" * 201),
    "batch_id": (*NO_STRING, "b" * 201),
    "custom_id": (*NO_STRING, "c" * 201),
    "metadata": (
        *(None, [], "x", {"a": 1}, {"a": None}, {"a": True}, {1: "a"}, {"a": {"b": "c"}}),
        *({str(n): "v" for n in range(17)}, {"a": "v" * 4096}, {"é": "v" * 4095}),
    ),
    "enqueued_at": NO_TIME,
    "traceparent": (
        *(*NO_STRING, "", "x", TRACEPARENT.upper(), TRACEPARENT + "-00", TRACEPARENT + "\n", TRACEPARENT[:-1]),
        *(ZERO_TRACE, ZERO_PARENT, TRACEPARENT.replace("00-", "ff-", 1), TRACEPARENT.replace("-", "_")),
    ),
    "version": (None, 0, 2, -1, "1", 1.0, True, [1]),
}


def test_the_tables_leave_no_field_out() -> None:
    """Each field of a job stands in both tables."""
    assert set(TAKEN) == set(REFUSED) == set(GenerateJob.model_fields)


@pytest.mark.parametrize("field", TAKEN)
def test_what_the_contract_allows_is_taken(field: str) -> None:
    """A value within the contract is taken, and a string or number stays what it was."""
    for value in TAKEN[field]:
        taken = getattr(job(**{field: value}), field)
        if field not in ("expires_at", "enqueued_at") and value is not LEFT_OUT:
            assert taken == value


@pytest.mark.parametrize("field", REFUSED)
def test_what_the_contract_does_not_allow_is_refused(field: str) -> None:
    """A value of another type, form or size is refused for that field; nothing is converted, cut or rounded."""
    for value in REFUSED[field]:
        assert refused_fields(job_content(**{field: value})) == {field}, value


def refused_fields(content: dict[str, Any]) -> set[Any]:
    """The fields that are refused in it."""
    try:
        GenerateJob.model_validate(content)
    except ValidationError as refused:
        return {problem["loc"][0] for problem in refused.errors()}
    return set()


@pytest.mark.parametrize("name", ["surprise", "Prompt", "job-id", "", "inputs"])
def test_a_field_that_no_job_has_is_refused(name: str) -> None:
    """A misspelt field must not be dropped without a word."""
    with pytest.raises(ValidationError):
        GenerateJob.model_validate(job_content(**{name: 1}))


def test_what_is_left_out_has_a_default() -> None:
    """Only four fields are required."""
    least = job()
    assert (least.parameters, least.metadata, least.stream, least.version) == ({}, {}, False, 1)
    assert {least.expires_at, least.tenant, least.batch_id, least.custom_id, least.enqueued_at, least.traceparent} == {
        None
    }


def test_times_are_read_into_utc() -> None:
    """Whatever its offset, a time becomes the moment it means."""
    read = GenerateJob.model_validate(full_job_content(expires_at="2026-11-30T12:30:00.25+02:30"))
    assert read.expires_at == datetime(2026, 11, 30, 10, 0, 0, 250_000, tzinfo=UTC)
    assert read.expires_at.tzinfo is UTC


def test_a_job_cannot_be_changed() -> None:
    """What was validated stays what it is."""
    with pytest.raises(ValidationError):
        job().prompt = "Another"  # type: ignore[misc]  # that it is refused at run time too is the point
