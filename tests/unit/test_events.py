"""What Celery's events tell of a run: how it ended, and never what it was about."""

import json
from dataclasses import replace

import pytest

from tasks.delivery import DeadLetter, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import ConnectionLost, JobError, ModelNotReady
from tasks.reading import DeadLetterReason, JobIdentity
from tests.generating import ran
from tests.jobs import MODEL, attempt, delivery, job_json
from worker import events

IDENTITY = JobIdentity("j-1", "acme/echoed", "f" * 32)


def settled_with(error: JobError) -> Settlement:
    """A settlement that says this error; its result is none that is looked at."""
    outcome = ran()
    assert isinstance(outcome, Settlement)
    return replace(outcome, error=error)


@pytest.mark.parametrize(
    ("outcome", "kind", "says"),
    [
        (ran(), "task-succeeded", "settled"),
        (settled_with(ConnectionLost()), "task-failed", "runtime_connection_lost"),
        (Retry(IDENTITY, attempt(), 100, ConnectionLost()), "task-retried", "runtime_connection_lost"),
        (Return(IDENTITY, ModelNotReady()), "task-retried", "runtime_unavailable"),
        (DeadLetter(DeadLetterReason.NOT_JSON), "task-failed", "dead letter: not_json"),
        (Duplicate(IDENTITY), "task-rejected", False),
    ],
)
def test_each_outcome_has_its_event(outcome: Outcome, kind: str, says: object) -> None:
    """With the code of what went wrong."""
    told, fields = events.ended(outcome, 1.5)
    assert told == kind
    assert says in fields.values()


def test_a_run_is_named_by_its_job_and_told_without_its_content() -> None:
    """By its claim where the job's id is not known."""
    claimed = delivery(job_json(prompt="canary"), job_id="j-1", tag="3.1")
    assert events.name_of(claimed) == "j-1"
    assert events.name_of(replace(claimed, job_id=None)) == "3.1"
    told = events.received(claimed)
    assert told["queue"] == MODEL
    assert "canary" not in json.dumps(told)
