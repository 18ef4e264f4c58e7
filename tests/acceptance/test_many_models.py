"""A worker with hundreds of public names on a real Triton: jobs of all, and models that come and go while it runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks import ensembles
from tests.acceptance.fleet import Client, Fleet
from tests.acceptance.gateway import push_jobs, queued, wait_for_results
from tests.triton_http import call, load
from tests.waiting import wait_until
from worker.sandbox.triton_server import TritonServer

COUNT: Final = 200
NAMES: Final = ensembles.names(COUNT)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TritonServer]:
    """A Triton with hundreds of models."""
    with TritonServer(ensembles.repository(tmp_path / "models", COUNT), control="explicit", models=["*"]) as running:
        yield running


@pytest.mark.long
def test_models_come_and_go_while_a_worker_with_hundreds_of_them_runs(
    fleet: Fleet, valkey: Client, server: TritonServer
) -> None:
    """Jobs of all names are settled; one that vanishes is paused without a job, what ran on it ends well, what waits runs when it is back."""
    worker = fleet.start(runtime_endpoint=server.url, concurrency=8, **ensembles.behind(NAMES))
    for name in NAMES:
        push_jobs(valkey, name, model=f"acme/{name}")
    results = wait_for_results(valkey, *NAMES, timeout=60)
    assert {result.status for result in results.values()} == {"succeeded"}

    gone = f"acme/{NAMES[50]}"
    push_jobs(valkey, "running", model=gone, prompt="sleep=1.5 x")
    wait_until(lambda: not queued(valkey, gone), description="the job runs")
    call(server.url, "POST", f"/v2/repository/models/{NAMES[50]}/unload")
    wait_until(lambda: worker.model(gone).get("state") == "paused", description="it is noticed", timeout=30)
    assert wait_for_results(valkey, "running")["running"].status == "succeeded"
    assert worker.health()["state"] == "degraded"

    push_jobs(valkey, "waiting", model=gone)
    push_jobs(valkey, "other", model=f"acme/{NAMES[51]}")
    assert wait_for_results(valkey, "other")["other"].status == "succeeded"
    assert queued(valkey, gone) == ["waiting"]
    load(server.url, NAMES[50])
    result = wait_for_results(valkey, "waiting")["waiting"]
    assert (result.status, len(result.attempts)) == ("succeeded", 1)
    worker.wait_until_state("ready")
