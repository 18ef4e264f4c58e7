"""Tensor jobs through a real worker, next to text jobs: from the queue to the settlement stream."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from tasks.tensor_result import Result, TensorResult, read_result
from tests.acceptance.fleet import KEYS, ROOT, Client, Fleet, WorkerProcess, models
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import dead_letters, entries, push, push_jobs, stock_producer
from tests.jobs import LEFT_OUT, TRACEPARENT
from tests.tensor_jobs import ECHO, RULES, tensor, tensor_content, tensor_json
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

ECHOED: Final = "acme/echo"
BEHIND: Final[dict[str, Any]] = {"model_name": ECHO, "kind": "tensors", "tensors": RULES}


@pytest.fixture(scope="module")
def worker(
    standing_fleet: Fleet,
    triton_server: TritonServer,  # noqa: ARG001 - what it runs on
    valkey_server: ValkeyServer,  # noqa: ARG001 - as well
) -> WorkerProcess:
    """One worker for texts and tensors."""
    behind: dict[str, dict[str, Any]] = {
        "model-1": {"model_name": "text_generation"},
        "echo": BEHIND,
        "one": BEHIND | {"model_version": "1"},
        "three": BEHIND | {"model_version": "3"},
    }
    return standing_fleet.start(worker_id="tensors", **models(**behind))


@pytest.fixture(autouse=True)
def _running(worker: WorkerProcess, valkey: Client) -> Iterator[None]:
    worker.wait_until_state("ready")
    wait_until(lambda: valkey.hexists(KEYS.leases, worker.worker_id), description="it has a lease")
    yield
    assert worker.process.poll() is None


def push_tensors(client: Client, *job_ids: str, model: str = ECHOED, **fields: Any) -> None:
    """Push a tensor job for each id."""
    push(client, *(tensor_json(job_id=job_id, model=model, **fields) for job_id in job_ids), queue=KEYS.jobs(model))


def settled(client: Client, *job_ids: str) -> list[Result]:
    """The results of these jobs, once each is settled; once each."""

    def found() -> dict[str, list[str]]:
        by_id: dict[str, list[str]] = {}
        for entry in entries(client):
            by_id.setdefault(entry["job_id"], []).append(entry["result"])
        return by_id

    wait_until(lambda: found().keys() >= set(job_ids), description=f"{job_ids} are settled")
    results = found()
    assert all(len(results[job_id]) == 1 for job_id in job_ids)
    return [read_result(results[job_id][0]) for job_id in job_ids]


def succeeded(client: Client, job_id: str) -> TensorResult:
    """The result of a tensor job, which is what the schema says."""
    (result,) = settled(client, job_id)
    assert isinstance(result, TensorResult)
    assert (result.status, result.error) == ("succeeded", None)
    schema = json.loads((ROOT / "docs" / "schemas" / "tensor-result.json").read_text())
    Draft202012Validator(schema).validate(json.loads(client.get(KEYS.result(job_id))))
    return result


def failed(client: Client, job_id: str) -> tuple[str, str]:
    """The code and message of a tensor job that failed."""
    (result,) = settled(client, job_id)
    assert isinstance(result, TensorResult)
    assert (result.status, result.outputs) == ("failed", None)
    assert result.error is not None
    return result.error.code.value, result.error.message


def state_of(worker: WorkerProcess) -> str:
    """The state of the echo by the health key, once that is there: it lapses while the worker is stalled."""
    return str(wait_until(lambda: worker.model(ECHOED), description="the worker shows its models")["state"])


def values(result: TensorResult) -> dict[str, list[Any] | None]:
    """Its outputs by name."""
    return {output.name: output.data for output in result.outputs or ()}


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_tensors_of_half_precision_are_settled_beside_texts(valkey: Client, witness: Witness, datatype: str) -> None:
    """Both kinds on one worker; each result is whole, with usage in its own units, and the marker knows both."""
    push_jobs(valkey, "text")
    inputs = [tensor(datatype, [0.1, "NaN", "-Infinity"])]
    push_tensors(valkey, "half", inputs=inputs, tenant="t", metadata={"a": "b"}, traceparent=TRACEPARENT)
    result = succeeded(valkey, "half")
    rounded = {"FP16": 0.0999755859375, "BF16": 0.10009765625}[datatype]
    assert values(result) == {f"OUT_{datatype}": [rounded, "NaN", "-Infinity"], "count": [3]}
    assert result.usage is not None
    assert result.usage.model_dump() == {"inferences": 1, "values": 3}
    (attempt,) = result.attempts
    assert (attempt.code, attempt.usage) == (None, result.usage)
    assert (result.tenant, result.metadata, result.model_version) == ("t", {"a": "b"}, "3")
    (text,) = settled(valkey, "text")
    assert text.usage is not None
    assert text.usage.model_dump() == {"prompt_tokens": 1, "completion_tokens": 32, "total_tokens": 33}
    assert [served.request_id.partition("/")[0] for served in witness.served(ECHO)] == ["half"]
    assert valkey.hget(KEYS.settled("half"), "status") == b"succeeded"


def test_a_classification_and_bytes_are_settled(valkey: Client) -> None:
    """With labels; what is no UTF-8 is base64."""
    inputs = [tensor("FP32", [0, 1, 0.5]), tensor("BYTES", ["/w=="], content_type="base64")]
    outputs = [{"name": "OUT_FP32", "parameters": {"classification": 2}}, {"name": "OUT_BYTES"}]
    push_tensors(valkey, "classified", inputs=inputs, outputs=outputs)
    result = succeeded(valkey, "classified")
    assert values(result) == {"OUT_FP32": ["1.000000:1:dog", "0.500000:2:bird"], "OUT_BYTES": ["/w=="]}


def test_versions_are_chosen_by_public_name(valkey: Client) -> None:
    """Two names, one model, two versions; results say which answered."""
    push_tensors(valkey, "j-1", model="acme/one")
    push_tensors(valkey, "j-3", model="acme/three")
    assert [succeeded(valkey, job_id).model_version for job_id in ("j-1", "j-3")] == ["1", "3"]


def test_a_region_that_is_not_allowed_never_reaches_triton(valkey: Client, witness: Witness) -> None:
    """Of an input or an output; its name is not repeated. One that is allowed and not registered is Triton's to refuse."""
    held = {"shared_memory_region": "canary", "shared_memory_byte_size": 8}
    push_tensors(valkey, "in", inputs=[tensor("FP32", None, [1, 2], **held)])
    push_tensors(valkey, "out", outputs=[{"name": "OUT_FP32", "parameters": held}])
    message = "The job does not meet the contract: {}s[0] names a shared-memory region that is not allowed."
    assert failed(valkey, "in") == ("invalid_job", message.format("input"))
    assert failed(valkey, "out") == ("invalid_job", message.format("output"))
    push_tensors(valkey, "none", inputs=[tensor("FP32", None, [1, 2], **held | {"shared_memory_region": "inside"})])
    assert failed(valkey, "none")[0] == "triton_inference_failed"
    assert witness.count(ECHO) == 0


