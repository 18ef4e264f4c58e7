"""The configuration that existing installations have, with another address and nothing else, runs what gateways send."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tasks.result import GenerateResult
from tests.acceptance.fleet import KEYS, ROOT, SEED, Client, Fleet, WorkerProcess
from tests.acceptance.gateway import (
    QUEUE,
    entries,
    push_jobs,
    result_of,
    send_resp,
    send_task,
    stock_producer,
    wait_for_results,
)
from tests.jobs import MODEL, full_job_content, job_json
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer


@pytest.fixture(scope="module")
def worker(standing_fleet: Fleet, triton_server: TritonServer, valkey_server: ValkeyServer) -> WorkerProcess:
    """A worker with the seed configuration, but for its two addresses."""
    return standing_fleet.start(config={**SEED, "runtime_endpoint": triton_server.url, "redis_url": valkey_server.url})


@pytest.fixture(autouse=True)
def _running(worker: WorkerProcess) -> Iterator[None]:
    yield
    assert worker.process.poll() is None


def schema(name: str) -> Draft202012Validator:
    """A published schema."""
    return Draft202012Validator(json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text()))


def ttl_within(client: Client, key: str, seconds: int) -> bool:
    """Whether a key lives for this long, less the moments since it was written."""
    return bool(seconds - 30 <= client.ttl(key) <= seconds)


def test_a_job_pushed_over_a_bare_socket_is_settled_with_text_and_true_usage(
    valkey: Client, redis_url: str, witness: Witness
) -> None:
    """One LPUSH in any language is all a gateway needs: the very command of the contract ends in a settlement."""
    raw = b'{"job_id":"j-1","model":"acme/model-1","prompt":"Hello","max_tokens":32}'
    assert send_resp(redis_url, b"LPUSH", b"speedinfer:jobs:acme/model-1", raw) == b":1"

    result = result_of(valkey, "j-1")

    assert (result.status, result.text, result.error) == ("succeeded", "echo: Hello", None)
    assert result.usage is not None
    assert result.usage.model_dump() == {"prompt_tokens": 1, "completion_tokens": 32, "total_tokens": 33}
    assert witness.prompts() == ["Hello"]


def test_settlement_result_and_marker_have_the_contracts_fields_and_lifetimes(valkey: Client) -> None:
    """Entry, result key and marker are exactly what the contract names, for success and failure."""
    push_jobs(valkey, "good")
    push_jobs(valkey, "bad", prompt="")
    wait_for_results(valkey, "good", "bad")

    for (stream_id, _), entry in zip(valkey.xrange(KEYS.settlements), entries(valkey), strict=True):
        job_id = entry["job_id"]
        assert entry.keys() == {"job_id", "status", "model", "result"}
        assert (entry["status"], entry["model"]) == ({"good": "succeeded", "bad": "failed"}[job_id], MODEL)
        assert valkey.get(KEYS.result(job_id)) == entry["result"].encode()
        assert ttl_within(valkey, KEYS.result(job_id), 86_400)
        marker = valkey.hgetall(KEYS.settled(job_id))
        assert marker[b"status"].decode() == entry["status"]
        assert marker[b"stream_id"] == stream_id
        assert marker[b"fingerprint"]
        assert ttl_within(valkey, KEYS.settled(job_id), 604_800)
        schema("settlement").validate(entry)
        schema("result").validate(json.loads(entry["result"]))
    assert valkey.llen(QUEUE) == 0
    assert not valkey.keys(KEYS.attempts("*"))


def test_a_result_has_every_field_of_the_contract_and_no_other(valkey: Client) -> None:
    """All fields are always there, null where unknown; what the gateway gave to be echoed is echoed."""
    content = full_job_content(
        job_id="full", expires_at="2099-01-01T00:00:00Z", parameters={}, enqueued_at="2026-11-30T09:59:59.988+01:00"
    )
    valkey.lpush(QUEUE, json.dumps(content))
    push_jobs(valkey, "least")
    wait_for_results(valkey, "full", "least")

    results: dict[str, dict[str, Any]] = {
        job_id: json.loads(valkey.get(KEYS.result(job_id))) for job_id in ("full", "least")
    }
    for result in results.values():
        assert [*result] == [*GenerateResult.model_fields]
        assert result["version"] == 1
        assert (result["worker_id"], result["model_version"]) == ("triton-01", "1")
        (attempt,) = result["attempts"]
        assert attempt.keys() == {"worker_id", "started_at", "code", "inference_ms", "usage"}
        assert (attempt["code"], attempt["usage"]) == (None, result["usage"])
        assert result["timings"].keys() == {"queued_ms", "pool_wait_ms", "inference_ms"}
    echoed = ("tenant", "batch_id", "custom_id", "metadata")
    assert [results["full"][name] for name in echoed] == ["tenant-1", "batch-1", "custom-1", {"origin": "test"}]
    assert [results["least"][name] for name in echoed] == [None, None, None, {}]
    assert results["full"]["timings"]["queued_ms"] > 0
    assert results["least"]["timings"]["queued_ms"] is None


def test_a_stock_celery_producer_needs_nothing_but_a_broker(valkey: Client, redis_url: str, witness: Witness) -> None:
    """``send_task`` of an ordinary Celery application is settled like a bare job, in a queue that holds both."""
    with stock_producer(redis_url) as producer:
        send_task(producer, "celery-1", prompt="from Celery")
        push_jobs(valkey, "bare-1", prompt="from LPUSH")
        send_task(producer, "celery-2", prompt="from Celery again", max_tokens=3)
        results = wait_for_results(valkey, "celery-1", "bare-1", "celery-2")

    assert [result.text for result in results.values()] == [
        "echo: from Celery",
        "echo: from LPUSH",
        "echo: from Celery again",
    ]
    assert witness.count() == 3
    assert not [key for key in valkey.scan_iter() if b"unacked" in key]


def test_the_same_job_means_the_same_in_a_celery_message_and_bare(valkey: Client, redis_url: str) -> None:
    """The fingerprint, by which a job that is sent again is known, does not depend on how it was sent."""
    with stock_producer(redis_url) as producer:
        send_task(producer, "same", prompt="twice")
        result_of(valkey, "same")
        as_message = valkey.hget(KEYS.settled("same"), "fingerprint")
        valkey.flushall()
        push_jobs(valkey, "same", prompt="twice")
        result_of(valkey, "same")

    assert valkey.hget(KEYS.settled("same"), "fingerprint") == as_message


def test_priorities_of_a_celery_producer_are_read_in_kombus_order(
    fleet: Fleet, valkey: Client, redis_url: str, witness: Witness
) -> None:
    """Of what waits in one queue, the smaller number runs first, as kombu's own workers would have it."""
    with stock_producer(redis_url, queue_order_strategy="priority") as producer:
        for priority in (9, 6, 0, 3):
            for n in (1, 2):
                send_task(
                    producer, f"p{priority}-{n}", priority=priority, prompt=f"p{priority}-{n}", model="acme/ranked"
                )
    lists = [key for key in valkey.scan_iter() if key.startswith(KEYS.jobs("acme/ranked").encode())]
    assert len(lists) == 4

    fleet.start(worker_id="one-at-a-time", concurrency=1, supported_models=["acme/ranked"])
    wait_for_results(valkey, *(f"p{priority}-{n}" for priority in (0, 3, 6, 9) for n in (1, 2)))

    assert witness.prompts() == [f"p{priority}-{n}" for priority in (0, 3, 6, 9) for n in (1, 2)]


