"""The same job_id enqueued again, in any way and at any time, runs once and is settled once; other content is a dead letter."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import redis
from celery import Celery

from tests.acceptance.delivery import (
    LEASE,
    attempt_codes,
    counted,
    nothing_is_left,
    settled_once,
    wait_until_busy,
)
from tests.acceptance.fleet import KEYS, Fleet, WorkerProcess, models
from tests.acceptance.gateway import (
    QUEUE,
    codes,
    dead_letters,
    push,
    push_jobs,
    result_of,
    send_task,
    stock_producer,
    wait_for_results,
)
from tests.jobs import MODEL, TRACEPARENT, job_json
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

OTHER_QUEUE: Final = KEYS.jobs("acme/model-2")
SLOW: Final = "sleep=0.6 work"
RAISING: Final = "acme/raising"
"""A model whose jobs wait for their retry until a test lets them be due."""


@pytest.fixture(scope="module")
def pair(
    standing_fleet: Fleet,
    triton_server: TritonServer,  # noqa: ARG001 - what they run on
    valkey_server: ValkeyServer,  # noqa: ARG001 - as well
) -> list[WorkerProcess]:
    """Two workers for the whole module, with slots for both of two entries in either."""
    behind = models(**{"model-1": "text_generation", "model-2": "text_generation", "faulty": "faulty"})
    return [standing_fleet.start(worker_id=name, lease_seconds=LEASE, **behind) for name in ("first", "second")]


class Duplicates:
    """How many duplicates the two workers have dropped since the test began."""

    def __init__(self, workers: list[WorkerProcess]) -> None:
        self._workers = workers
        self._before = self._now()

    def wait_for(self, number: int) -> None:
        """Return when exactly so many were counted."""
        wait_until(lambda: self._now() >= self._before + number, description=f"{number} duplicates are counted")
        assert self._now() == self._before + number

    def _now(self) -> int:
        return sum(counted(worker, "duplicates_total") for worker in self._workers)


@pytest.fixture
def duplicates(pair: list[WorkerProcess], valkey: redis.Redis) -> Duplicates:
    """The counter, once both workers have noticed that Redis was emptied under them."""
    for worker in pair:
        worker.wait_until_state("ready")
        wait_until(
            lambda its=worker.worker_id: valkey.hexists(KEYS.leases, its),  # type: ignore[misc] # a default is no type
            description="it has a lease",
        )
    return Duplicates(pair)


@pytest.fixture
def producer(redis_url: str) -> Iterator[Celery]:
    """A gateway on Celery."""
    with stock_producer(redis_url) as app:
        yield app


def _bare(client: redis.Redis, _producer: Celery) -> None:
    push_jobs(client, "twin", prompt=SLOW)


def _celery(_client: redis.Redis, producer: Celery) -> None:
    send_task(producer, "twin", prompt=SLOW)


Send = Callable[[redis.Redis, Celery], None]


@pytest.mark.parametrize(
    ("one", "two"),
    [(_bare, _bare), (_bare, _celery), (_celery, _bare), (_celery, _celery)],
    ids=["bare twice", "bare, then Celery", "Celery, then bare", "Celery twice"],
)
def test_two_entries_at_the_same_time_run_once(
    valkey: redis.Redis, producer: Celery, witness: Witness, duplicates: Duplicates, one: Send, two: Send
) -> None:
    """Both are claimed while the job runs, by one worker or two: the second one changes nothing but a counter."""
    one(valkey, producer)
    two(valkey, producer)

    assert attempt_codes(result_of(valkey, "twin")) == [None]
    duplicates.wait_for(1)
    assert witness.count() == 1
    assert len(settled_once(valkey)) == 1
    assert nothing_is_left(valkey)


def test_many_entries_of_one_job_in_one_push_run_once(
    valkey: redis.Redis, witness: Witness, duplicates: Duplicates
) -> None:
    """More of them than there are slots, all there at once, with others between."""
    with valkey.pipeline(transaction=True) as together:
        for n in range(20):
            together.lpush(QUEUE, job_json(job_id="many", prompt=SLOW))
            together.lpush(QUEUE, job_json(job_id=f"between-{n}", prompt="quick"))
        together.execute()

    results = wait_for_results(valkey, "many", *(f"between-{n}" for n in range(20)))
    assert codes(results.values()) == [None] * 21
    duplicates.wait_for(19)
    assert witness.count() == 21
    assert nothing_is_left(valkey)


def test_the_same_job_after_its_end_runs_no_more(
    valkey: redis.Redis, producer: Celery, witness: Witness, duplicates: Duplicates
) -> None:
    """Equal but for what says when and by whom it was sent: bare, as a Celery message, and in another model's queue."""
    push_jobs(valkey, "twin", prompt="quick")
    first = result_of(valkey, "twin")
    push_jobs(valkey, "twin", prompt="quick")
    push_jobs(
        valkey,
        "twin",
        prompt="quick",
        enqueued_at="2026-11-30T09:59:59.988Z",
        traceparent=TRACEPARENT,
        metadata={"sent": "again"},
    )
    send_task(producer, "twin", prompt="quick")
    push(valkey, job_json(job_id="twin", prompt="quick"), queue=OTHER_QUEUE)

    duplicates.wait_for(4)
    assert settled_once(valkey) == {"twin": first}
    assert witness.count() == 1
    assert nothing_is_left(valkey)


