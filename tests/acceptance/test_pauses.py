"""Operators pause and resume a model over all workers, with the command and by hand."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.delivery import wait_until_paused
from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess, models, run
from tests.acceptance.gateway import codes, push_jobs, queued, wait_for_results
from tests.waiting import wait_until
from tests.witness import Witness

STEADY, MOVED = "acme/steady", "acme/moved"
Pair = tuple[WorkerProcess, WorkerProcess]


@pytest.fixture
def workers(fleet: Fleet) -> Pair:
    """Two workers of the same two models."""
    behind = models(steady="text_generation", moved="text_generation")
    first = fleet.start(worker_id="first", until=(), **behind)
    second = fleet.start(worker_id="second", **behind)
    first.wait_until_state("ready")
    return first, second


@pytest.fixture(autouse=True)
def _resumed(valkey: Client) -> Iterator[None]:
    yield
    valkey.delete(KEYS.paused, KEYS.pauses)


def command(*arguments: str, url: str) -> dict[str, Any]:
    """Run a command on this Redis; returns what it says."""
    ended = run("speedinfer", *arguments, "--redis-url", url)
    assert ended.code == 0, ended
    said: dict[str, Any] = json.loads(ended.out)
    return said


def able(client: Client, model: str) -> list[bytes]:
    """The workers that routing finds for a model."""
    return sorted(client.zrange(KEYS.model_workers(model), 0, -1))


def test_no_worker_takes_jobs_of_a_paused_model_until_it_is_resumed(
    workers: Pair, valkey: Client, redis_url: str, witness: Witness
) -> None:
    """The other model's go on; what the command says is known to routing at once, and to every worker with its next beat."""
    # A worker whose health has lapsed in a stall is not there before its next beat.
    wait_until(lambda: able(valkey, MOVED) == [b"first", b"second"], description="routing finds both")
    command("models", "pause", MOVED, "--reason", "new weights at 14:00", url=redis_url)
    assert able(valkey, MOVED) == []
    for worker in workers:
        worker.wait_until_state("degraded")
        wait_until_paused(worker, MOVED, "operator")
    push_jobs(valkey, *(f"moved-{n}" for n in range(10)), model=MOVED, prompt="of the paused one")
    push_jobs(valkey, *(f"steady-{n}" for n in range(10)), model=STEADY)

    assert codes(wait_for_results(valkey, *(f"steady-{n}" for n in range(10))).values()) == [None] * 10
    for worker in workers:
        worker.wait_for_beats(3)
    assert queued(valkey, MOVED) == [f"moved-{n}" for n in range(10)]
    assert "of the paused one" not in witness.prompts("text_generation")
    assert able(valkey, MOVED) == []
    status = command("status", "--json", url=redis_url)
    (its,) = (model for model in status["models"] if model["model"] == MOVED)
    assert (its["queued"], its["able"], its["why"]["kind"]) == (10, 0, "paused")
    assert its["why"]["words"].endswith(": new weights at 14:00")

    assert command("models", "resume", MOVED, url=redis_url)["changed"] is True
    assert codes(wait_for_results(valkey, *(f"moved-{n}" for n in range(10))).values()) == [None] * 10
    wait_until(lambda: able(valkey, MOVED) == [b"first", b"second"], description="routing finds both again")
    for worker in workers:
        worker.wait_until_state("ready")
        assert [
            event["event"] for event in worker.events("model.paused", "model.resumed") if event["model"] == MOVED
        ] == [
            "model.paused",
            "model.resumed",
        ]


def test_a_worker_that_starts_later_knows_of_a_pause(fleet: Fleet, valkey: Client) -> None:
    """Added by hand, as a gateway may; the log says once a minute why its jobs wait."""
    valkey.sadd(KEYS.paused, MOVED)
    push_jobs(valkey, "waits", model=MOVED)
    worker = fleet.start(until=("degraded",), **models(steady="text_generation", moved="text_generation"))
    line = worker.wait_for_event("model.waited")

    assert (line["model"], line["reason"], line["queued"]) == (MOVED, "paused", 1)
    assert queued(valkey, MOVED) == ["waits"]
    assert able(valkey, MOVED) == []
    valkey.srem(KEYS.paused, MOVED)
    assert codes(wait_for_results(valkey, "waits").values()) == [None]