WRONG: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "values": ({"inputs": [tensor("UINT8", [300])]}, "inputs[0].data has values that are not from 0 to 255"),
    "datatype": ({"inputs": [tensor("FP32", [1]) | {"name": "IN_INT8"}]}, "not of the model's datatype, INT8"),
    "parameter": ({"inference_parameters": {"canary": 1}}, "a parameter is not allowed"),
    "output": ({"outputs": [{"name": "canary"}]}, "outputs[0] is none of the model's"),
    "classified-bytes": (
        {
            "inputs": [tensor("BYTES", ["canary"])],
            "outputs": [{"name": "OUT_BYTES", "parameters": {"classification": 1}}],
        },
        "outputs[0] cannot be classified: it is of BYTES",
    ),
    "text": (
        {"inputs": LEFT_OUT, "prompt": "canary", "max_tokens": 5},
        "inputs is missing; field prompt is unknown; field max_tokens is unknown",
    ),
}


def test_wrong_tensor_jobs_are_settled_and_the_model_goes_on(
    valkey: Client, witness: Witness, worker: WorkerProcess
) -> None:
    """Each by name and limit, none of it repeated to anyone; the next job of the model runs."""
    for name, (changes, _) in WRONG.items():
        push_tensors(valkey, name, **changes)
    for name, (_, said) in WRONG.items():
        code, message = failed(valkey, name)
        assert code == "invalid_job"
        assert said in message
        assert "canary" not in message
    push_tensors(valkey, "next")
    assert values(succeeded(valkey, "next"))["OUT_FP32"] == [0.5, 2.0]
    assert witness.count(ECHO) == 1
    assert state_of(worker) == "ready"
    assert "canary" not in worker.log.read_text()


