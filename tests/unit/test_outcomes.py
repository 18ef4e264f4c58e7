"""What the ledger is asked to do for each outcome."""

import json

import pytest

from tasks import rfc3339
from tasks.delivery import DeadLetter, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import (
    ConnectionLost,
    InvalidJob,
    JobCancelled,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    QueueFull,
    RuntimeTimeout,
)
from tasks.reading import DeadLetterReason, JobIdentity
from tasks.result import Attempt, AttemptCode, GenerateResult
from tests.generating import ran, settled
from tests.jobs import CLAIMED_AT_MS, MODEL, attempt, delivery, job_json, usage
from worker import exchange
from worker.outcomes import AfterCommit, Done, as_commit, became_of, drained, follow_up, last_attempt

IDENTITY = JobIdentity("j-1", "acme/echoed", "f" * 32)


def test_a_settlement_carries_the_whole_result() -> None:
    """With what tells the job from another under its id."""
    outcome = ran()
    assert isinstance(outcome, Settlement)
    commit = as_commit(delivery(tag="7.2"), outcome)
    assert isinstance(commit, exchange.Settle)
    assert (commit.tag, commit.job_id, commit.model, commit.status) == ("7.2", "j-1", MODEL, "succeeded")
    assert commit.fingerprint == outcome.identity.fingerprint
    assert GenerateResult.model_validate_json(commit.result) == outcome.result


def test_a_failure_is_settled_as_failed() -> None:
    """Under the model that its result names."""
    outcome = ran(of=delivery(job_json(max_tokens=0)))
    commit = as_commit(delivery(), outcome)
    assert isinstance(commit, exchange.Settle)
    assert commit.status == "failed"
    assert json.loads(commit.result)["error"]["code"] == "invalid_job"
    assert json.loads(commit.result)["model"] == commit.model


def test_a_retry_carries_its_attempt() -> None:
    """As JSON, for the ledger of attempts; with how long it waits, and what it may still cost its pool."""
    commit = as_commit(delivery(tag="7.2"), Retry(IDENTITY, attempt(), 250, ConnectionLost()))
    assert commit == exchange.Retry(
        "7.2", "j-1", IDENTITY.fingerprint, 250, attempt().model_dump_json(), exchange.Run.ON
    )


@pytest.mark.parametrize(
    ("error", "run"),
    [
        (None, exchange.Run.OVER),
        (InvalidJob(), exchange.Run.UNSTARTED),
        (QueueFull(), exchange.Run.UNSTARTED),
        (ModelException(), exchange.Run.OVER),
        (ModelCrashed(), exchange.Run.OVER),
        (RuntimeTimeout(), exchange.Run.OVER),
        (RuntimeTimeout(upstream_status=504), exchange.Run.ON),
        (ConnectionLost(), exchange.Run.ON),
        (ConnectionLost(upstream_status=502), exchange.Run.ON),
    ],
)
def test_an_answer_that_was_lost_may_be_worked_on_still(error: JobError | None, run: exchange.Run) -> None:
    """Triton does not cancel: its slot stays taken. Our own timeout ends when the slot lapses by itself."""
    assert became_of(Settlement(IDENTITY, settled(ran()), error)) is run


def test_a_settlement_says_what_was_spent() -> None:
    """The true counts, and what its claim held, for the pool's tokens."""
    commit = as_commit(delivery(holds="pool acme/model-1 40 9 - -"), ran())
    assert isinstance(commit, exchange.Settle)
    assert (commit.holds, commit.run) == ("pool acme/model-1 40 9 - -", exchange.Run.OVER)
    assert (commit.spent, commit.prompt_tokens) == (usage().total_tokens, usage().prompt_tokens)


def test_a_return_needs_only_its_claim() -> None:
    """The claim knows the list that it came from."""
    assert as_commit(delivery(tag="7.2"), Return(IDENTITY, ModelNotReady())) == exchange.Return("7.2")


def test_a_dead_letter_says_why() -> None:
    """In the contract's word."""
    assert as_commit(delivery(tag="7.2"), DeadLetter(DeadLetterReason.NOT_JSON)) == exchange.Bury("7.2", "not_json")


@pytest.mark.parametrize(
    ("tag", "place"), [("1.1", (1, 1)), ("9.10", (9, 10)), ("10.9", (10, 9)), ("123456789.42", (123456789, 42))]
)
def test_a_claims_place_is_by_number_not_by_letter(tag: str, place: tuple[int, int]) -> None:
    """10 comes after 9."""
    assert exchange.Return(tag).place == place


def test_a_duplicate_is_dropped_by_its_job_id() -> None:
    """So that the script can look for the other one."""
    assert as_commit(delivery(tag="7.2"), Duplicate(IDENTITY)) == exchange.Drop("7.2", "j-1")