def test_the_same_job_in_another_models_queue_while_it_runs_is_dropped(
    valkey: redis.Redis, witness: Witness, duplicates: Duplicates
) -> None:
    """What would be model_not_supported by itself is a duplicate of the job that runs."""
    push_jobs(valkey, "twin", prompt=SLOW)
    wait_until_busy(witness, 1)
    push(valkey, job_json(job_id="twin", prompt=SLOW), queue=OTHER_QUEUE)

    assert codes([result_of(valkey, "twin")]) == [None]
    duplicates.wait_for(1)
    assert nothing_is_left(valkey)


def celery_message(url: str, job_id: str, **fields: Any) -> bytes:
    """The very bytes that a Celery producer puts into a queue, made where no worker takes them."""
    elsewhere = f"{url.removesuffix('/0')}/1"
    with stock_producer(elsewhere) as producer, redis.Redis.from_url(elsewhere) as client:
        send_task(producer, job_id, **fields)
        message = client.rpop(KEYS.jobs(fields.get("model", MODEL)))
    assert isinstance(message, bytes)
    return message


def test_other_content_under_the_same_job_id_is_a_dead_letter(
    valkey: redis.Redis, redis_url: str, witness: Witness, pair: list[WorkerProcess], duplicates: Duplicates
) -> None:
    """While the job runs and after its end, bare and in a Celery message, for this model and another: byte for byte."""
    others = [
        (QUEUE, job_json(job_id="twin", prompt="other")),
        (QUEUE, job_json(job_id="twin", prompt=SLOW, max_tokens=33)),
        (OTHER_QUEUE, job_json(job_id="twin", prompt=SLOW, model="acme/model-2")),
    ]
    others.append((QUEUE, celery_message(redis_url, "twin", prompt="other, by Celery")))
    push_jobs(valkey, "twin", prompt=SLOW)
    wait_until_busy(witness, 1)

    for number in (len(others), 2 * len(others)):
        for queue, raw in others:
            push(valkey, raw, queue=queue)
        wait_until(
            lambda all_=number: len(dead_letters(valkey)) >= all_,  # type: ignore[misc] # as above
            description="the others are dead letters",
        )
        result_of(valkey, "twin")

    letters = [(letter["queue"].decode(), letter["raw"]) for letter in dead_letters(valkey)]
    assert sorted(letters) == sorted(others * 2)
    assert {letter["reason"] for letter in dead_letters(valkey)} == {b"job_id_conflict"}
    assert codes([result_of(valkey, "twin")]) == [None]
    assert witness.count() == 1
    assert all(worker.process.poll() is None for worker in pair)
    duplicates.wait_for(0)


