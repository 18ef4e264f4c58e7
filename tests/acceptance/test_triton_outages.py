"""Triton is away, comes back, or has one model less: jobs wait in their queue, and nothing spins."""

import json
import time
from collections.abc import Callable
from typing import Final

from tests.acceptance.fleet import Client, Fleet, models
from tests.acceptance.gateway import codes, push_jobs, queued, settlements, wait_for_results
from tests.acceptance.holding import wait_until_stuck
from tests.conftest import MODELS
from tests.jobs import MODEL
from tests.misbehaving_server import MisbehavingServer, http
from tests.triton_http import load, unload
from tests.waiting import wait_until
from tests.witness import Witness
from worker.fleet import redis_time_ms
from worker.gate import FIRST_PAUSE_MS, LONGEST_PAUSE_MS
from worker.lookout import SWEEP_MS
from worker.sandbox.places import free_port
from worker.sandbox.triton_server import TritonServer

BEAT_MS: Final = 200.0
RENEWAL_MS: Final = 500.0
"""How often each worker of these tests beats, and renews its lease."""


def script_calls(client: Client) -> int:
    """How many scripts Valkey has run: claims, settlements, heartbeats and renewals."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


def most_looks(seconds: float) -> int:
    """How often a model that was looked at once may be looked at again in so long, with pauses as short as they can be."""
    looks, pause_ms, left_ms = 1, FIRST_PAUSE_MS, 1000 * seconds
    while left_ms >= pause_ms:
        looks, left_ms = looks + 1, left_ms - pause_ms
        pause_ms = min(LONGEST_PAUSE_MS / 2, 2 * pause_ms)
    return looks


def is_back(client: Client, model: str, *job_ids: str) -> Callable[[], bool]:
    """What tells whether these jobs are in their queue, in whatever order."""
    return lambda: sorted(queued(client, model)) == [*job_ids]


def test_a_triton_that_is_away_at_the_start_is_waited_for(fleet: Fleet, valkey: Client) -> None:
    """The worker starts without Triton, leaves the jobs where they are, and begins by itself when it is there."""
    port = free_port()
    worker = fleet.start(runtime_endpoint=f"http://127.0.0.1:{port}", until=("unavailable",))
    job_ids = [f"j-{n}" for n in range(10)]
    push_jobs(valkey, *job_ids)
    paused = {"state": "paused", "reason": "runtime_unavailable"}
    wait_until(lambda: worker.model() == paused, description="Triton was found away")
    worker.wait_for_beats()
    began_ms, before = redis_time_ms(valkey), script_calls(valkey)
    worker.wait_for_beats(8)
    calls, passed_ms = script_calls(valkey) - before, redis_time_ms(valkey) - began_ms

    wait_until(lambda: worker.model() == paused, description="it is still said to be")
    assert queued(valkey) == job_ids
    assert worker.claims() == {}
    # One more of each than whole times have passed, and as many by chance: a thousand would be spinning.
    assert calls <= passed_ms * (1 / BEAT_MS + 1 / RENEWAL_MS + 1 / SWEEP_MS) + 6

    with TritonServer(MODELS, control="explicit", models=["text_generation"], port=port):
        results = wait_for_results(valkey, *job_ids)
        assert worker.wait_until_state("ready")
    assert codes(results.values()) == [None] * len(job_ids)
    assert {len(result.attempts) for result in results.values()} == {1}


def test_a_triton_that_dies_under_load_and_comes_back_fails_no_job(
    fleet: Fleet, valkey: Client, own_triton: TritonServer
) -> None:
    """What was running is tried again, once; what was not sent uses up no attempt; all succeed after the recovery."""
    worker = fleet.start(runtime_endpoint=own_triton.url, concurrency=8, circuit={})
    job_ids = [f"j-{n}" for n in range(60)]
    push_jobs(valkey, *job_ids[:20], prompt="sleep=0.1 work")
    wait_until(lambda: len(settlements(valkey)) >= 10, description="some are settled")
    own_triton.freeze()  # So that it dies under load, however long that takes to do.
    push_jobs(valkey, *job_ids[20:], prompt="sleep=0.1 work")
    wait_until_stuck([worker], 8)

    own_triton.kill()
    worker.wait_until_state("unavailable")
    errors = {"runtime_unavailable", "runtime_connection_lost"}
    wait_until(lambda: worker.health().get("last_error_code") in errors, description="its last error is Triton's")
    worker.wait_for_beats(5)
    away = set(settlements(valkey))
    own_triton.restart()

    results = wait_for_results(valkey, *job_ids, timeout=30)
    worker.wait_until_state("ready")
    assert codes(results.values()) == [None] * len(job_ids)
    assert len(away) < len(job_ids)
    assert codes(settlements(valkey)[job_id][0] for job_id in away) == [None] * len(away)
    attempts = {job_id: [it.code and it.code.value for it in result.attempts] for job_id, result in results.items()}
    assert all(codes_ in ([None], ["runtime_connection_lost", None]) for codes_ in attempts.values()), attempts
    assert sum(len(codes_) > 1 for codes_ in attempts.values()) <= 8
    assert worker.claims() == {}


def test_a_model_that_is_unloaded_waits_while_the_others_go_on(
    fleet: Fleet, valkey: Client, own_triton: TritonServer, own_witness: Witness
) -> None:
    """Only that model's jobs stay in their queue, uncharged; the worker is degraded until it is loaded again."""
    worker = fleet.start(
        runtime_endpoint=own_triton.url, **models(**{"comes-and-goes": "faulty", "steady": "text_generation"})
    )
    unload(own_triton.url, "faulty")
    push_jobs(valkey, "waits-1", "waits-2", model="acme/comes-and-goes")
    worker.wait_until_state("degraded")
    push_jobs(valkey, *(f"goes-{n}" for n in range(20)), model="acme/steady")

    wait_for_results(valkey, *(f"goes-{n}" for n in range(20)))
    # Each went to the front when its own answer came; one sent after the pause never left.
    wait_until(is_back(valkey, "acme/comes-and-goes", "waits-1", "waits-2"), description="they are in their queue")
    health = worker.wait_until_state("degraded")
    models_ = json.loads(health["models"])
    gone, steady = models_["acme/comes-and-goes"], models_["acme/steady"]
    assert (gone["state"], gone["reason"], steady["state"]) == ("paused", "runtime_unavailable", "ready")
    assert worker.claims() == {}

    load(own_triton.url, "faulty")
    results = wait_for_results(valkey, "waits-1", "waits-2")
    worker.wait_until_state("ready")
    assert codes(results.values()) == [None, None]
    assert [len(result.attempts) for result in results.values()] == [1, 1]
    assert len(own_witness.prompts("faulty")) == 2