def test_a_settlement_heeds_a_cancellation_but_for_its_own() -> None:
    """The one that says that the job was cancelled is the last word."""
    commit = as_commit(delivery(), ran())
    assert isinstance(commit, exchange.Settle)
    assert commit.heed_cancel
    commit = as_commit(delivery(), ran(JobCancelled()))
    assert isinstance(commit, exchange.Settle)
    assert not commit.heed_cancel


def test_an_interrupted_attempt_says_since_when() -> None:
    """By Redis' clock; what it spent is not known."""
    assert drained(delivery(claimed_at_ms=CLAIMED_AT_MS + 1), "triton-01") == Attempt(
        worker_id="triton-01",
        started_at="2026-11-30T10:00:00.001Z",
        code=AttemptCode.DRAINED,
        inference_ms=None,
        usage=None,
    )


RETRY = Retry(IDENTITY, attempt(spent=usage(5, 3)), 250, ConnectionLost())


def done(outcome: Outcome | None) -> Done:
    """Return an outcome on its way."""
    commit = exchange.Return("1.1") if outcome is None else as_commit(delivery(), outcome)
    return Done(delivery(), outcome, commit)


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (ran(), 1),
        (ran(), 0),
        (RETRY, 1),
        (Return(IDENTITY, ModelNotReady()), 1),
        (Return(IDENTITY, ModelNotReady()), 0),
        (DeadLetter(DeadLetterReason.NOT_JSON), 1),
        (DeadLetter(DeadLetterReason.NOT_JSON), 0),
        (Duplicate(IDENTITY), 1),
        (Duplicate(IDENTITY), 0),
        (None, 1),
        (None, 0),
        (ran(of=delivery(job_json(max_tokens=0))), -1),
    ],
)
def test_most_words_are_the_last(outcome: Outcome | None, word: int) -> None:
    """Nothing follows from what was done, nor from what came too late and had spent nothing."""
    assert follow_up(done(outcome), word, "triton-01") == AfterCommit()


@pytest.mark.parametrize(
    "outcome", [ran(), ran(ConnectionLost(usage=usage(5, 3)), delivery(attempts=(attempt(),) * 2))]
)
def test_a_job_cancelled_meanwhile_is_settled_as_that(outcome: Outcome) -> None:
    """With the usage and the attempts that there were, and without a text."""
    before = settled(outcome)
    after = follow_up(done(outcome), 2, "triton-01")
    assert after.amend is None
    assert after.instead is not None
    result = settled(after.instead.outcome) if after.instead.outcome else None
    assert result is not None
    assert result.error is not None
    assert (result.error.code, result.text) == ("job_cancelled", None)
    assert (result.usage, result.attempts, result.timings) == (before.usage, before.attempts, before.timings)
    assert isinstance(after.instead.commit, exchange.Settle)
    assert not after.instead.commit.heed_cancel
    assert GenerateResult.model_validate_json(after.instead.commit.result) == result


def test_a_double_whose_other_is_gone_goes_back() -> None:
    """Uncounted, to be claimed as any job."""
    after = follow_up(done(Duplicate(IDENTITY)), 2, "triton-01")
    assert after == AfterCommit(instead=Done(delivery(), None, exchange.Return("1.1")))


@pytest.mark.parametrize(("outcome", "word"), [(ran(), -1), (RETRY, 0), (ran(JobCancelled(usage=usage())), -1)])
def test_what_came_too_late_corrects_the_ledger(outcome: Outcome, word: int) -> None:
    """Whoever took the claim away wrote the attempt down as lost: it ended, and this is what it spent."""
    spent = last_attempt(outcome)
    assert spent is not None
    lost = Attempt(
        worker_id="triton-01",
        started_at=rfc3339.from_ms(CLAIMED_AT_MS),
        code=AttemptCode.WORKER_LOST,
        inference_ms=None,
        usage=None,
    )
    was = lost.model_copy(
        update={"code": AttemptCode.LEASE_LOST, "inference_ms": spent.inference_ms, "usage": spent.usage}
    )
    after = follow_up(done(outcome), word, "triton-01")
    assert after == AfterCommit(amend=exchange.Amend("j-1", lost.model_dump_json(), was.model_dump_json()))
    # But for what is told of its end it is the same text: by that a settlement finds it.
    assert after.amend is not None
    assert after.amend.lost.partition('"code"')[0] == after.amend.was.partition('"code"')[0]


def test_what_nobody_could_read_has_no_ledger_to_correct() -> None:
    """It was never run."""
    one = delivery(job_id=None)
    outcome = ran()
    assert follow_up(Done(one, outcome, as_commit(one, outcome)), -1, "triton-01") == AfterCommit()
