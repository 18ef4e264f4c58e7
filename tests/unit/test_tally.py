"""The counters of a worker, and what is logged of each job."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tasks.delivery import DeadLetter, Duplicate, Outcome, Retry, Return
from tasks.errors import ConnectionLost, ErrorCode, ModelNotReady, RuntimeTimeout, RuntimeUnavailable
from tasks.reading import DeadLetterReason, JobIdentity
from tests.fakes import FakeClock
from tests.generating import ran
from tests.jobs import CLAIMED_AT_MS, MODEL, attempt, delivery, job_json, usage
from worker.clock import RedisClock
from worker.tally import Tally

IDENTITY = JobIdentity("j-1", MODEL, "f" * 32)
SETTLED, SETTLED_BEFORE, GONE = 1, 0, -1
COUNTERS = (
    *("succeeded_total", "failed_total", "retried_total", "returned_total"),
    *("dead_lettered_total", "duplicates_total", "claims_lost_total", "claims_reaped_total"),
)
SECRET = "a secret prompt"


@pytest.fixture
def tally() -> Tally:
    """A tally whose Redis clock stands at CLAIMED_AT_MS."""
    clock = RedisClock(FakeClock())
    clock.heard(CLAIMED_AT_MS)
    return Tally(clock)


def counts(tally: Tally) -> dict[str, int]:
    """Return the counters that are not 0."""
    return {name: getattr(tally, name) for name in COUNTERS if getattr(tally, name)}


FAILED = ran(of=delivery(job_json(max_tokens=0)))


@pytest.mark.parametrize(
    ("outcome", "word", "counted", "event"),
    [
        (ran(), SETTLED, "succeeded_total", "job.settled"),
        (FAILED, SETTLED, "failed_total", "job.settled"),
        (ran(), SETTLED_BEFORE, "duplicates_total", "job.was_settled_before"),
        (FAILED, SETTLED_BEFORE, "duplicates_total", "job.was_settled_before"),
        (ran(), GONE, "claims_lost_total", "claim.was_lost"),
        (Retry(IDENTITY, attempt(), 250, ConnectionLost()), 1, "retried_total", "job.delayed"),
        (Return(IDENTITY, ModelNotReady()), 1, "returned_total", "job.returned"),
        (None, 1, "returned_total", "job.returned"),
        (Retry(IDENTITY, attempt(), 250, ConnectionLost()), 0, "claims_lost_total", "claim.was_lost"),
        (DeadLetter(DeadLetterReason.NOT_JSON), 1, "dead_lettered_total", "job.dead_lettered"),
        (Duplicate(IDENTITY), 1, "duplicates_total", "job.was_dropped"),
    ],
)
def test_each_outcome_is_counted_once_and_logged_once(
    tally: Tally, outcome: Outcome | None, word: int, counted: str, event: str
) -> None:
    """With the model and the claim; of a prompt or a text nothing."""
    with capture_logs() as lines:
        tally.committed(delivery(tag="7.2"), outcome, word)
    assert counts(tally) == {counted: 1}
    (line,) = lines
    assert (line["event"], line["model"], line["tag"]) == (event, MODEL, "7.2")


def test_a_settlement_is_logged_with_its_usage_and_times(tally: Tally) -> None:
    """So that a log alone shows what was settled."""
    with capture_logs() as (lines):
        tally.committed(delivery(), ran(), SETTLED)
    (line,) = lines
    wanted: dict[str, Any] = {
        "job_id": "j-1",
        "status": "succeeded",
        "usage": {"prompt_tokens": 5, "completion_tokens": 32, "total_tokens": 37},
        "inference_ms": 840,
    }
    assert line.items() >= wanted.items()


def test_no_prompt_and_no_text_is_logged(tally: Tally) -> None:
    """Whatever the outcome."""
    of = delivery(job_json(prompt=SECRET))
    with capture_logs() as lines:
        for outcome in (ran(of=of), ran(ConnectionLost(), of=of), ran(ModelNotReady(), of=of), None):
            tally.committed(of, outcome, SETTLED)
    assert len(lines) == 4
    assert SECRET not in str(lines)
    assert "Hello to you too" not in str(lines)


def test_a_success_says_when_and_ends_the_failures_in_a_row(tally: Tally) -> None:
    """By Redis' clock."""
    tally.committed(delivery(), ran(RuntimeTimeout()), SETTLED)
    tally.committed(delivery(), ran(RuntimeTimeout()), SETTLED)
    assert tally.consecutive_failures == 2
    tally.committed(delivery(), ran(), SETTLED)
    assert tally.consecutive_failures == 0
    assert tally.last_success_at == "2026-11-30T10:00:00.000Z"


@pytest.mark.parametrize(
    ("outcome", "code", "in_a_row"),
    [
        (ran(RuntimeTimeout()), ErrorCode.RUNTIME_TIMEOUT, 1),
        (FAILED, ErrorCode.INVALID_JOB, 0),
        (Retry(IDENTITY, attempt(), 250, ConnectionLost()), ErrorCode.RUNTIME_CONNECTION_LOST, 1),
        (Return(IDENTITY, RuntimeUnavailable()), ErrorCode.RUNTIME_UNAVAILABLE, 1),
        (Return(IDENTITY, ModelNotReady()), ErrorCode.RUNTIME_UNAVAILABLE, 0),
    ],
)
def test_a_failure_is_remembered_and_counts_where_its_code_counts(
    tally: Tally, outcome: Outcome, code: ErrorCode, in_a_row: int
) -> None:
    """A job's own fault is no failure of the worker's runtime."""
    tally.committed(delivery(), outcome, SETTLED)
    assert (tally.last_error_code, tally.last_error_at) == (code, "2026-11-30T10:00:00.000Z")
    assert tally.consecutive_failures == in_a_row


def test_a_settlement_that_changed_nothing_changes_no_other_figure(tally: Tally) -> None:
    """Somebody else has counted that job."""
    tally.committed(delivery(), ran(RuntimeTimeout()), SETTLED_BEFORE)
    tally.committed(delivery(), ran(), GONE)
    assert (tally.last_error_code, tally.last_success_at, tally.consecutive_failures) == (None, None, 0)


@pytest.mark.parametrize(
    ("outcome", "word", "wasted"),
    [
        (ran(), SETTLED, 0),
        (ran(), SETTLED_BEFORE, 37),
        (ran(), GONE, 37),
        (FAILED, GONE, 0),
        (Retry(IDENTITY, attempt(spent=usage(5, 3)), 250, ConnectionLost()), 1, 8),
        (Retry(IDENTITY, attempt(spent=usage(5, 3)), 250, ConnectionLost()), 0, 8),
        (Retry(IDENTITY, attempt(), 250, ConnectionLost()), 1, 0),
        (Return(IDENTITY, ModelNotReady()), 1, 0),
        (None, 1, 0),
    ],
)
def test_tokens_that_were_spent_for_nothing_are_counted(
    tally: Tally, outcome: Outcome | None, word: int, wasted: int
) -> None:
    """Those of attempts of which nothing was settled, where Triton said how many."""
    tally.committed(delivery(), outcome, word)
    assert tally.wasted_tokens_total == wasted


def test_the_jobs_of_dead_runs_are_counted(tally: Tally) -> None:
    """As many as went back."""
    for jobs in (3, 0, 4):
        tally.reaped(jobs)
    assert counts(tally) == {"claims_reaped_total": 7}
