"""A reply of Redis is lost after the work was done: the job is run once and settled once all the same, or is still claimed."""

import json
from collections.abc import Iterator
from functools import partial

import pytest

from tests.acceptance.delivery import wait_for_health
from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess, models
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import (
    QUEUE,
    codes,
    dead_letters,
    push,
    push_jobs,
    queued,
    result_of,
    settlements,
    wait_for_results,
)
from tests.acceptance.proxy import Proxy
from tests.jobs import MODEL, job_json
from tests.waiting import wait_until
from tests.witness import Witness


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """The worker's way to Valkey."""
    with Proxy(redis_url) as way:
        yield way


@pytest.fixture
def worker(fleet: Fleet, proxy: Proxy) -> WorkerProcess:
    """A worker that reaches Valkey through the proxy."""
    return fleet.start(redis_url=proxy.url, **models(**{"model-1": "text_generation", "faulty": "faulty"}))


@pytest.mark.leaves("claims:*")
def test_a_job_is_in_the_claims_if_the_worker_is_killed_between_the_claim_and_its_reply(
    fleet: Fleet, proxy: Proxy, worker: WorkerProcess, valkey: Client, witness: Witness
) -> None:
    """The claim is one step: at the very moment when the worker knows nothing of it yet, the job is not lost."""
    trap = proxy.trap("claim_from_queues", "victim")
    raw = job_json(job_id="victim")
    push(valkey, raw)
    trap.wait()

    worker.kill()
    trap.lose()

    assert valkey.llen(QUEUE) == 0
    (record,) = worker.claims().values()
    name, job_id, _, _, claimed = record.split(b"\n", 4)
    assert (name, job_id, claimed) == (QUEUE.encode(), b"victim", raw)
    assert settlements(valkey) == {}
    assert witness.count() == 0

    # The id of the worker is free again, and its next run takes what is in the queue.
    fleet.start()
    push_jobs(valkey, "next")
    assert codes([result_of(valkey, "next")]) == [None]


def test_a_lost_reply_to_each_step_of_a_job_changes_nothing(
    proxy: Proxy, worker: WorkerProcess, valkey: Client, witness: Witness
) -> None:
    """Claim, settlement, retry and dead letter are asked again after a lost reply, and done once."""
    claim = proxy.trap("claim_from_queues", "claimed")
    push_jobs(valkey, "claimed", prompt="claimed")
    claim.wait()
    assert len(worker.claims()) == 1
    claim.lose()
    assert codes([result_of(valkey, "claimed")]) == [None]

    settle = proxy.trap("settle_if_claimed", "settled")
    push_jobs(valkey, "settled", prompt="settled")
    settle.wait()
    assert "settled" in settlements(valkey)
    settle.lose()

    retry = proxy.trap("retry_if_claimed", "retried")
    push_jobs(valkey, "retried", model="acme/faulty", prompt="raise retried")
    retry.wait()
    assert valkey.zcard(KEYS.waiting) == 1
    assert valkey.llen(KEYS.attempts("retried")) == 1
    retry.lose()
    retried = result_of(valkey, "retried")
    assert codes([retried]) == ["triton_inference_failed"]
    assert len(retried.attempts) == 2

    bury = proxy.trap("bury_if_claimed")
    push(valkey, b"buried")
    bury.wait()
    assert len(dead_letters(valkey)) == 1
    bury.lose()

    push_jobs(valkey, "last", prompt="last")
    wait_for_results(valkey, "claimed", "settled", "retried", "last")
    assert len(dead_letters(valkey)) == 1
    assert witness.prompts() == ["claimed", "settled", "raise retried", "raise retried", "last"]
    assert worker.claims() == {}
    health = wait_for_health(worker, succeeded_total=3, failed_total=1, dead_lettered_total=1)
    assert (health["succeeded_total"], health["failed_total"], health["duplicates_total"]) == ("3", "1", "0")
    assert health["dead_lettered_total"] == "1"


