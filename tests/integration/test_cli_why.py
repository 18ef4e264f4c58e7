"""Why jobs wait, found out with ``speedinfer status`` alone: by the words it prints, of keys as workers write them."""

import json
import re
from typing import Any

import pytest
import redis

from tests.integration.command import lines, objects, run
from tests.jobs import job_content, job_json
from worker.fleet import redis_time_ms
from worker.keys import PRIORITIES, Keys

KEYS = Keys("speedinfer")
MODEL, TRITON_MODEL, POOL, ENDPOINT = "acme/model-1", "text_generation", "gpu-a", "triton:8000"


def worker(client: Any, worker_id: str = "w-1", /, model: str = MODEL, **changes: Any) -> None:
    """Write a worker's health; changes that name fields of its model are of that."""
    of_model = {
        "state": "ready",
        "reason": None,
        "cause": None,
        "circuit": "closed",
        "in_flight": 1,
        "waits": None,
        "triton_model": TRITON_MODEL,
        "triton_version": None,
    }
    fields = {
        "state": "ready",
        "circuit": "closed",
        "in_flight": "1",
        "concurrency": "4",
        "pool": POOL,
        "pool_max_concurrency": "3",
        "pool_requests_per_minute": "600",
        "pool_tokens_per_minute": "",
        "pool_adaptive": "0",
        "endpoint_id": ENDPOINT,
        "runtime_endpoint": "http://triton:8000",
        "models": json.dumps({model: {**of_model, **changes.pop("its", {})}}),
        **changes,
    }
    client.hset(KEYS.worker(worker_id), mapping=fields)
    client.expire(KEYS.worker(worker_id), 60)
    client.zadd(KEYS.workers, {worker_id: redis_time_ms(client)})


def pool(client: Any, *, slots: int = 0, lapsed: int = 0, granted: int = 0, **changes: str) -> None:
    """Write a pool with so many slots taken, some more that have lapsed, and so many requests granted; the limits are changed so."""
    now_ms = redis_time_ms(client)
    limits = {
        "max_concurrency": "3",
        "requests_per_minute": "600",
        "tokens_per_minute": "",
        "adaptive": "0",
        "level": "",
    }
    client.hset(KEYS.pool(POOL), mapping={**limits, "set_by": "w-1", "set_at": str(now_ms), **changes})
    taken = {f"{MODEL}\nw-1:run/{n}": now_ms + 60_000 for n in range(slots)}
    over = {f"{MODEL}\nw-1:run/over-{n}": now_ms - 1 for n in range(lapsed)}
    if slots or lapsed:
        client.zadd(KEYS.pool_slots(POOL), {**taken, **over})
    if granted:
        old = {f"old-{n}": now_ms - 61_000 for n in range(5)}
        client.zadd(KEYS.pool_grants(POOL), {**{f"new-{n}": now_ms - 1000 for n in range(granted)}, **old})
    for key in (KEYS.pool(POOL), KEYS.pool_slots(POOL), KEYS.pool_grants(POOL)):
        client.expire(key, 60)


@pytest.fixture(autouse=True)
def _waits(valkey: redis.Redis) -> None:
    """Two jobs wait in the model's queue."""
    valkey.lpush(KEYS.jobs(MODEL), job_json(job_id="first"), job_json(job_id="second"))


TO_BE_MENDED = {"no_worker", "not_ready", "unavailable", "contract_mismatch", "out_of_order", "circuit", "stands_still"}


def why(redis_url: str, kind: str, *, code: int | None = None) -> str:
    """Return the words that status prints for the model, which are those it has in JSON, under this kind.

    It exits with ``code``: by itself 1 where something has to be mended.
    """
    code = int(kind in TO_BE_MENDED) if code is None else code
    (status,) = objects(run("status", "--redis-url", redis_url), code)
    (its,) = (model for model in status["models"] if model["model"] == MODEL)
    assert its["why"]["kind"] == kind
    shown = lines(run("status", "--no-json", "--redis-url", redis_url), code)
    (row,) = (line for line in shown if line.startswith(MODEL))
    assert masked(row).endswith(masked(its["why"]["words"]))
    return row


def masked(text: str) -> str:
    """Return a text without its figures: ages go on between two looks."""
    return re.sub(r"[\d.]+ (ms|s|min)\b", "a while", re.sub(r": \d+ are left", "", text))


def test_no_worker(valkey: redis.Redis, redis_url: str) -> None:
    """A model that was declared once, and lost workers, of which one may have been its."""
    valkey.hset(KEYS.models, MODEL, "{}")
    assert "no live worker serves it" in why(redis_url, "no_worker")
    valkey.zadd(KEYS.workers, {"gone": 1})
    assert "no live worker serves it; lost: gone" in why(redis_url, "no_worker")


