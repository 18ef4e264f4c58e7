"""Circuits of real workers on real Tritons: opened at once by all, tried by a few, closed again, and no job fails by one."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess, models, run
from tests.acceptance.gateway import codes, push_jobs, queued, settlements, wait_for_results
from tests.acceptance.holding import wait_until_stuck
from tests.conftest import MODELS
from tests.jobs import MODEL
from tests.triton_http import TritonRefused, infer, revive, text_generation
from tests.waiting import wait_until
from tests.witness import WITNESS_VARIABLE, Served, Witness
from worker.circuit import Circuit
from worker.circuit_store import read_circuits
from worker.sandbox.triton_server import TritonServer

FAULTY: Final = {"model_name": "faulty"}
LATE: Final = {"open_seconds": 120, "max_open_seconds": 120}
"""Whoever goes on before that has seen the model come back."""


def circuit_of(client: Client, worker: WorkerProcess, triton_model: str = "faulty") -> Circuit:
    """A circuit as Redis has it."""
    name = (shown(worker)["endpoint_id"], triton_model)
    return read_circuits(client, KEYS, [name])[name]


def shown(worker: WorkerProcess) -> dict[str, str]:
    """The health key; a worker that has just stood still for three beats has none for a moment."""
    return wait_until(worker.health, description=f"{worker.worker_id} shows how it is")


def wait_for_circuit(state: str, *workers: WorkerProcess, timeout: float = 30.0) -> None:
    """Wait until the health keys of these workers say so."""
    for worker in workers:
        wait_until(
            lambda worker=worker: worker.health().get("circuit") == state,  # type: ignore[misc]  # mypy infers no default
            description=f"the circuit of {worker.worker_id} is {state}",
            timeout=timeout,
        )


def kill_process(url: str, model: str = "faulty") -> None:
    """End a model's process, as a fault in it would; its server goes on calling it ready."""
    with suppress(TritonRefused):
        infer(url, model, text_generation("exit"))


@pytest.fixture
def second_triton(tmp_path: Path) -> Iterator[TritonServer]:
    """A Triton of the test's own beside ``own_triton``."""
    environment = {WITNESS_VARIABLE: str(tmp_path / "second.jsonl")}
    with TritonServer(MODELS, control="explicit", models=["faulty"], environment=environment) as server:
        yield server


def test_a_dead_process_stops_all_workers_at_once_until_it_is_loaded_again(
    fleet: Fleet, valkey: Client, own_triton: TritonServer, own_witness: Witness
) -> None:
    """One crash is enough for both; jobs stay in their queue, and go on soon after the reload, long before ``open_seconds`` are over."""
    start: dict[str, Any] = {
        "runtime_endpoint": own_triton.url,
        "runtime_config": FAULTY,
        "circuit": LATE,
        "concurrency": 2,
    }
    first, second = (fleet.start(worker_id=name, **start) for name in ("first", "second"))
    kill_process(own_triton.url)
    push_jobs(valkey, "finds-it")
    wait_for_circuit("open", first, second)

    waiting = [f"waits-{n}" for n in range(20)]
    push_jobs(valkey, *waiting)
    for worker in (first, second):
        health = worker.wait_until_state("unavailable")
        said = json.loads(health["models"])[MODEL]
        assert (health["circuit"], said["state"], said["reason"]) == ("open", "paused", "runtime_model_crashed")
        worker.wait_for_beats(5)
    assert set(queued(valkey)) >= set(waiting)
    assert settlements(valkey) == {}
    assert (circuit_of(valkey, first).opens, circuit_of(valkey, first).reason) == (1, "runtime_model_crashed")

    own_witness.clear()
    revive(own_triton.url, "faulty")
    results = wait_for_results(valkey, "finds-it", *waiting, timeout=30)
    assert codes(results.values()) == [None] * 21
    assert [len(results[name].attempts) for name in waiting] == [1] * 20
    assert len(results["finds-it"].attempts) == 2
    wait_for_circuit("closed", first, second)
    assert len(own_witness.served("faulty")) == 21
    stories = [
        [event["event"] for event in worker.events() if "circuit." in event["event"]] for worker in (first, second)
    ]
    whole = ["circuit.opened", "circuit.half_opened", "circuit.closed"]
    # Three quick jobs may close it before the other worker hears that it was half open.
    assert whole in stories
    assert all(story in (whole, [whole[0], whole[2]]) for story in stories), stories


