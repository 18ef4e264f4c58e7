"""What those are told who have to know how a job's inference ended."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from tasks.delivery import DeadLetter, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import ConnectionLost, InvalidJob, QueueFull
from tasks.reading import DeadLetterReason, JobIdentity
from tests.generating import ran
from tests.jobs import CLAIMED_AT_MS, MODEL, attempt, delivery
from worker.observation import Observation
from worker.observer import Observer

if TYPE_CHECKING:
    from worker.circuits import Circuits

IDENTITY = JobIdentity("j-1", MODEL, "f" * 32, tenant="acme")


@dataclass
class Told:
    """In place of the circuits: remembers what it was told."""

    seen: list[Observation] = field(default_factory=list)

    def observe(self, seen: Observation) -> None:
        """Take an observation."""
        self.seen.append(seen)


def observed(outcome: Outcome) -> list[Observation]:
    """Return what the circuits are told of an outcome."""
    told = Told()
    Observer(cast("Circuits", told)).observe(delivery(), outcome)
    return told.seen


@pytest.mark.parametrize("outcome", [DeadLetter(DeadLetterReason.NOT_JSON), Duplicate(IDENTITY)])
def test_what_is_no_job_says_nothing_of_its_model(outcome: Outcome) -> None:
    """It never came near it."""
    assert observed(outcome) == []


def test_a_success_tells_how_long_it_took() -> None:
    """And when it was claimed, by Redis' clock."""
    assert observed(ran()) == [Observation(MODEL, CLAIMED_AT_MS, None, None, 840)]


def test_a_failure_tells_what_and_whose() -> None:
    """The tenant, since one alone must not stop the others."""
    lost, full = ConnectionLost(), QueueFull()
    assert observed(Retry(IDENTITY, attempt(), 100, lost)) == [Observation(MODEL, CLAIMED_AT_MS, lost, "acme", 840)]
    assert observed(Return(IDENTITY, full)) == [Observation(MODEL, CLAIMED_AT_MS, full, "acme", None)]


def test_what_ended_without_a_run_has_no_time_of_its_own() -> None:
    """Its last attempt is an earlier one's."""
    outcome = ran(
        of=delivery(b'{"job_id":"j-1","model":"acme/model-1","prompt":"","max_tokens":1}', attempts=(attempt(),))
    )
    assert isinstance(outcome, Settlement)
    assert isinstance(outcome.error, InvalidJob)
    assert [one.inference_ms for one in observed(outcome)] == [None]


def test_a_fault_of_ours_says_where_it_was_and_not_what_it_said() -> None:
    """Its words may be the customer's."""
    with capture_logs() as lines:
        observed(ran(ValueError("a prompt")))
    (line,) = [line for line in lines if line["event"] == "job.hit_a_fault"]
    found: Any = line["at"]
    assert (line["exception"], line["job_id"], line["model"]) == ("ValueError", "j-1", MODEL)
    assert found[-1].endswith("infer")
    assert "a prompt" not in str(line)
