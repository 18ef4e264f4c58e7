"""From a claim to a delivery: what is told of it, and what ends without being run."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Settlement, Standing
from tasks.errors import DeliveryLimitExceeded, JobCancelled, JobExpired
from tasks.fingerprint import fingerprint_of
from tasks.generate import end_unstarted
from tasks.reading import DeadLetterReason
from tasks.result import AttemptCode
from tests.committer_contract import KEYS
from tests.fakes import FakeClock, FakeInference
from tests.generating import ports
from tests.jobs import CLAIMED_AT_MS, MAX_JOB_BYTES, MODEL, attempt, job_content, job_json
from worker.clock import RedisClock
from worker.exchange import Claim, Known, Open
from worker.keys import PRIORITIES
from worker.reception import Received, Reception

TO_RUN = Known(Standing.TO_RUN, b"", alone=False, attempts=())
LOST = attempt(AttemptCode.WORKER_LOST)


def reception(clock: FakeClock | None = None) -> Reception:
    """Return a reception whose Redis clock stands at CLAIMED_AT_MS at 0, for jobs that are given up after 3 losses."""
    clock = clock or FakeClock()
    redis_clock = RedisClock(clock)
    redis_clock.heard(CLAIMED_AT_MS)
    return Reception(KEYS, clock, redis_clock, MAX_JOB_BYTES, _end_unstarted)


def _end_unstarted(delivery: Delivery) -> Outcome | None:
    return end_unstarted(delivery, ports(FakeInference(), max_deliveries=3))


def claimed(raw: bytes | None = None, job_id: str | None = "j-1", **known: Any) -> Claim:
    """Return the claim of a job of which this is known."""
    raw = job_json() if raw is None else raw
    return Claim("1.1", KEYS.jobs(MODEL), raw, job_id, CLAIMED_AT_MS, replace(TO_RUN, **known))


def message(job: dict[str, Any] | None = None, **headers: Any) -> bytes:
    """Return a Celery message with a job in it."""
    return json.dumps(
        {
            "body": json.dumps([[job or job_content()], {}, {}]),
            "content-type": "application/json",
            "headers": {"task": "speedinfer.generate", "id": "x", **headers},
            "properties": {"delivery_info": {}},
        }
    ).encode()


def test_a_bare_job_is_delivered_as_it_is() -> None:
    """With what the ledger knows of it."""
    one = replace(claimed(alone=True, attempts=(LOST,)), queue=KEYS.jobs(MODEL) + PRIORITIES[2])
    assert reception().receive(one) == Received(
        Delivery(
            tag="1.1",
            queue_model=MODEL,
            raw=job_json(),
            claimed_at_ms=CLAIMED_AT_MS,
            received_ms=0,
            job_id="j-1",
            alone=True,
            attempts=(LOST,),
        )
    )


@pytest.mark.parametrize(
    ("claimed_before_ms", "received_ms"), [(0, 5000), (3000, 2000), (60_000, -55_000), (-10, 5000)]
)
def test_time_is_counted_from_the_claim(claimed_before_ms: int, received_ms: float) -> None:
    """A repeat tells of it later: what passed since then is part of the job's times. Redis' clock may have been set back."""
    clock = FakeClock()
    here = reception(clock)
    clock.pass_ms(5000)
    one = replace(claimed(), claimed_ms=CLAIMED_AT_MS + 5000 - claimed_before_ms)
    assert here.receive(one).delivery.received_ms == received_ms


@pytest.mark.parametrize(("standing", "error"), [(Standing.CANCELLED, JobCancelled), (Standing.EXPIRED, JobExpired)])
def test_a_job_that_has_ended_is_settled_at_once(standing: Standing, error: type[Exception]) -> None:
    """It never reaches the pool."""
    outcome = reception().receive(claimed(standing=standing)).outcome
    assert isinstance(outcome, Settlement)
    assert isinstance(outcome.error, error)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("rival", "outcome"),
    [
        (job_json(), Duplicate),
        (job_json(metadata={"n": "2"}, enqueued_at="2026-11-30T10:00:00Z"), Duplicate),
        (message(), Duplicate),
        (job_json(prompt="another"), DeadLetter),
        (message(job_content(prompt="another")), DeadLetter),
        (b"garbage", DeadLetter),
    ],
)
def test_a_job_that_runs_elsewhere_is_compared_with_that(wrapped: bool, rival: bytes, outcome: type[Outcome]) -> None:
    """By what is the job in them, whichever of the two came in a message."""
    known = Known(Standing.HELD, rival, alone=False, attempts=())
    here = reception()
    if wrapped:
        received = here.opened(here.receive(claimed(message(), None)).delivery, known)
    else:
        received = here.receive(replace(claimed(), known=known))
    assert isinstance(received.outcome, outcome)
    if isinstance(received.outcome, DeadLetter):
        assert received.outcome.reason is DeadLetterReason.JOB_ID_CONFLICT


@pytest.mark.parametrize(("prompt", "outcome"), [("Hello", Duplicate), ("another", DeadLetter)])
def test_a_settled_job_is_compared_with_what_was_settled(prompt: str, outcome: type[Outcome]) -> None:
    """By the fingerprint that its marker keeps."""
    rival = (fingerprint_of(job_json()) or "").encode()
    received = reception().receive(claimed(job_json(prompt=prompt), standing=Standing.SETTLED, rival=rival))
    assert isinstance(received.outcome, outcome)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_job_whose_id_has_attempts_of_another_is_a_conflict(wrapped: bool) -> None:
    """Bare it comes without its id, and the ledger is asked about it as about a message: with its fingerprint."""
    here = reception()
    received = here.receive(claimed(message() if wrapped else job_json(), None))
    assert received.opens is not None
    assert received.opens.fingerprint == fingerprint_of(job_json())
    known = replace(TO_RUN, standing=Standing.PRECEDED, rival=b"f" * 32)
    assert here.opened(received.delivery, known).outcome == DeadLetter(DeadLetterReason.JOB_ID_CONFLICT)


def test_a_message_is_opened_first() -> None:
    """The ledger is asked about the job in it, with its times by Redis' clock."""
    job = job_content(expires_at="2026-11-30T11:00:00Z", enqueued_at="2026-11-30T09:59:59.988Z")
    received = reception().receive(claimed(message(job), None))
    content = fingerprint_of(job_json(**job)) or ""
    times = CLAIMED_AT_MS + 3_600_000, CLAIMED_AT_MS - 12
    assert received.opens == Open("1.1", "j-1", content, *times, MODEL, len(job["prompt"]), job["max_tokens"])
    assert received.outcome is None
    assert json.loads(received.delivery.raw) == job
    assert received.delivery.job_id == "j-1"