def test_what_only_triton_refuses_is_settled_and_the_model_goes_on(valkey: Client, worker: WorkerProcess) -> None:
    """A text job of such an answer would go back to its queue and pause the model; a tensor job brought it along."""
    push_tensors(valkey, "batches", inputs=[tensor("FP32", [1, 2], [2, 1]), tensor("INT8", [1])])
    push_tensors(valkey, "next")
    assert failed(valkey, "batches")[0] == "triton_inference_failed"
    succeeded(valkey, "next")
    assert state_of(worker) == "ready"


def test_a_tensor_job_sent_again_is_settled_once(valkey: Client) -> None:
    """The same is dropped, another under its id is a dead letter."""
    push_tensors(valkey, "twice")
    before = succeeded(valkey, "twice")
    push_tensors(valkey, "twice", metadata={"another": "one"})
    push_tensors(valkey, "twice", inputs=[tensor("FP32", [9])])
    push_tensors(valkey, "last")
    succeeded(valkey, "last")
    assert succeeded(valkey, "twice") == before
    letters = wait_until(lambda: dead_letters(valkey), description="the other one is a dead letter")
    assert [letter["reason"] for letter in letters] == [b"job_id_conflict"]


def test_a_celery_producer_sends_tensor_jobs_too(valkey: Client, redis_url: str) -> None:
    """In the same task."""
    with stock_producer(redis_url) as producer:
        job = tensor_content(job_id="by-celery", model=ECHOED)
        producer.send_task("speedinfer.generate", args=[job], queue=KEYS.jobs(ECHOED))
    assert values(succeeded(valkey, "by-celery"))["OUT_FP32"] == [0.5, 2.0]


def test_cancelled_and_expired_tensor_jobs_end_as_texts_do(valkey: Client, witness: Witness, gate: Gate) -> None:
    """Before the start nothing is sent; while it runs, its usage is kept and its outputs are not."""
    valkey.set(KEYS.cancel("before"), 1, ex=691_200)
    push_tensors(valkey, "before")
    push_tensors(valkey, "late", expires_at="2020-01-01T00:00:00Z")
    assert failed(valkey, "before")[0] == "job_cancelled"
    assert failed(valkey, "late")[0] == "job_expired"
    assert witness.count(ECHO) == 0

    push_tensors(valkey, "while", inference_parameters={"fault": gate.fault})
    wait_until(lambda: witness.count(ECHO), description="it runs")
    valkey.set(KEYS.cancel("while"), 1, ex=691_200)
    gate.open()
    assert failed(valkey, "while")[0] == "job_cancelled"
    (result,) = settled(valkey, "while")
    assert result.usage is not None
    assert result.usage.model_dump() == {"inferences": 1, "values": 2}


def test_failures_of_the_model_are_judged_as_texts_are(valkey: Client) -> None:
    """After a model exception once more, without usage never; each attempt is in the ledger."""
    push_tensors(valkey, "raises", inference_parameters={"fault": "raise"})
    push_tensors(valkey, "uncounted", inference_parameters={"fault": "count=absent"})
    push_tensors(valkey, "absent", outputs=[{"name": "OUT_FP32"}], inference_parameters={"fault": "absent=OUT_FP32"})
    codes = [failed(valkey, job_id)[0] for job_id in ("raises", "uncounted", "absent")]
    assert codes == ["triton_inference_failed", "runtime_usage_unavailable", "runtime_output_invalid"]
    raises, uncounted, absent = settled(valkey, "raises", "uncounted", "absent")
    assert [len(each.attempts) for each in (raises, uncounted, absent)] == [2, 1, 1]
    assert (raises.usage, uncounted.usage) == (None, None)
    assert absent.usage is not None
    assert absent.attempts[0].usage == absent.usage

    push_tensors(valkey, "after")
    succeeded(valkey, "after")


def test_gateways_can_read_what_kind_a_model_is(valkey: Client, worker: WorkerProcess) -> None:
    """In the registry of declared models."""
    worker.wait_for_beats(1)
    declared = {name.decode(): json.loads(value) for name, value in valkey.hgetall(KEYS.models).items()}
    assert {name: content["kind"] for name, content in declared.items()} == {
        "acme/model-1": "text",
        "acme/echo": "tensors",
        "acme/one": "tensors",
        "acme/three": "tensors",
    }