def test_a_duplicate_of_a_job_that_waits_for_its_retry_is_one_of_its_attempts(
    valkey: redis.Redis, witness: Witness, duplicates: Duplicates
) -> None:
    """Whichever of the two is taken next runs as the second attempt, and the other one is dropped."""
    model = "acme/faulty"
    with valkey.pipeline(transaction=True) as together:
        for _ in range(2):
            together.lpush(KEYS.jobs(model), job_json(job_id="twin", model=model, prompt="raise it"))
        together.execute()

    result = result_of(valkey, "twin")
    assert attempt_codes(result) == ["triton_inference_failed"] * 2
    duplicates.wait_for(1)
    assert witness.count() == 2
    assert nothing_is_left(valkey)


@pytest.fixture
def patient(fleet: Fleet) -> WorkerProcess:
    """The only worker of a model that raises, whose jobs wait for hours before they are tried again."""
    retry = {"base_seconds": 36_000, "max_seconds": 36_000}
    return fleet.start(worker_id="patient", retry=retry, **models(raising="faulty"))


def _form(form: str, url: str, prompt: str, **fields: Any) -> bytes:
    """Return job twin, bare or as a Celery message."""
    if form == "celery":
        return celery_message(url, "twin", model=RAISING, prompt=prompt, **fields)
    return job_json(job_id="twin", model=RAISING, prompt=prompt, **fields)


def _let_it_be_due(client: redis.Redis) -> None:
    """Let what waits be due; the worker notices as it takes another job."""
    waiting: Any = client.zrange(KEYS.waiting, 0, -1)
    client.zadd(KEYS.waiting, dict.fromkeys(waiting, 1), xx=True)
    push(client, job_json(job_id="wakes", model=RAISING), queue=KEYS.jobs(RAISING))


@pytest.mark.parametrize("form", ["bare", "celery"])
def test_other_content_while_the_job_waits_for_its_retry_is_a_dead_letter(
    valkey: redis.Redis, redis_url: str, witness: Witness, patient: WorkerProcess, form: str
) -> None:
    """Bare, expired, not valid, and in a Celery message; the job has its second attempt, and nobody else's in its ledger."""
    queue = KEYS.jobs(RAISING)
    others = [
        job_json(job_id="twin", model=RAISING, prompt="other"),
        job_json(job_id="twin", model=RAISING, prompt="other", expires_at="2020-01-01T00:00:00Z"),
        job_json(job_id="twin", model=RAISING, prompt=""),
        _form("celery", redis_url, "other, by Celery"),
    ]
    push(valkey, _form(form, redis_url, "raise it"), queue=queue)
    wait_until(lambda: valkey.zcard(KEYS.waiting) == 1, description="it waits for its retry")

    for raw in others:
        push(valkey, raw, queue=queue)
    wait_until(lambda: len(dead_letters(valkey)) >= len(others), description="the others are dead letters")
    assert sorted(letter["raw"] for letter in dead_letters(valkey)) == sorted(others)
    assert {letter["reason"] for letter in dead_letters(valkey)} == {b"job_id_conflict"}
    assert (witness.count(), settled_once(valkey), patient.claims()) == (1, {}, {})

    _let_it_be_due(valkey)
    assert attempt_codes(result_of(valkey, "twin")) == ["triton_inference_failed"] * 2
    result_of(valkey, "wakes")
    assert len(dead_letters(valkey)) == len(others)
    valkey.delete(KEYS.dead_letters)
    assert nothing_is_left(valkey)


@pytest.mark.parametrize("form", ["bare", "celery"])
def test_the_same_content_in_other_bytes_while_the_job_waits_for_its_retry_is_one_of_its_attempts(
    valkey: redis.Redis, redis_url: str, patient: WorkerProcess, form: str
) -> None:
    """It runs at once; the one that waited is dropped when it is due."""
    push(valkey, _form("bare", redis_url, "raise it"), queue=KEYS.jobs(RAISING))
    wait_until(lambda: valkey.zcard(KEYS.waiting) == 1, description="it waits for its retry")

    push(valkey, _form(form, redis_url, "raise it", metadata={"sent": "again"}), queue=KEYS.jobs(RAISING))
    assert attempt_codes(result_of(valkey, "twin")) == ["triton_inference_failed"] * 2
    _let_it_be_due(valkey)
    result_of(valkey, "wakes")
    wait_until(lambda: counted(patient, "duplicates_total") == 1, description="the one that waited is dropped")
    assert nothing_is_left(valkey)