def test_what_the_ledger_knows_of_a_message_is_in_its_delivery() -> None:
    """As in that of a bare job."""
    here = reception()
    delivery = here.receive(claimed(message(), None)).delivery
    received = here.opened(delivery, replace(TO_RUN, alone=True, attempts=(LOST,)))
    assert received == Received(replace(delivery, alone=True, attempts=(LOST,)))
    outcome = here.opened(delivery, replace(TO_RUN, standing=Standing.EXPIRED)).outcome
    assert isinstance(outcome, Settlement)
    assert isinstance(outcome.error, JobExpired)


def test_a_refused_message_is_a_dead_letter() -> None:
    """Nothing is asked about it."""
    received = reception().receive(claimed(message(eta="2030-01-01T00:00:00Z"), None))
    assert (received.opens, received.outcome) == (None, DeadLetter(DeadLetterReason.BAD_ENVELOPE))


def test_garbage_is_left_to_the_task() -> None:
    """It tells what it is."""
    received = reception().receive(claimed(b"\xff", None))
    assert (received.opens, received.outcome, received.delivery.job_id) == (None, None, None)


@pytest.mark.parametrize(
    ("times", "alone", "given_up"),
    [(2, True, False), (3, True, True), (9, True, True), (3, False, False), (9, False, False)],
)
def test_a_job_that_took_its_workers_along_is_given_up(times: int, alone: bool, given_up: bool) -> None:
    """Once it was alone with the last of them."""
    received = reception().receive(claimed(alone=alone, attempts=(LOST,) * times))
    if not given_up:
        assert received.outcome is None
        return
    assert isinstance(received.outcome, Settlement)
    assert isinstance(received.outcome.error, DeliveryLimitExceeded)
    assert received.outcome.result.attempts == [LOST] * times


def test_bytes_that_took_their_workers_along_are_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them may be what kills."""
    monkeypatch.setattr("worker.reception.read_envelope", lambda *_: pytest.fail("it was read"))
    monkeypatch.setattr("tasks.generate.read_job", lambda *_, **__: pytest.fail("it was read"))
    received = reception().receive(claimed(b"\xff", None, alone=True, attempts=(LOST,) * 3))
    assert received.outcome == DeadLetter(DeadLetterReason.DELIVERY_LIMIT_EXCEEDED)
