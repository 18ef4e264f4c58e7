"""Why jobs wait, found out with ``speedinfer status`` alone, of real workers on a real Triton: by the words it prints."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess, models, run
from tests.acceptance.gateway import codes, push_jobs, queued, wait_for_results
from tests.acceptance.holding import HoldingLine
from tests.waiting import wait_until
from worker.sandbox.places import free_port

SERVED, MISSING, PINNED, MISFIT, AWAY = "acme/served", "acme/missing", "acme/pinned", "acme/misfit", "acme/away"


@pytest.fixture
def line(triton_url: str) -> Iterator[HoldingLine]:
    """The workers' way to Triton: jobs run until the words about them were seen."""
    with HoldingLine(triton_url) as line:
        yield line


@pytest.fixture
def worker(fleet: Fleet, line: HoldingLine) -> WorkerProcess:
    """A worker with one model that it can run, one that Triton does not have, one version that it does not have, one misfit."""
    behind = models(
        served="text_generation",
        missing="not_there",
        pinned={"model_name": "text_generation", "model_version": "9"},
        misfit={"model_name": "text_generation", "input_name": "prompt_text"},
    )
    kept: dict[str, Any] = {"runtime_endpoint": line.http_url, "drain_seconds": 120, "concurrency": 1}
    return fleet.start(worker_id="w-1", until=("degraded",), **kept, **behind)


@pytest.fixture(autouse=True)
def _no_jobs_left(valkey: Client) -> Iterator[None]:
    yield
    for model in (SERVED, MISSING, PINNED, MISFIT, AWAY):
        valkey.delete(KEYS.jobs(model))


def row(url: str, model: str) -> str:
    """What status prints in the row of a model."""
    ended = run("speedinfer", "status", "--no-json", "--redis-url", url)
    assert ended.code in {0, 1}, ended  # By what is so of the other models, too.
    (found,) = (line for line in ended.out.splitlines() if line.startswith(model))
    return found.rstrip()


def wait_for_words(url: str, model: str, *words: str) -> None:
    """Wait until the row of a model says all of this."""

    def are_said() -> bool:
        found = row(url, model)
        return all(each in found for each in words)

    wait_until(are_said, description=f"status says of {model}: {words}", interval=0.1)


def test_what_keeps_jobs_waiting_is_said_in_words(
    fleet: Fleet, worker: WorkerProcess, line: HoldingLine, valkey: Client, redis_url: str
) -> None:
    """A model that is not ready, one that does not fit, a Triton that is away, a busy worker, a draining one, none."""
    port = free_port()
    away = models(away="text_generation")
    fleet.start(worker_id="w-2", runtime_endpoint=f"http://127.0.0.1:{port}", until=("unavailable",), **away)
    for model in (MISSING, PINNED, MISFIT, AWAY):
        push_jobs(valkey, f"waits-{model[5:]}", model=model)

    wait_for_words(
        redis_url, MISSING, f"Triton at {line.http_url} has not_there not ready: it is not loaded, or is loading (w-1)"
    )
    wait_for_words(
        redis_url,
        PINNED,
        f"Triton at {line.http_url} has version 9 of text_generation not ready: it is not loaded, or is loading (w-1)",
    )
    wait_for_words(
        redis_url,
        MISFIT,
        f"text_generation at {line.http_url} does not fit the configuration: speedinfer check shows both sides (w-1)",
    )
    wait_for_words(
        redis_url, AWAY, f"Triton at http://127.0.0.1:{port} is away: it cannot be reached, or refuses (w-2)"
    )

    line.hold()
    push_jobs(valkey, "runs", model=SERVED, prompt="work")
    wait_until(worker.claims, description="the job runs")
    push_jobs(valkey, "waits", model=SERVED)
    wait_for_words(redis_url, SERVED, "1 jobs in hand, as many as its concurrency lets it (w-1)")
    worker.signal(signal.SIGTERM)
    wait_for_words(redis_url, SERVED, "draining, since it was told to stop (w-1)")
    line.let_go()
    worker.wait()
    wait_for_words(redis_url, SERVED, "no live worker serves it")


def test_a_circuit_that_an_operator_holds_open_keeps_jobs_waiting(fleet: Fleet, valkey: Client, redis_url: str) -> None:
    """With who did it and why, out of routing at once; let go, the jobs run."""
    worker = fleet.start(worker_id="w-1", **models(served="text_generation"))
    registry = KEYS.model_workers(SERVED)
    wait_until(lambda: valkey.zcard(registry), description="routing finds the worker")
    held = run("speedinfer", "models", "circuit", "open", SERVED, "--reason", "new driver", "--redis-url", redis_url)
    assert held.code == 0, held
    wait_until(lambda: not valkey.zcard(registry), description="routing finds the worker no more")
    push_jobs(valkey, "waits", model=SERVED)

    about = ("forced open (new driver)", "the circuit of text_generation at ", ": new driver (w-1)")
    wait_for_words(redis_url, SERVED, *about)
    worker.wait_for_beats(2)
    assert queued(valkey, SERVED) == ["waits"]
    let_go = run("speedinfer", "models", "circuit", "auto", SERVED, "--redis-url", redis_url)
    assert let_go.code == 0, let_go
    assert codes(wait_for_results(valkey, "waits").values()) == [None]


def test_a_killed_worker_is_named_as_lost(fleet: Fleet, valkey: Client, redis_url: str) -> None:
    """Its jobs have no worker any more; it is shown as lost when it has missed three heartbeats."""
    worker = fleet.start(worker_id="killed", **models(served="text_generation"))
    worker.kill()
    push_jobs(valkey, "waits", model=SERVED)
    wait_for_words(redis_url, SERVED, "no live worker serves it; lost: killed")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_concurrency": 1}, "pool gpu has no slot for it: 1 of 1 are taken (w-3)"),
        ({"requests_per_minute": 1}, "pool gpu has granted 1 of 1 requests in the last 60 s (w-3)"),
        ({"tokens_per_minute": 600}, "pool gpu has too few tokens: "),
    ],
    ids=["slots", "requests", "tokens"],
)
def test_a_pool_that_is_used_up_says_which_of_its_limits(
    fleet: Fleet, line: HoldingLine, valkey: Client, redis_url: str, limits: dict[str, int], words: str
) -> None:
    """The first job has taken it; the second waits."""
    pool = {"name": "gpu", **limits}
    endpoint, behind = line.http_url, models(served="text_generation")
    fleet.start(worker_id="w-3", runtime_endpoint=endpoint, concurrency=4, gpu_pool=pool, **behind)
    line.hold()
    push_jobs(valkey, "first", "second", model=SERVED, prompt="work", max_tokens=600 - 4)
    wait_until(lambda: valkey.llen(KEYS.jobs(SERVED)) == 1, description="one runs, and one waits")
    wait_for_words(redis_url, SERVED, words)
    valkey.delete(KEYS.jobs(SERVED))
    line.let_go()
    wait_for_results(valkey, "first")
