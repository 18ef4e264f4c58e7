"""What the metrics count of each job's end."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.delivery import DeadLetter, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import (
    ConnectionLost,
    ErrorCode,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    RuntimeTimeout,
    UsageUnavailable,
)
from tasks.generate import cancelled
from tasks.reading import DeadLetterReason, JobIdentity
from tasks.result import Attempt
from tests.generating import ran
from tests.jobs import MODEL, attempt, delivery, job_content, job_json, usage
from worker.metrics.counters import Counters
from worker.metrics.samples import Spread

IDENTITY = JobIdentity("j-1", MODEL, "f" * 32)
DONE, SETTLED_BEFORE, GONE = 1, 0, -1
OTHER = "acme/model-2"
FAILED_BEFORE = ran(of=delivery(job_json(max_tokens=0)))
"""The outcome of a job that is not valid, and so never ran."""


def series(counters: Counters) -> dict[str, float]:
    """Return every series that is not 0, by its name and the values of its labels; of a histogram how many it counted."""
    values = {
        " ".join([sample.family.name.removeprefix("speedinfer_"), *sample.labels]): (
            sum(sample.value.counts) if isinstance(sample.value, Spread) else sample.value
        )
        for sample in counters.samples()
    }
    return {name: value for name, value in values.items() if value}


def counted(outcome: Outcome | None, word: int = DONE, attempts: tuple[Attempt, ...] = ()) -> dict[str, float]:
    """Return what one outcome adds, without its model where that is the delivery's."""
    counters = Counters([MODEL, OTHER])
    counters.committed(delivery(attempts=attempts), outcome, word)
    return {name.replace(f" {MODEL}", ""): count for name, count in series(counters).items()}


RAN = {"inference_seconds": 1}


@pytest.mark.parametrize(
    ("outcome", "word", "adds"),
    [
        (
            ran(),
            DONE,
            {
                "jobs_total ok": 1,
                "tokens_total prompt": 5,
                "tokens_total completion": 32,
                "pool_wait_seconds": 1,
                **RAN,
            },
        ),
        (
            ran(UsageUnavailable()),
            DONE,
            {
                "jobs_total runtime_usage_unavailable": 1,
                "inference_errors_total runtime_usage_unavailable": 1,
                "pool_wait_seconds": 1,
                **RAN,
            },
        ),
        (FAILED_BEFORE, DONE, {"jobs_total invalid_job": 1}),
        (
            ran(),
            SETTLED_BEFORE,
            {"duplicates_dropped_total settlement": 1, "wasted_tokens_total": 37, **RAN},
        ),
        (ran(), GONE, {"claims_lost_total": 1, "wasted_tokens_total": 37, **RAN}),
        (FAILED_BEFORE, GONE, {"claims_lost_total": 1}),
        (
            Retry(IDENTITY, attempt(spent=usage(5, 3)), 250, ConnectionLost()),
            DONE,
            {
                "retries_total runtime_connection_lost": 1,
                "inference_errors_total runtime_connection_lost": 1,
                "wasted_tokens_total": 8,
                **RAN,
            },
        ),
        (
            Retry(IDENTITY, attempt(), 250, ModelCrashed()),
            0,
            {
                "claims_lost_total": 1,
                "inference_errors_total runtime_model_crashed": 1,
                **RAN,
            },
        ),
        (
            Return(IDENTITY, ModelNotReady()),
            DONE,
            {
                "claims_returned_total runtime_unavailable": 1,
                "inference_errors_total runtime_unavailable": 1,
            },
        ),
        (None, DONE, {"claims_returned_total none": 1}),
        (Duplicate(IDENTITY), DONE, {"duplicates_dropped_total job": 1}),
        (DeadLetter(DeadLetterReason.TOO_LARGE), DONE, {"dead_letters_total too_large": 1}),
    ],
)
def test_each_outcome_is_counted(outcome: Outcome | None, word: int, adds: dict[str, float]) -> None:
    """By model and code, with what it spent; a settlement that changed nothing is no job and no billed token."""
    assert counted(outcome, word) == adds


def test_tokens_of_a_failure_that_is_billed_are_counted() -> None:
    """A job that was cancelled while it ran is settled with what it spent."""
    settlement = ran()
    assert isinstance(settlement, Settlement)
    adds = counted(cancelled(settlement))
    assert adds["jobs_total job_cancelled"] == 1
    assert adds["tokens_total completion"] == 32
    assert "wasted_tokens_total" not in adds
    assert not any(name.startswith("inference_errors_total") for name in adds)


