"""A real worker's metrics and probes, as Prometheus and Kubernetes see them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess, models
from tests.acceptance.gateway import QUEUE, push, push_jobs, queued, wait_for_results
from tests.acceptance.holding import HoldingLine
from tests.acceptance.scrapes import Series, page, scrape, value
from tests.exported import TRITON_ON_CPU, exported, series_names
from tests.waiting import wait_until
from worker.metrics.families import FAMILIES
from worker.sandbox.places import free_port
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

SERVED, FAULTY, MISFIT = "acme/served", "acme/faulty", "acme/misfit"
BEHIND = models(
    served="text_generation", faulty="faulty", misfit={"model_name": "text_generation", "input_name": "prompt_text"}
)
LIMITED = {"requests_per_minute": 6000, "tokens_per_minute": 1_000_000}
OF_ADAPTIVE_POOLS = ["speedinfer_pool_level_slots"]


@pytest.fixture
def _one_waits(valkey: Client) -> None:
    """A job waits before the worker is there, whose first look at why is soon after its start and the next a minute later."""
    valkey.hset(KEYS.models, MISFIT, "{}")
    push_jobs(valkey, "stays", model=MISFIT)


@pytest.fixture
def worker(fleet: Fleet, triton: TritonServer) -> WorkerProcess:
    """A worker of three models, one of which does not fit, that passes Triton's metrics on."""
    config = fleet.configuration(
        metrics_address="127.0.0.1:0",
        pass_through_triton_metrics=True,
        triton_metrics_url=triton.metrics_url,
        gpu_pool=LIMITED,
        **BEHIND,
    )
    return fleet.start(config=config, until=("degraded",))


@pytest.fixture(autouse=True)
def _no_jobs_left(valkey: Client) -> Iterator[None]:
    yield
    valkey.delete(KEYS.jobs(MISFIT))


def test_a_worker_shows_what_it_did_and_what_waits(worker: WorkerProcess, valkey: Client) -> None:
    """Jobs by code, tokens, durations; the queue that nobody works off; Triton's own figures beside them."""
    push(valkey, b"nonsense", queue=KEYS.jobs(SERVED))
    push_jobs(valkey, "stays", model=MISFIT)
    push_jobs(valkey, *"abc", model=SERVED, max_tokens=7, enqueued_at="2026-11-30T09:00:00Z")
    push_jobs(valkey, "no-usage", model=FAULTY, prompt="both:absent")
    results = wait_for_results(valkey, *"abc", "no-usage")

    def all_is_seen() -> Series:
        """A worker counts a job when Redis has confirmed it, and looks at Redis now and then."""
        found = scrape(worker)
        ended = value(found, "speedinfer_jobs_total") == value(found, "speedinfer_settlements_entries") == 4
        buried = value(found, "speedinfer_dead_letters_total") == value(found, "speedinfer_dead_letters_entries") == 1
        return found if ended and buried and value(found, "speedinfer_triton_metrics_up") else {}

    found = wait_until(all_is_seen, description="all has been seen")
    assert value(found, "speedinfer_jobs_total", model=SERVED, code="ok") == 3
    assert value(found, "speedinfer_jobs_total", code="runtime_usage_unavailable") == 1
    assert value(found, "speedinfer_jobs_total") == 4
    tokens = {kind: value(found, "speedinfer_tokens_total", kind=kind) for kind in ("prompt", "completion")}
    spent = [results[job_id].usage for job_id in "abc"]
    assert tokens == {
        "prompt": sum(usage.prompt_tokens for usage in spent if usage),
        "completion": sum(usage.completion_tokens for usage in spent if usage),
    }
    assert value(found, "speedinfer_dead_letters_total", model=SERVED, reason="not_json") == 1
    assert value(found, "speedinfer_dead_letters_entries") == 1
    assert value(found, "speedinfer_settlements_entries") == 4
    assert value(found, "speedinfer_queue_jobs", model=MISFIT) == 1
    assert value(found, "speedinfer_queue_seconds_count", model=SERVED) == 3
    assert value(found, "speedinfer_inference_seconds_count") == 4
    inferred = sum(results[job_id].timings.inference_ms or 0 for job_id in ("a", "b", "c", "no-usage"))
    assert value(found, "speedinfer_inference_seconds_sum") == pytest.approx(inferred / 1000)
    assert value(found, "speedinfer_model_state", model=MISFIT, state="paused") == 1
    assert value(found, "speedinfer_worker_state", state="degraded") == 1
    assert value(found, "speedinfer_redis_up") == 1
    assert value(found, "speedinfer_pool_slots_limit") == 32
    assert value(found, "speedinfer_pool_requests_last_minute") == 4
    assert value(found, "speedinfer_pool_requests_per_minute_limit") == LIMITED["requests_per_minute"]
    assert value(found, "speedinfer_triton_metrics_up") == 1
    assert queued(valkey, MISFIT) == ["stays"]


