"""A configuration that does not fit its model: the jobs wait, both sides are shown, and a repair opens the model by itself."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.delivery import wait_until_paused
from tests.acceptance.fleet import Client, Fleet, models, run
from tests.acceptance.gateway import codes, push_jobs, queued, wait_for_results
from tests.conftest import MODELS
from tests.triton_http import load
from worker.sandbox.triton_server import TritonServer

MISNAMED = "max_new_tokens"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The configuration of a model whose input is called otherwise than the worker's configuration says."""
    repository = tmp_path / "repository"
    shutil.copytree(MODELS / "text_generation", repository / "misnamed")
    shutil.copytree(MODELS / "text_generation", repository / "text_generation")
    config = repository / "misnamed" / "config.pbtxt"
    content = config.read_text().replace('name: "text_generation"', 'name: "misnamed"')
    config.write_text(content.replace('"max_tokens"', f'"{MISNAMED}"'))
    return config


@pytest.fixture
def server(model: Path) -> Iterator[TritonServer]:
    """A Triton with that model and a good one."""
    with TritonServer(model.parents[1], control="explicit", models=["misnamed", "text_generation"]) as triton:
        yield triton


def test_a_misnamed_tensor_keeps_its_jobs_waiting_until_the_model_is_repaired(
    fleet: Fleet, valkey: Client, server: TritonServer, model: Path
) -> None:
    """No job of it is sent or charged; the log and ``check`` show both sides; a model that is loaded anew is tried again."""
    worker = fleet.start(
        runtime_endpoint=server.url, until=("degraded",), **models(wrong="misnamed", right="text_generation")
    )
    config = fleet.write(worker.config)
    push_jobs(valkey, "waits-1", "waits-2", model="acme/wrong")
    push_jobs(valkey, "goes", model="acme/right")

    assert codes(wait_for_results(valkey, "goes").values()) == [None]
    assert queued(valkey, "acme/wrong") == ["waits-1", "waits-2"]
    wait_until_paused(worker, "acme/wrong", "runtime_contract_mismatch")
    (logged,) = worker.events("model.mismatched")
    assert logged["model"] == "acme/wrong"
    assert "max_tokens" in logged["report"]
    assert MISNAMED in logged["report"]
    checked = run("speedinfer", "check", "--config", str(config))
    assert checked.code == 1, checked
    verdicts = {found["model"]: found["verdict"] for found in json.loads(checked.out)["models"]}
    assert verdicts == {"acme/wrong": "mismatch", "acme/right": "fits"}
    assert MISNAMED in checked.out

    model.write_text(model.read_text().replace(f'"{MISNAMED}"', '"max_tokens"'))
    load(server.url, "misnamed")

    results = wait_for_results(valkey, "waits-1", "waits-2")
    worker.wait_until_state("ready")
    assert codes(results.values()) == [None, None]
    assert [len(result.attempts) for result in results.values()] == [1, 1]
    assert len(worker.events("model.mismatched")) == 1
    assert run("speedinfer", "check", "--config", str(config)).code == 0