def test_jobs_of_a_dead_process_go_to_another_triton(
    fleet: Fleet, valkey: Client, own_triton: TritonServer, second_triton: TritonServer
) -> None:
    """Each succeeds; the circuit of that endpoint alone opens, and closes after the model was unloaded and loaded."""
    start: dict[str, Any] = {"runtime_config": FAULTY, "circuit": LATE, "concurrency": 2}
    broken = fleet.start(worker_id="broken", runtime_endpoint=own_triton.url, **start)
    kill_process(own_triton.url)
    job_ids = [f"j-{n}" for n in range(60)]
    push_jobs(valkey, *job_ids, prompt="sleep=0.02 work")
    wait_for_circuit("open", broken)  # The other might do all of the jobs before this one has taken any.
    whole = fleet.start(worker_id="whole", runtime_endpoint=second_triton.url, **start)

    results = wait_for_results(valkey, *job_ids, timeout=30)
    assert codes(results.values()) == [None] * 60
    assert sum(len(result.attempts) > 1 for result in results.values()) <= 2
    assert {result.worker_id for result in results.values()} == {"whole"}
    assert shown(broken)["circuit"] == "open"
    assert shown(whole)["circuit"] == "closed"

    revive(own_triton.url, "faulty")
    wait_for_circuit("half_open", broken)
    whole.stop()
    more = [f"more-{n}" for n in range(10)]
    push_jobs(valkey, *more)
    assert codes(wait_for_results(valkey, *more).values()) == [None] * 10
    wait_for_circuit("closed", broken)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("jobs", "away_seconds"), [(120, 3.0), pytest.param(500, 60.0, marks=pytest.mark.long)], ids=["short", "a minute"]
)
def test_a_triton_that_is_away_fails_no_job_and_is_met_by_a_few_when_it_is_back(
    fleet: Fleet, valkey: Client, own_triton: TritonServer, own_witness: Witness, jobs: int, away_seconds: float
) -> None:
    """Of all workers together no more than ``half_open_calls`` run until so many have succeeded; then all slots are full again."""
    start: dict[str, Any] = {
        "runtime_endpoint": own_triton.url,
        "circuit": {},
        "concurrency": 4,
        "gpu_pool": {"max_concurrency": 8},
    }
    workers = [fleet.start(worker_id=name, **start) for name in ("first", "second")]
    job_ids = [f"j-{n}" for n in range(jobs)]
    push_jobs(valkey, *job_ids[:40], prompt="sleep=0.1 work")
    wait_until(lambda: len(settlements(valkey)) >= 10, description="some are settled")
    own_triton.freeze()  # So that it goes while all slots are full: that many failures open a circuit, and a few do not.
    push_jobs(valkey, *job_ids[40:], prompt="sleep=0.1 work")
    wait_until_stuck(workers, 8)

    own_triton.kill()
    wait_for_circuit("open", *workers)
    wait(away_seconds)
    assert not any(codes(found) != [None] for found in settlements(valkey).values())
    own_witness.clear()
    own_triton.restart()

    results = wait_for_results(valkey, *job_ids, timeout=60)
    assert codes(results.values()) == [None] * jobs
    assert sum(len(result.attempts) - 1 for result in results.values()) <= 8  # Those that were running when it went.
    served = own_witness.served()
    proven_at = sorted(one.finished_at or 0.0 for one in served)[2]
    assert most_at_once([one for one in served if one.started_at < proven_at]) <= 3
    assert most_at_once(served) == 8
    full_at = next(one.started_at for one in served if at_once(served, one.started_at) == 8)
    assert full_at - served[0].started_at <= 10
    wait_for_circuit("closed", *workers)