def test_attempts_of_earlier_deliveries_are_not_counted_again() -> None:
    """A job that failed once, elsewhere or here, and is settled now was one inference more; before a start, none."""
    before = (attempt(ErrorCode.RUNTIME_CONNECTION_LOST),)
    again = ran(of=delivery(attempts=before))
    assert counted(again, attempts=before)["inference_seconds"] == 1
    invalid = ran(of=delivery(job_json(max_tokens=0), attempts=before))
    assert "inference_seconds" not in counted(invalid, attempts=before)
    assert "wasted_tokens_total" not in counted(invalid, GONE, attempts=before)


def test_durations_fall_into_the_buckets_of_their_upper_bounds() -> None:
    """840 ms of inference are up to 1 s; the queue is timed where the job says when it was enqueued."""
    counters = Counters([MODEL])
    counters.committed(delivery(), ran(of=delivery(job_json(enqueued_at="2026-11-30T09:59:59.900Z"))), DONE)
    spreads = {s.family.name: (s.family, s.value) for s in counters.samples() if isinstance(s.value, Spread)}
    family, spread = spreads["speedinfer_inference_seconds"]
    assert spread.total_seconds == 0.84
    assert family.bounds[spread.counts.index(1)] == 1
    family, spread = spreads["speedinfer_queue_seconds"]
    assert (spread.total_seconds, family.bounds[spread.counts.index(1)]) == (0.1, 0.1)


def test_what_is_longer_than_every_bound_is_counted_too() -> None:
    """In the bucket without a bound."""
    counters = Counters([MODEL])
    long_ago = job_json(enqueued_at="2020-01-01T00:00:00Z")
    counters.committed(delivery(), ran(of=delivery(long_ago)), DONE)
    (spread,) = [s.value for s in counters.samples() if s.family.name == "speedinfer_queue_seconds"]
    assert isinstance(spread, Spread)
    assert spread.counts[-1] == sum(spread.counts) == 1


def test_the_runs_of_others_that_were_ended_are_counted() -> None:
    """Also those that held no job."""
    counters = Counters([MODEL])
    counters.reaped(3)
    counters.reaped(0)
    assert series(counters) == {"workers_declared_dead_total": 2, "claims_reaped_total": 3}


@given(
    st.fixed_dictionaries(
        {
            "model": st.text(max_size=20),
            "tenant": st.text(max_size=20),
            "metadata": st.dictionaries(st.text(), st.text()),
        }
    ),
    st.sampled_from([DONE, SETTLED_BEFORE, GONE]),
)
def test_labels_are_bounded_whatever_jobs_contain(content: dict[str, object], word: int) -> None:
    """A series exists for the models and codes that there are from the start, and none comes with a job."""
    counters = Counters([MODEL])
    before = {(sample.family.name, sample.labels) for sample in counters.samples()}
    of = delivery(json.dumps(job_content(**content)).encode())
    counters.committed(of, ran(of=of), word)
    counters.committed(delivery(queue_model=str(content["model"])), ran(RuntimeTimeout()), word)
    assert {(sample.family.name, sample.labels) for sample in counters.samples()} == before


@pytest.mark.parametrize("error", [ConnectionLost(), ModelCrashed(), ModelException(), ModelNotReady()])
def test_what_can_follow_from_an_error_is_there_from_the_start(error: JobError) -> None:
    """A rate cannot see the first event of a series that appears with it."""
    outcome = ran(error)
    counters = Counters([MODEL])
    before = {(sample.family.name, sample.labels) for sample in counters.samples()}
    counters.committed(delivery(), outcome, DONE)
    assert {name.partition(" ")[0] for name in series(counters)} & {"retries_total", "claims_returned_total"}
    assert {(sample.family.name, sample.labels) for sample in counters.samples()} == before


def test_counting_a_job_costs_microseconds() -> None:
    """It is done between two jobs, in the one thread that runs all of them."""
    counters, of, outcome = Counters([MODEL]), delivery(), ran()

    def microseconds() -> float:
        begun = time.thread_time()  # That of this thread alone: others may want the core too.
        for _ in range(1000):
            counters.committed(of, outcome, DONE)
        return (time.thread_time() - begun) * 1000

    assert min(microseconds() for _ in range(5)) < 20