def test_paused_by_an_operator(valkey: redis.Redis, redis_url: str) -> None:
    """With the reason that was given, also while nobody serves it."""
    run("models", "pause", MODEL, "--reason", "new weights at 14:00", "--redis-url", redis_url)
    assert ": new weights at 14:00" in why(redis_url, "paused")
    worker(valkey)
    assert ": new weights at 14:00" in why(redis_url, "paused")


def test_paused_by_hand(valkey: redis.Redis, redis_url: str) -> None:
    """By a gateway that knows the set alone; the worker may not have heard of it yet, and takes no jobs all the same."""
    worker(valkey)
    valkey.sadd(KEYS.paused, MODEL)
    row = why(redis_url, "paused")
    assert "paused: no reason given" in row
    assert " 0/1 " in row


@pytest.mark.parametrize(
    ("its", "kind", "words"),
    [
        (
            {"state": "starting"},
            "starting",
            "starting: Triton at http://triton:8000 has not answered for this model yet",
        ),
        (
            {"state": "paused", "reason": "runtime_unavailable", "cause": "not_ready"},
            "not_ready",
            "Triton at http://triton:8000 has text_generation not ready",
        ),
        (
            {"state": "paused", "reason": "runtime_unavailable", "cause": "not_ready", "triton_version": "9"},
            "not_ready",
            "Triton at http://triton:8000 has version 9 of text_generation not ready",
        ),
        ({"state": "paused", "reason": "runtime_unavailable"}, "unavailable", "Triton at http://triton:8000 is away"),
        (
            {"state": "paused", "reason": "runtime_contract_mismatch"},
            "contract_mismatch",
            "does not fit the configuration: speedinfer check shows both sides",
        ),
        ({"waits": "turn"}, "turn", "it is the turn of other workers of pool gpu-a"),
    ],
)
def test_out_of_order_at_its_workers(
    valkey: redis.Redis, redis_url: str, its: dict[str, Any], kind: str, words: str
) -> None:
    """What the worker says of the model, in words."""
    worker(valkey, state="unavailable" if its.get("state") == "paused" else "ready", its=its)
    assert words in why(redis_url, kind)


def test_circuit_open(valkey: redis.Redis, redis_url: str) -> None:
    """With what opened it, since when and until when; the circuit has a column too."""
    now_ms = redis_time_ms(valkey)
    worker(valkey)
    key = KEYS.circuit(ENDPOINT, TRITON_MODEL)
    valkey.hset(
        key,
        mapping={
            "state": "open",
            "reason": "runtime_timeout",
            "failures": "5",
            "opened_at": _rfc3339(now_ms - 3000),
            "retry_at": _rfc3339(now_ms + 3_600_000),
        },
    )
    valkey.expire(key, 60)
    row = why(redis_url, "circuit")
    assert "open (runtime_timeout)" in row
    assert "the circuit of text_generation at triton:8000 is open since" in row
    assert "runtime_timeout (5 failures); tried again in 60 min (w-1)" in row
    (status,) = objects(run("status", "--redis-url", redis_url), 1)
    (circuit,) = status["models"][0]["circuits"]
    assert (circuit["state"], circuit["failures"], circuit["retry_at"]) == ("open", 5, _rfc3339(now_ms + 3_600_000))


def test_circuit_forced_open(valkey: redis.Redis, redis_url: str) -> None:
    """By whom and why."""
    worker(valkey)
    key = KEYS.circuit(ENDPOINT, TRITON_MODEL)
    forced: dict[Any, Any] = {"state": "open", "reason": "new driver", "forced": "open", "forced_by": "ops@host"}
    valkey.hset(key, mapping=forced)
    valkey.expire(key, 60)
    row = why(redis_url, "circuit", code=0)
    assert "the circuit of text_generation at triton:8000 is forced open by ops@host: new driver (w-1)" in row
    assert "forced open (new driver)" in row


def test_draining(valkey: redis.Redis, redis_url: str) -> None:
    """All of its workers, that is; one that does not serves."""
    worker(valkey, state="draining")
    assert "draining, since it was told to stop (w-1)" in why(redis_url, "drained")
    worker(valkey, "w-2")
    assert why(redis_url, "served").split()[:5] == [MODEL, "2", "2", "unknown", "1/2"]


def test_the_pools_slots_are_taken(valkey: redis.Redis, redis_url: str) -> None:
    """Those that have lapsed are not counted."""
    worker(valkey)
    pool(valkey, slots=2, lapsed=3)
    why(redis_url, "served")
    pool(valkey, slots=3, lapsed=3)
    assert "pool gpu-a has no slot for it: 3 of 3 are taken (w-1)" in why(redis_url, "slots")