def test_jobs_of_one_queue_start_in_the_order_they_were_pushed(fleet: Fleet, valkey: Client, witness: Witness) -> None:
    """First in, first out: what waited longest runs next."""
    job_ids = [f"j-{n}" for n in range(20)]
    for job_id in job_ids:
        valkey.lpush(KEYS.jobs("acme/ordered"), job_json(job_id=job_id, model="acme/ordered", prompt=job_id))

    fleet.start(worker_id="one-at-a-time", concurrency=1, supported_models=["acme/ordered"])
    wait_for_results(valkey, *job_ids)

    assert witness.prompts() == job_ids


def test_the_health_key_says_who_runs_where_and_what_was_done(valkey: Client, worker: WorkerProcess) -> None:
    """The health key has every field that the contract names, lives for three heartbeats, and counts what was settled."""
    push_jobs(valkey, "counted")
    push_jobs(valkey, "miscounted", max_tokens=0)
    wait_for_results(valkey, "counted", "miscounted")
    wait_until(
        lambda: {event["job_id"] for event in worker.events("job.settled")} >= {"counted", "miscounted"},
        description="both settlements are in the log",
    )
    statuses = Counter(event["status"] for event in worker.events("job.settled"))
    totals = {f"{status}_total": str(count) for status, count in statuses.items()}
    wait_until(lambda: totals.items() <= worker.health().items(), description=f"the health key shows {totals}")
    health = worker.health()

    assert totals.keys() == {"succeeded_total", "failed_total"}
    assert health["last_error_code"] == "invalid_job"
    assert health["consecutive_failures"] == "0"
    assert 0 < valkey.ttl(KEYS.worker("triton-01")) <= 15
    assert health.keys() >= {
        *("state", "circuit", "consecutive_failures", "succeeded_total", "failed_total", "last_error_code"),
        *("last_error_at", "last_success_at", "in_flight", "concurrency", "pool", "pool_max_concurrency", "models"),
        *("endpoint_id", "runtime_endpoint", "worker_type", "runtime", "version", "config_digest", "hostname"),
        *("pid", "started_at", "heartbeat_at"),
    }
    assert (health["worker_type"], health["runtime"], health["concurrency"]) == ("nvidia-gpu", "triton", "32")
    assert json.loads(health["models"])[MODEL]["state"] == "ready"
    assert valkey.zscore(KEYS.workers, "triton-01") is not None