@pytest.mark.usefixtures("_one_waits")
def test_a_real_scrape_has_every_family_and_no_other(worker: WorkerProcess) -> None:
    """With the labels that the tests of panels and rules go by; Triton's are labelled by pool."""

    def whole() -> str:
        text = page(worker, "/metrics")[1]
        # Triton's own figures, what Redis was asked for, and why a job waits.
        return text if all(part in text for part in ("\nnv_", "speedinfer_pool_slots_used{", "model_why{")) else ""

    text = wait_until(whole, description="Triton shows its metrics, Redis what waits, and the worker why")
    series = re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", text, re.MULTILINE)
    found: dict[str, set[str]] = {}
    for name, labels in series:
        found.setdefault(name, set()).update(re.findall(r'([a-z_]+)="', labels))
    known = exported()
    assert {name: labels for name, labels in found.items() if name in known} == {
        name: {*labels} for name, labels in known.items() if name in found
    }
    assert {name for name in found if name.startswith("speedinfer_")} <= known.keys()
    assert [family.name for family in FAMILIES if not {*series_names(family)} <= found.keys()] == OF_ADAPTIVE_POOLS
    assert TRITON_ON_CPU.keys() <= found.keys()
    assert text.endswith("\n")


def test_probes_say_whether_the_worker_takes_jobs(fleet: Fleet, valkey: Client, triton_url: str) -> None:
    """Alive whatever is wrong; ready while jobs are taken. A Triton that is away changes nothing of the scrape."""
    away = f"http://127.0.0.1:{free_port()}"
    cut_off = fleet.start(
        worker_id="cut-off",
        runtime_endpoint=away,
        until=("unavailable",),
        metrics_address="127.0.0.1:0",
        pass_through_triton_metrics=True,
    )
    assert page(cut_off, "/healthz") == (200, "alive\n")
    # It is that for a moment before its first look at Triton, too.
    wait_until(lambda: page(cut_off, "/readyz") == (503, "unavailable\n"), description="it is not ready")
    assert value(scrape(cut_off), "speedinfer_triton_metrics_up") == 0

    with HoldingLine(triton_url) as line:
        endpoint = line.http_url
        worker = fleet.start(metrics_address="127.0.0.1:0", drain_seconds=120, runtime_endpoint=endpoint)
        assert page(worker, "/readyz") == (200, "ready\n")
        line.hold()
        push_jobs(valkey, "runs", prompt="work")
        wait_until(lambda: value(scrape(worker), "speedinfer_in_flight_jobs") == 1, description="the job runs")
        worker.process.terminate()
        wait_until(lambda: page(worker, "/readyz") == (503, "draining\n"), description="it drains")
        assert page(worker, "/healthz") == (200, "alive\n")
        line.let_go()
        wait_for_results(valkey, "runs")
        assert worker.wait() == 0


def test_a_worker_whose_redis_is_silent_is_alive_and_not_ready(
    tmp_path: Path, durable_valkey: ValkeyServer, triton: TritonServer
) -> None:
    """From when it has claimed nothing for a while until Redis is back: routing finds another, and nothing restarts it."""
    with Fleet(tmp_path, triton.url, durable_valkey.url) as fleet:
        worker = fleet.start(metrics_address="127.0.0.1:0")
        wait_until(lambda: page(worker, "/readyz") == (200, "ready\n"), description="it is ready")
        durable_valkey.freeze()
        wait_until(
            lambda: page(worker, "/readyz") == (503, "unavailable\n"), description="it is not ready", timeout=90.0
        )
        assert page(worker, "/healthz") == (200, "alive\n")
        durable_valkey.thaw()
        wait_until(lambda: page(worker, "/readyz") == (200, "ready\n"), description="it is ready again", timeout=60.0)


def test_two_workers_of_one_address_are_not_two(fleet: Fleet, valkey: Client, triton_url: str, tmp_path: Path) -> None:
    """The second says what is wrong in one line and ends, before it takes any job; each counts for itself at its own.

    No file is between them, even where prometheus_client is told to write some.
    """
    shared = tmp_path / "shared"
    shared.mkdir()
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(shared)}
    with HoldingLine(triton_url) as line:
        own: dict[str, Any] = {"environment": environment, "runtime_endpoint": line.http_url}
        first = fleet.start(metrics_address=f"127.0.0.1:{free_port()}", **own)
        second = fleet.start(worker_id="w-2", metrics_address=first.config["metrics_address"], until=())
        assert second.wait() == 2
        (refusal,) = second.events("worker.was_refused")
        assert refusal["reason"].startswith(f"metrics_address {first.config['metrics_address']}: ")

        third = fleet.start(worker_id="w-3", metrics_address="127.0.0.1:0", **own)
        jobs = [f"j-{n}" for n in range(8)]
        line.hold()
        push_jobs(valkey, *jobs, prompt="work")
        wait_until(lambda: not valkey.exists(QUEUE), description="each runs as many as it can, half of them")
        line.let_go()
        wait_for_results(valkey, *jobs)
    for worker in (first, third):
        wait_until(lambda worker=worker: jobs_done(worker) == 4, description="each has counted its own")  # type: ignore[misc]  # mypy infers no default
    assert [*shared.iterdir()] == []


def jobs_done(worker: WorkerProcess) -> float | None:
    """Return how many jobs a worker says have succeeded with it."""
    return value(scrape(worker), "speedinfer_jobs_total", code="ok")
