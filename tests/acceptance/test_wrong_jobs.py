"""What is no job, or no job that may be run, among jobs that are: none reaches Triton, none stops the worker."""

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tasks.job import TASK_NAME
from tests.acceptance.delivery import counted
from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess
from tests.acceptance.gateway import (
    QUEUE,
    codes,
    dead_letters,
    push,
    push_jobs,
    result_of,
    send_task,
    settlements,
    stock_producer,
    wait_for_results,
)
from tests.garbage import GARBAGE, WRONG_JOBS
from tests.jobs import MODEL, job_content, job_json
from tests.waiting import wait_until
from tests.witness import Witness


@pytest.fixture(scope="module")
def worker(standing_fleet: Fleet) -> WorkerProcess:
    """One worker for all that is wrong."""
    return standing_fleet.start()


@pytest.fixture(autouse=True)
def _never_restarts(worker: WorkerProcess) -> Iterator[None]:
    """The process is the same, started once, and none of its parts was lost."""
    yield
    assert worker.process.poll() is None
    assert len(worker.events("worker.started")) == 1
    assert not worker.events("worker.lost_a_part", "library.reported")
    assert worker.wait_until_state("ready")["pid"] == str(worker.pid)


def buried(client: Client, count: int) -> list[dict[str, bytes]]:
    """The dead letters once there are so many."""
    wait_until(lambda: len(dead_letters(client)) >= count, description=f"{count} dead letters")
    return dead_letters(client)


def test_garbage_between_jobs_is_dead_lettered_byte_for_byte_and_each_job_succeeds(
    valkey: Client, witness: Witness
) -> None:
    """Every kind of garbage becomes one dead letter with its bytes as they came; the good jobs around it succeed."""
    assert len(GARBAGE) >= 20
    good = [f"good-{n}" for n in range(len(GARBAGE) + 1)]
    push(valkey, job_json(job_id=good[0], prompt=good[0]))
    for garbage, job_id in zip(GARBAGE, good[1:], strict=True):
        push(valkey, garbage.raw, job_json(job_id=job_id, prompt=job_id))

    results = wait_for_results(valkey, *good, timeout=30)

    assert codes(results.values()) == [None] * len(good)
    letters = buried(valkey, len(GARBAGE))
    expected = sorted((garbage.reason.value.encode(), garbage.raw) for garbage in GARBAGE)
    assert sorted((letter["reason"], letter["raw"]) for letter in letters) == expected
    assert all(letter.keys() == {"queue", "reason", "raw", "worker_id", "at"} for letter in letters)
    assert {(letter["queue"], letter["worker_id"]) for letter in letters} == {(QUEUE.encode(), b"triton-01")}
    assert sorted(witness.prompts()) == sorted(good)
    assert settlements(valkey).keys() == set(good)


def test_wrong_jobs_between_jobs_are_settled_with_their_code_and_each_job_succeeds(
    valkey: Client, witness: Witness
) -> None:
    """Every kind of wrong job is settled as failed with the code that the contract gives it, and never sent."""
    assert len(WRONG_JOBS) >= 20
    good = [f"good-{n}" for n in range(len(WRONG_JOBS) + 1)]
    push(valkey, job_json(job_id=good[0], prompt=good[0]))
    for wrong, job_id in zip(WRONG_JOBS, good[1:], strict=True):
        push(valkey, wrong.raw, job_json(job_id=job_id, prompt=job_id))

    results = wait_for_results(valkey, *good, *(wrong.job_id for wrong in WRONG_JOBS), timeout=30)

    assert codes(results[job_id] for job_id in good) == [None] * len(good)
    assert {wrong.name: results[wrong.job_id].error for wrong in WRONG_JOBS if not results[wrong.job_id].error} == {}
    codes_by_name = {wrong.name: results[wrong.job_id].error for wrong in WRONG_JOBS}
    assert {name: error.code for name, error in codes_by_name.items() if error} == {
        wrong.name: wrong.code for wrong in WRONG_JOBS
    }
    for wrong in WRONG_JOBS:
        result = results[wrong.job_id]
        assert (result.status, result.text, result.usage, result.attempts) == ("failed", None, None, [])
    assert sorted(witness.prompts()) == sorted(good)
    assert dead_letters(valkey) == []


