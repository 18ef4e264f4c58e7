"""One worker before a Triton with the models that people run: each public name by its preset, from queue to settlement."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.acceptance.fleet import Client, Fleet, models
from tests.acceptance.gateway import push_jobs, wait_for_results
from tests.integration.conftest import LOOKALIKES
from worker.sandbox.triton_server import TritonServer

TENSORRT_LLM: Final = {"preset": "tensorrt_llm"}
PUBLIC: Final[dict[str, dict[str, Any]]] = {
    "vllm": {"preset": "vllm", "model_name": "vllm_model"},
    "trt": {**TENSORRT_LLM, "model_name": "ensemble"},
    "trt-decoupled": {**TENSORRT_LLM, "model_name": "ensemble_decoupled"},
    "trt-bls": {**TENSORRT_LLM, "model_name": "tensorrt_llm_bls"},
    "v1": {"model_name": "versions", "model_version": "1"},
    "v2": {"model_name": "versions", "model_version": "2"},
}
SAY_WORDS: Final = ("vllm", "trt", "trt-decoupled", "trt-bls")


@pytest.fixture
def triton() -> Iterator[TritonServer]:
    """A Triton with the models behind these names."""
    behind = {fields["model_name"] for fields in PUBLIC.values()} | {"tensorrt_llm", "tensorrt_llm_decoupled"}
    with TritonServer(LOOKALIKES, control="explicit", models=sorted(behind), own_copy=True) as server:
        yield server


def test_every_kind_of_model_is_settled_with_its_text_its_counts_and_its_version(
    valkey: Client, fleet: Fleet, triton: TritonServer
) -> None:
    """Parameters reach each in its own way; what a model has no place for, and what has no one answer, is coded."""
    fleet.start(runtime_endpoint=triton.url, **models(**PUBLIC))
    parameters = {"temperature": 0.5, "top_k": 40, "seed": 7, "stop": ["\n"]}
    for name in SAY_WORDS:
        push_jobs(valkey, f"right-{name}", model=f"acme/{name}", prompt="a b c", max_tokens=4, parameters=parameters)
        push_jobs(valkey, f"wrong-{name}", model=f"acme/{name}", prompt="a", parameters={"n": 2})
    for name in ("vllm", "trt-decoupled"):
        push_jobs(valkey, f"two-{name}", model=f"acme/{name}", prompt="responses=2 x")
    for name in ("v1", "v2"):
        push_jobs(valkey, name, model=f"acme/{name}")

    expected = [f"{kind}-{name}" for kind in ("right", "wrong") for name in SAY_WORDS]
    results = wait_for_results(valkey, *expected, "two-vllm", "two-trt-decoupled", "v1", "v2")

    for name in SAY_WORDS:
        right = results[f"right-{name}"]
        assert (right.text, right.model_version) == (" word word word word", "1")
        assert right.usage is not None
        assert right.usage.model_dump() == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        assert right.finish_reason == ("length" if name == "vllm" else None)
    codes = {job_id: result.error and result.error.code for job_id, result in results.items()}
    assert {codes[f"wrong-{name}"] for name in SAY_WORDS} == {"invalid_job"}
    assert {codes["two-vllm"], codes["two-trt-decoupled"]} == {"runtime_output_invalid"}
    assert [(results[name].text, results[name].model_version) for name in ("v1", "v2")] == [
        ("version 1", "1"),
        ("version 2", "2"),
    ]
