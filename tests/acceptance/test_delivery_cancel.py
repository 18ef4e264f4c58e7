"""Cancelled and expired jobs: never begun after it was said, settled once whatever else happens, and their usage kept."""

import pytest
import redis

from tasks import rfc3339
from tests.acceptance.delivery import (
    LEASE,
    attempt_codes,
    counted,
    nothing_is_left,
    settled_once,
    wait_for_health,
    wait_until_busy,
)
from tests.acceptance.fleet import KEYS, Fleet, WorkerProcess, models
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import (
    codes,
    entries,
    push,
    push_jobs,
    queued,
    result_of,
    send_task,
    stock_producer,
    wait_for_results,
)
from tests.acceptance.proxy import Proxy
from tests.jobs import job_json
from tests.triton_http import load, unload
from tests.waiting import wait_until
from tests.witness import Witness
from worker.fleet import redis_time_ms
from worker.lookout import SWEEP_MS
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

CANCEL_SECONDS = 691_200
OTHER = "acme/other"
"""What the module's own worker does not serve."""

STARTED_WITHIN_MS = 3_000
"""How soon a job with a free slot has surely started, on a machine that stalls."""


def cancel(client: redis.Redis, *job_ids: str) -> None:
    """Say that jobs are not wanted any more, as the contract has it."""
    for job_id in job_ids:
        client.set(KEYS.cancel(job_id), 1, ex=CANCEL_SECONDS)


@pytest.fixture(scope="module")
def standing(
    standing_fleet: Fleet,
    triton_server: TritonServer,  # noqa: ARG001 - what it runs on
    valkey_server: ValkeyServer,  # noqa: ARG001 - as well
) -> WorkerProcess:
    """A worker with two slots for the whole module."""
    return standing_fleet.start(worker_id="standing", concurrency=2, lease_seconds=LEASE)


@pytest.fixture
def worker(standing: WorkerProcess, valkey: redis.Redis) -> WorkerProcess:
    """The same, once it has noticed that Redis was emptied under it."""
    standing.wait_until_state("ready")
    wait_until(lambda: valkey.hexists(KEYS.leases, standing.worker_id), description="it has a lease")
    return standing


def test_a_job_cancelled_before_its_start_never_reaches_triton(
    valkey: redis.Redis, redis_url: str, worker: WorkerProcess, witness: Witness
) -> None:
    """Bare or in a Celery message, it is settled at the head of its queue; those around it run. The key is left alone."""
    before = counted(worker, "duplicates_total")
    cancel(valkey, "cancelled", "by-celery")
    push_jobs(valkey, "before", "cancelled", prompt="work")
    with stock_producer(redis_url) as producer:
        send_task(producer, "by-celery", prompt="work")
    push_jobs(valkey, "after", prompt="work")

    results = wait_for_results(valkey, "before", "cancelled", "by-celery", "after")
    assert codes(results.values()) == [None, "job_cancelled", "job_cancelled", None]
    for name in ("cancelled", "by-celery"):
        assert results[name].attempts == []
        assert results[name].usage is None
        assert results[name].text is None
        assert 0 < valkey.ttl(KEYS.cancel(name)) <= CANCEL_SECONDS
    assert witness.count() == 2
    # Nothing that was settled changes when it is cancelled afterwards.
    cancel(valkey, "before")
    push_jobs(valkey, "before", prompt="work")
    wait_for_health(worker, duplicates_total=before + 1)
    assert codes([result_of(valkey, "before")]) == [None]
    assert nothing_is_left(valkey)


def test_a_job_cancelled_while_it_runs_is_settled_as_cancelled_with_what_it_spent(
    valkey: redis.Redis, worker: WorkerProcess, witness: Witness, gate: Gate
) -> None:
    """Triton cannot be stopped: the inference ends, its usage is settled, and its text is not."""
    before = counted(worker, "failed_total")
    push_jobs(valkey, "cancelled", "goes-on", prompt=gate.prompt())
    wait_until_busy(witness, 2)
    cancel(valkey, "cancelled")
    gate.open()

    results = wait_for_results(valkey, "cancelled", "goes-on")
    assert codes(results.values()) == ["job_cancelled", None]
    ended = results["cancelled"]
    assert (ended.text, ended.finish_reason) == (None, None)
    assert ended.usage is not None
    assert ended.usage == results["goes-on"].usage
    assert [attempt.usage for attempt in ended.attempts] == [ended.usage]
    assert wait_for_health(worker, failed_total=before + 1)["last_error_code"] == "job_cancelled"
    assert nothing_is_left(valkey)