def test_the_requests_of_a_minute_are_granted(valkey: redis.Redis, redis_url: str) -> None:
    """Those of the last 60 seconds."""
    worker(valkey)
    pool(valkey, granted=599)
    why(redis_url, "served")
    pool(valkey, granted=600)
    assert "pool gpu-a has granted 600 of 600 requests in the last 60 s (w-1)" in why(redis_url, "requests")


def test_the_tokens_are_used_up(valkey: redis.Redis, redis_url: str) -> None:
    """Less than none, where more was used than was granted; or too few for the next job, by the worker's word."""
    worker(valkey)
    later_ms = redis_time_ms(valkey) + 60_000  # So that nothing is refilled while we look.
    pool(valkey, tokens_per_minute="60", tokens_level="-120", tokens_at_ms=str(later_ms))
    assert "pool gpu-a has too few tokens: -1" in why(redis_url, "tokens")
    pool(valkey, tokens_per_minute="6000", tokens_level="900", tokens_at_ms=str(redis_time_ms(valkey)))
    worker(valkey, its={"waits": "tokens"})
    assert "are left of 6000 a minute (w-1)" in why(redis_url, "tokens")


def test_the_workers_own_concurrency(valkey: redis.Redis, redis_url: str) -> None:
    """A pool with room does not help a worker that has none."""
    worker(valkey, in_flight="4")
    pool(valkey, slots=1)
    assert "has 4 jobs in hand, as many as its concurrency lets it (w-1)" in why(redis_url, "slots")


def test_pools_are_shown_beside_their_limits(valkey: redis.Redis, redis_url: str) -> None:
    """And which worker is configured otherwise than what is in force."""
    worker(valkey)
    worker(valkey, "w-2", pool_max_concurrency="4", pool_tokens_per_minute="9000")
    pool(valkey, slots=2, granted=7, adaptive="1", level="2.5")
    (status,) = objects(run("status", "--redis-url", redis_url))
    (found,) = status["pools"]
    assert {name: found[name] for name in ("pool", "slots", "slots_limit", "requests", "requests_limit", "tokens")} == {
        "pool": "gpu-a",
        "slots": 2,
        "slots_limit": 2,
        "requests": 7,
        "requests_limit": 600,
        "tokens": None,
    }
    differing = found["configured_otherwise"]["w-2"]
    assert "max_concurrency 4 (in force: 3, set by w-1)" in differing
    shown = lines(run("status", "--no-json", "--redis-url", redis_url))
    assert ["gpu-a", "2/2", "7/600", "off", "2.5", "of", "3", "w-1"] in [line.split() for line in shown]
    assert any(line.startswith("w-2 is configured otherwise than pool gpu-a: max_concurrency 4") for line in shown)


def test_a_pool_that_nobody_has_set_has_no_limits_yet(valkey: redis.Redis, redis_url: str) -> None:
    """As before the first claim."""
    worker(valkey)
    (status,) = objects(run("status", "--redis-url", redis_url))
    assert (status["pools"][0]["slots_limit"], status["pools"][0]["configured_otherwise"]) == (None, {})


def test_the_oldest_job_says_how_long_it_waits(valkey: redis.Redis, redis_url: str) -> None:
    """Bare, or in a Celery message in a priority list; of several lists the oldest head counts."""
    worker(valkey)
    now_ms = redis_time_ms(valkey)
    valkey.delete(KEYS.jobs(MODEL))
    # Minutes, which do not go on while we look.
    valkey.lpush(KEYS.jobs(MODEL), job_json(enqueued_at=_rfc3339(now_ms - 1_800_000)), job_json())
    assert " 30 min " in why(redis_url, "served")
    job = job_content(enqueued_at=_rfc3339(now_ms - 3_600_000))
    message = {
        "body": json.dumps([[job], {}, {}]),
        "headers": {"task": "speedinfer.generate", "id": "1"},
        "properties": {},
        "content-type": "application/json",
    }
    valkey.lpush(KEYS.jobs(MODEL) + PRIORITIES[2], json.dumps(message))
    assert " 60 min " in why(redis_url, "served")
    assert why(redis_url, "served").split()[1] == "3"


def test_a_large_fleet_is_read_in_a_few_round_trips(valkey: redis.Redis, redis_url: str) -> None:
    """Whatever its size."""
    for n in range(20):
        worker(valkey, f"w-{n:02}", model=f"acme/model-{n}")
    before = valkey.info("stats")["total_reads_processed"]
    objects(run("status", "--redis-url", redis_url))
    assert valkey.info("stats")["total_reads_processed"] - before < 20


def _rfc3339(at_ms: int) -> str:
    from tasks import rfc3339

    return rfc3339.from_ms(at_ms)
