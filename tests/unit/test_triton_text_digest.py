"""What the jobs of one failed batch have in common is known by a digest of what the model said."""

import json

import pytest

from tasks.errors import JobError, ModelCrashed, ModelException
from worker.triton.failures import error_from_answer

RAISED = "Failed to process the request(s) for model 'lab_0_0', message: ValueError: no\n\nAt:\n  /models/lab/1/model.py(19): execute\n"


def digest(text: str, status: int = 500) -> str | None:
    """The digest of an answer that says this."""
    error = error_from_answer(status, json.dumps({"error": text}).encode())
    assert isinstance(error, ModelException)
    return error.text_digest


def test_the_jobs_of_a_batch_have_it_in_common() -> None:
    """Triton sends all of them the same text, behind the id of each."""
    assert digest(f"[request id: j-1/7.1] {RAISED}") == digest(f"[request id: j-2/7.2] {RAISED}") == digest(RAISED)


def test_another_exception_has_another() -> None:
    """So has the same of another line."""
    assert len({digest(RAISED), digest(RAISED.replace("no", "nay")), digest(RAISED.replace("(19)", "(20)"))}) == 3


def test_it_is_short_and_says_nothing() -> None:
    """However long the text."""
    found = digest(RAISED + "x" * 100_000 + "\udc80")
    assert found is not None
    assert len(found) == 16


def test_nothing_else_shows_it() -> None:
    """It is in no message and no log line."""
    error = error_from_answer(500, json.dumps({"error": RAISED}).encode())
    assert isinstance(error, ModelException)
    assert error.text_digest
    assert error.text_digest not in f"{error!r} {error} {error.message} {error.__cause__!r}"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": 7}'])
def test_an_answer_without_a_text_has_none(body: bytes) -> None:
    """It counts for itself."""
    assert getattr(error_from_answer(500, body), "text_digest", None) is None


def test_other_failures_have_none() -> None:
    """A dead process is no exception."""
    error: JobError = error_from_answer(500, json.dumps({"error": "Stub process 'm_0_0' is not healthy."}).encode())
    assert isinstance(error, ModelCrashed)
    assert not hasattr(error, "text_digest")