def test_one_tenants_failures_stop_nobody_and_two_tenants_do(fleet: Fleet, valkey: Client, triton_url: str) -> None:
    """However many: the other tenants' jobs go on, and so do its own. When another's fail too, the model is left alone."""
    worker = fleet.start(runtime_endpoint=triton_url, runtime_config=FAULTY, circuit=LATE)
    noisy = [f"noisy-{n}" for n in range(40)]
    push_jobs(valkey, *noisy, prompt="both:absent", tenant="noisy")
    push_jobs(valkey, "calm-1", prompt="hello", tenant="calm")
    results = wait_for_results(valkey, *noisy, "calm-1")
    assert set(codes(results[name] for name in noisy)) == {"runtime_usage_unavailable"}
    assert codes([results["calm-1"]]) == [None]
    assert shown(worker)["circuit"] == "closed"

    push_jobs(valkey, *noisy, prompt="both:absent", tenant="noisy")  # Duplicates: they run no more.
    push_jobs(valkey, *(f"noisy-again-{n}" for n in range(10)), prompt="both:absent", tenant="noisy")
    push_jobs(valkey, *(f"other-{n}" for n in range(10)), prompt="both:absent", tenant="other")
    wait_for_circuit("open", worker)
    wait_until(lambda: circuit_of(valkey, worker).reason, description="Redis was told what opened it")
    assert circuit_of(valkey, worker).reason == "runtime_usage_unavailable"
    left = queued(valkey)
    assert left
    assert set(left) <= {f"other-{n}" for n in range(10)}
    valkey.delete(KEYS.jobs(MODEL))


def test_an_exception_that_fails_a_whole_batch_counts_once(fleet: Fleet, valkey: Client, triton_url: str) -> None:
    """One poisonous prompt among eight is one failure, not eight."""
    worker = fleet.start(
        runtime_endpoint=triton_url,
        concurrency=16,
        circuit={**LATE, "consecutive_failures": 4},
        **models(batched="batched"),
    )
    for n in range(3):
        names = [f"{n}-{each}" for each in range(16)]
        push_jobs(valkey, *names[:15], model="acme/batched", prompt="work")
        push_jobs(valkey, names[15], model="acme/batched", prompt="raise")
        failed = [code for code in codes(wait_for_results(valkey, *names).values()) if code]
        assert set(failed) == {"triton_inference_failed"}
    found = circuit_of(valkey, worker, "batched")
    assert (found.state, worker.events("circuit.opened")) == ("closed", [])


def test_an_operator_holds_a_circuit_open_and_lets_it_go(
    fleet: Fleet, valkey: Client, redis_url: str, triton_url: str
) -> None:
    """No worker takes its jobs meanwhile; let go, it is tried, and closes."""
    workers = [fleet.start(worker_id=name, runtime_endpoint=triton_url, circuit={}) for name in ("first", "second")]
    at = ("--redis-url", redis_url)
    held = run("speedinfer", "models", "circuit", "open", MODEL, "--reason", "new driver", *at)
    assert held.code == 0, held
    wait_for_circuit("open", *workers)
    push_jobs(valkey, *(f"j-{n}" for n in range(10)))
    for worker in workers:
        worker.wait_for_beats(5)
    assert len(queued(valkey)) == 10
    assert circuit_of(valkey, workers[0], "text_generation").reason == "new driver"
    assert "new driver" in run("speedinfer", "status", *at).out

    assert run("speedinfer", "models", "circuit", "auto", MODEL, *at).code == 0
    assert codes(wait_for_results(valkey, *(f"j-{n}" for n in range(10))).values()) == [None] * 10
    wait_for_circuit("closed", *workers)


def wait(seconds: float) -> None:
    """Let an outage last."""
    threading.Event().wait(seconds)


def most_at_once(served: list[Served]) -> int:
    """The largest number of these that were being served at one moment."""
    return max((at_once(served, one.started_at) for one in served), default=0)


def at_once(served: list[Served], moment: float) -> int:
    """How many of these were being served at a moment."""
    return sum(one.started_at <= moment < (one.finished_at or moment + 1) for one in served)