def test_a_lost_reply_to_a_return_puts_the_job_back_once(
    proxy: Proxy, fleet: Fleet, valkey: Client, witness: Witness, gate: Gate
) -> None:
    """A job that is given back when the worker stops is in its queue once, though the reply to that was lost."""
    worker = fleet.start(redis_url=proxy.url, drain_seconds=0)
    push_jobs(valkey, "returned", prompt=gate.prompt())
    wait_until(lambda: witness.count() == 1, description="the job runs")
    returned = proxy.trap("return_if_claimed")
    worker.process.terminate()
    returned.wait()
    assert queued(valkey) == ["returned"]
    returned.lose()

    assert worker.wait() == 0
    assert queued(valkey) == ["returned"]
    assert worker.claims() == {}
    assert settlements(valkey) == {}


def test_jobs_claimed_by_a_call_under_way_go_back_in_order_when_the_worker_is_told_to_stop(
    proxy: Proxy, worker: WorkerProcess, valkey: Client, witness: Witness
) -> None:
    """Jobs that were claimed and not started are put back at the front, in their order and uncharged."""
    job_ids = ["first", "second", "third", "fourth"]
    claim = proxy.trap("claim_from_queues", "first")
    with valkey.pipeline(transaction=True) as together:
        for job_id in (*job_ids, "stays"):
            together.lpush(QUEUE, job_json(job_id=job_id))
        together.execute()
    claim.wait()
    assert len(worker.claims()) == 4
    worker.process.terminate()
    worker.wait_until_state("draining")
    claim.let_go()

    assert worker.wait() == 0
    assert queued(valkey) == [*job_ids, "stays"]
    assert witness.count() == 0
    assert not valkey.keys(KEYS.attempts("*"))
    assert worker.claims() == {}


def test_a_claim_that_reaches_redis_late_takes_no_job_that_nobody_will_run(
    proxy: Proxy, fleet: Fleet, valkey: Client, witness: Witness, gate: Gate
) -> None:
    """A call of a lost connection that arrives after its repeat was carried out and settled claims nothing more."""
    worker = fleet.start(redis_url=proxy.url, concurrency=1)
    late = proxy.trap("claim_from_queues", delays_call=True)
    push_jobs(valkey, "first", prompt="first")
    late.wait()
    assert codes([result_of(valkey, "first")]) == [None]
    push_jobs(valkey, "second", prompt=gate.prompt("second"))
    wait_until(lambda: witness.count() == 2, description="the only slot is busy")
    push_jobs(valkey, "third", prompt="third")
    late.let_go()
    assert late.answered.wait(30)
    assert queued(valkey) == ["third"]
    gate.open()

    assert codes(wait_for_results(valkey, "second", "third").values()) == [None, None]
    assert witness.prompts() == ["first", gate.prompt("second"), "third"]
    assert worker.claims() == {}


def more_is_settled(client: Client, seen: int) -> bool:
    """Whether there are more settlements than were seen."""
    return bool(client.xlen(KEYS.settlements) > seen)


def test_connections_that_are_cut_at_any_moment_change_nothing(
    proxy: Proxy, worker: WorkerProcess, valkey: Client, witness: Witness
) -> None:
    """All connections to Redis are cut again and again under load: each job is run once and settled once."""
    job_ids = [f"j-{n}" for n in range(200)]
    for n, job_id in enumerate(job_ids):
        push(valkey, job_json(job_id=job_id, prompt=f"sleep=0.0{n % 3} {job_id}"))
        if n % 10 == 0:
            proxy.cut()
    while (settled := valkey.xlen(KEYS.settlements)) < len(job_ids):
        proxy.cut()
        wait_until(partial(more_is_settled, valkey, settled), description="something more is settled")

    results = wait_for_results(valkey, *job_ids)
    assert codes(results.values()) == [None] * len(job_ids)
    assert witness.count() == len(job_ids)
    assert worker.claims() == {}
    # Its last heartbeats may have been cut as well.
    assert json.loads(worker.wait_until_state("ready")["models"])[MODEL]["state"] == "ready"
