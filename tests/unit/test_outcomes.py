"""What the ledger is asked to do for each outcome."""

import json

import pytest

from tasks.delivery import DeadLetter, Retry, Return, Settlement
from tasks.errors import ConnectionLost, ModelNotReady
from tasks.reading import DeadLetterReason, JobIdentity
from tasks.result import GenerateResult
from tests.generating import ran
from tests.jobs import MODEL, attempt, delivery, job_json
from worker import exchange
from worker.outcomes import as_commit

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
    """As JSON, for the ledger of attempts; with how long it waits."""
    commit = as_commit(delivery(tag="7.2"), Retry(IDENTITY, attempt(), 250, ConnectionLost()))
    assert commit == exchange.Retry("7.2", "j-1", 250, attempt().model_dump_json())


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