def message(
    content: Any = None,
    *,
    headers: dict[str, Any] | None = None,
    content_type: str = "application/json",
    **changes: Any,
) -> bytes:
    """A Celery protocol 2 message for a good job, with these headers, this body and these properties changed."""
    plain = [[job_content(job_id="j-1")], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    encoded = base64.b64encode(json.dumps(plain if content is None else content).encode()).decode()
    return json.dumps(
        {
            "body": encoded,
            "content-encoding": "utf-8",
            "content-type": content_type,
            "headers": {"lang": "py", "task": TASK_NAME, "id": "8a3f", "argsrepr": "()", **(headers or {})},
            "properties": {
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "body_encoding": "base64",
                "delivery_tag": "91d0",
            },
            **changes,
        }
    ).encode()


_ARGS: Final = [job_content(job_id="j-1")]
_SIGNATURE: Final = {"task": "gateway.done", "args": [], "kwargs": {}, "options": {}}
BAD_ENVELOPES: Final[dict[str, bytes]] = {
    "a time to start": message(headers={"eta": "2099-01-01T00:00:00+00:00"}),
    "a time to expire": message(headers={"expires": "2099-01-01T00:00:00+00:00"}),
    "compression": message(headers={"compression": "application/x-gzip"}),
    "a time limit": message(headers={"timelimit": [10, None]}),
    "another task": message(headers={"task": "speedinfer.other"}),
    "no task": message(headers={"task": None}),
    "a callback": message([_ARGS, {}, {"callbacks": [_SIGNATURE]}]),
    "an errback": message([_ARGS, {}, {"errbacks": [_SIGNATURE]}]),
    "a chain": message([_ARGS, {}, {"chain": [_SIGNATURE]}]),
    "a chord": message([_ARGS, {}, {"chord": _SIGNATURE}]),
    "keyword arguments": message([[], {"job": _ARGS[0]}, {}]),
    "both kinds of arguments": message([_ARGS, {"priority": 1}, {}]),
    "no argument": message([[], {}, {}]),
    "two arguments": message([[*_ARGS, *_ARGS], {}, {}]),
    "an argument that is no object": message([["j-1"], {}, {}]),
    "a body that is no list": message({"job": _ARGS[0]}),
    "a body that is no JSON": message(body="{", properties={}),
    "a body that is no base64": message(body="%%%"),
    "pickle": message(content_type="application/x-python-serialize"),
    "yaml": message(content_type="application/x-yaml"),
    "no properties": message(properties=None),
    "no headers": json.dumps({**json.loads(message()), "headers": None}).encode(),
}


def test_celery_messages_that_ask_for_more_than_a_job_can_have_are_bad_envelopes(
    valkey: Client, witness: Witness
) -> None:
    """A wish that a job cannot have is not dropped silently: the whole message is kept as a dead letter."""
    for name, raw in BAD_ENVELOPES.items():
        push(valkey, raw)
        push_jobs(valkey, f"after-{'-'.join(name.split())}")
    push(valkey, message())

    wait_for_results(valkey, "j-1", *(f"after-{'-'.join(name.split())}" for name in BAD_ENVELOPES))

    letters = buried(valkey, len(BAD_ENVELOPES))
    names = {raw: name for name, raw in BAD_ENVELOPES.items()}
    assert sorted(names[letter["raw"]] for letter in letters) == sorted(BAD_ENVELOPES)
    assert {letter["reason"] for letter in letters} == {b"bad_envelope"}
    assert witness.count() == len(BAD_ENVELOPES) + 1


def test_a_stock_producer_that_asks_for_more_gets_a_dead_letter_too(
    valkey: Client, redis_url: str, witness: Witness
) -> None:
    """The same as Celery itself writes such messages, not only as this test imagines them."""
    wishes: list[dict[str, Any]] = [
        {"countdown": 60},
        {"expires": 600},
        {"compression": "gzip"},
        {"serializer": "pickle"},
        {"serializer": "yaml"},
        {"link": "callback"},
        {"link_error": "callback"},
        {"time_limit": 5},
    ]
    with stock_producer(redis_url) as producer:
        for wish in wishes:
            wanted: dict[str, Any] = {
                name: producer.signature(it) if it == "callback" else it for name, it in wish.items()
            }
            producer.send_task(TASK_NAME, args=[job_content()], queue=QUEUE, **wanted)
        (producer.signature(TASK_NAME, args=[job_content()]) | producer.signature("after")).apply_async(queue=QUEUE)
        producer.send_task(TASK_NAME, kwargs={"job": job_content()}, queue=QUEUE)
        producer.send_task("speedinfer.embed", args=[job_content()], queue=QUEUE)
        send_task(producer, "good")
        result_of(valkey, "good")

    letters = buried(valkey, len(wishes) + 3)
    assert [letter["reason"] for letter in letters] == [b"bad_envelope"] * (len(wishes) + 3)
    assert all(json.loads(letter["raw"])["headers"]["lang"] == "py" for letter in letters)
    assert settlements(valkey).keys() == {"good"}
    assert witness.count() == 1


def test_a_wrong_job_in_a_celery_message_is_settled_with_its_code(
    valkey: Client, redis_url: str, witness: Witness
) -> None:
    """What a producer wraps is judged like a bare job: its code, or a dead letter with the message's own bytes."""
    with stock_producer(redis_url) as producer:
        send_task(producer, "empty", prompt="")
        send_task(producer, "stream", stream=True)
        producer.send_task(TASK_NAME, args=[job_content(job_id="other", model="acme/model-2")], queue=QUEUE)
        send_task(producer, "not an id")
        results = wait_for_results(valkey, "empty", "stream", "other")

    assert codes(results.values()) == ["invalid_job", "streaming_not_supported", "model_not_supported"]
    (letter,) = buried(valkey, 1)
    assert letter["reason"] == b"no_job_id"
    assert json.loads(letter["raw"])["headers"]["task"] == TASK_NAME
    assert witness.count() == 0


def test_a_queue_of_nothing_but_garbage_is_emptied(valkey: Client, worker: WorkerProcess) -> None:
    """Garbage holds no slot for long: far more of it than there are slots is gone in one go, and counted."""
    push_jobs(valkey, "first")
    result_of(valkey, "first")  # What was buried by the tests before is counted by now, and two beats later it is told.
    worker.wait_for_beats(2)
    before = counted(worker, "dead_lettered_total")
    push(valkey, *(b"garbage %d" % n for n in range(300)))

    letters = buried(valkey, 300)

    assert [letter["raw"] for letter in letters] == [b"garbage %d" % n for n in range(300)]
    assert valkey.llen(KEYS.jobs(MODEL)) == 0
    wait_until(lambda: counted(worker, "dead_lettered_total") == before + 300, description="all of them are counted")