def test_a_model_that_is_never_ready_is_asked_less_and_less(fleet: Fleet, valkey: Client) -> None:
    """Looks at a model that is out of order grow apart, and none of its jobs is sent."""
    path = "/v2/models/text_generation/ready"
    with MisbehavingServer(replies={path: http(400)}) as server:

        def looks() -> int:
            return sum(request.path == path for request in server.received)

        worker = fleet.start(runtime_endpoint=server.url, until=("unavailable",))
        push_jobs(valkey, "waits")
        wait_until(looks, description="it was looked at")
        began, before = time.monotonic(), looks()
        worker.wait_for_beats(10)
        later = looks() - before

        assert later <= most_looks(time.monotonic() - began)
        assert server.inferences == []
        assert queued(valkey) == ["waits"]
        server.replies["/v2/models/text_generation/ready"] = http(200)
        assert codes(wait_for_results(valkey, "waits").values()) == [None]


def test_a_server_that_refuses_every_inference_charges_no_attempt_and_is_not_hammered(
    fleet: Fleet, valkey: Client
) -> None:
    """A model that says it is ready and answers 503 all the same: its jobs go back in their order, at a growing distance."""
    refuse = http(
        503, b'{"error":"Server is stopping, scheduler for model has stopped accepting new inference requests"}'
    )
    with MisbehavingServer(lambda peer, _: peer.send(refuse)) as server:
        worker = fleet.start(runtime_endpoint=server.url, until=(), concurrency=1, circuit={})
        push_jobs(valkey, "first", "second")
        wait_until(lambda: len(server.inferences) >= 3, description="the job was sent three times")
        sent = len(server.inferences)
        worker.wait_for_beats(5)

        assert len(server.inferences) - sent <= 3
        wait_until(lambda: queued(valkey) == ["first", "second"], description="both are back in their order")
        assert settlements(valkey) == {}
        assert not valkey.keys("speedinfer:attempts:*")


def test_a_frozen_triton_leaves_the_worker_starting_until_it_answers(
    fleet: Fleet, valkey: Client, own_triton: TritonServer
) -> None:
    """A server that accepts connections and says nothing is no reason to begin, nor to end."""
    own_triton.freeze()
    worker = fleet.start(runtime_endpoint=own_triton.url, until=("starting",))
    push_jobs(valkey, "waits")
    worker.wait_for_beats(3)

    health = worker.wait_until_state("starting", "unavailable", "ready")
    said = json.loads(health["models"])[MODEL]
    assert (health["state"], said["state"], said["reason"]) == ("starting", "starting", None)
    assert queued(valkey) == ["waits"]
    own_triton.thaw()
    assert codes(wait_for_results(valkey, "waits").values()) == [None]
    worker.wait_until_state("ready")