def test_a_job_cancelled_while_it_waits_for_its_retry_is_not_tried_again(
    fleet: Fleet, valkey: redis.Redis, redis_url: str, witness: Witness
) -> None:
    """The attempt that was made is in its result; the duplicate of it that comes later is dropped."""
    with Proxy(redis_url) as proxy:
        worker = fleet.start(redis_url=proxy.url, **models(faulty="faulty"))
        # How long it waits is drawn, and may be nothing: its worker does not look for more before it hears that it waits.
        retry = proxy.trap("retry_if_claimed", "cancelled")
        push_jobs(valkey, "cancelled", model="acme/faulty", prompt="raise it")
        retry.wait()
        assert valkey.zcard(KEYS.waiting) == 1
        cancel(valkey, "cancelled")
        push_jobs(valkey, "cancelled", model="acme/faulty", prompt="raise it")
        retry.let_go()

        result = result_of(valkey, "cancelled")
        assert codes([result]) == ["job_cancelled"]
        assert attempt_codes(result) == ["triton_inference_failed"]
        wait_for_health(worker, duplicates_total=1)
        assert witness.count() == 1
        assert len(settled_once(valkey)) == 1
        assert nothing_is_left(valkey)
        assert worker.stop() == 0


def test_a_cancelled_job_of_a_killed_worker_is_not_run_again(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """Its lost run is in the result: it was run, and nobody knows what it spent."""
    victim = fleet.start(worker_id="victim", concurrency=1, lease_seconds=LEASE, **models(other="text_generation"))
    push_jobs(valkey, "cancelled", model=OTHER, prompt=gate.prompt())
    wait_until_busy(witness, 1)
    victim.kill()
    cancel(valkey, "cancelled")

    fleet.start(worker_id="finder", lease_seconds=LEASE, **models(other="text_generation"))
    result = result_of(valkey, "cancelled")
    assert codes([result]) == ["job_cancelled"]
    assert attempt_codes(result) == ["worker_lost"]
    assert witness.count() == 1
    assert nothing_is_left(valkey)


def _in_ms(client: redis.Redis, milliseconds: int) -> str:
    return rfc3339.from_ms(redis_time_ms(client) + milliseconds)


def test_ended_jobs_at_the_head_of_a_resting_queue_are_settled(
    fleet: Fleet, valkey: redis.Redis, own_triton: TritonServer
) -> None:
    """Nothing is taken from the queue of a model that is out of order, but its head is looked at every few seconds."""
    worker = fleet.start(runtime_endpoint=own_triton.url, **models(other="text_generation"))
    unload(own_triton.url, "text_generation")
    push_jobs(valkey, "notices", model=OTHER, prompt="work")
    worker.wait_until_state("unavailable")
    wait_until(lambda: queued(valkey, OTHER) == ["notices"], description="the job went back")
    cancel(valkey, "notices", "cancelled")
    expired = job_json(job_id="expired", model=OTHER, prompt="work", expires_at=_in_ms(valkey, -1000))
    push(valkey, expired, queue=KEYS.jobs(OTHER))
    push_jobs(valkey, "cancelled", "stays", model=OTHER, prompt="work")

    results = wait_for_results(valkey, "notices", "expired", "cancelled", timeout=2 * SWEEP_MS / 1000)
    assert codes(results.values()) == ["job_cancelled", "job_expired", "job_cancelled"]
    assert queued(valkey, OTHER) == ["stays"]
    load(own_triton.url, "text_generation")
    assert codes([result_of(valkey, "stays")]) == [None]


def test_a_job_that_expires_while_it_waits_for_a_slot_is_not_started(
    valkey: redis.Redis, worker: WorkerProcess, witness: Witness, gate: Gate
) -> None:
    """It is settled with its successor's turn at the latest; one that expires while it runs is not disturbed."""
    before = counted(worker, "failed_total")
    ends_ms = redis_time_ms(valkey) + STARTED_WITHIN_MS
    expires_at = rfc3339.from_ms(ends_ms)
    push(valkey, *(job_json(job_id=f"runs-{n}", prompt=gate.prompt(), expires_at=expires_at) for n in range(2)))
    wait_until_busy(witness, 2)
    push(valkey, job_json(job_id="expires", prompt="work", expires_at=expires_at))
    push_jobs(valkey, "after", prompt="work")
    wait_until(lambda: redis_time_ms(valkey) > ends_ms, description="all but the last have expired")
    gate.open()

    results = wait_for_results(valkey, "runs-0", "runs-1", "expires", "after")
    assert codes(results.values()) == [None, None, "job_expired", None]
    assert results["expires"].attempts == []
    ended = [entry["job_id"] for entry in entries(valkey)]
    assert ended.index("expires") < ended.index("after")
    assert witness.count() == 3
    assert wait_for_health(worker, failed_total=before + 1)["last_error_code"] == "job_expired"
    assert nothing_is_left(valkey)
