"""Tensor jobs with boring defaults, and the adapter of a model that gives back what it gets."""

import json
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

import pytest

from tasks.errors import JobError
from tasks.tensor_result import OutputTensor, TensorGeneration
from tasks.tensors import TensorJob
from tests.inferences import inference_on
from tests.jobs import MODEL, changed
from worker.triton.adapter import TritonInference

E = TypeVar("E", bound=JobError)

ECHO: Final = "tensor_echo"
"""The Triton model that gives each input IN_X back as OUT_X (tests/models)."""

RULES: Final[dict[str, Any]] = {
    "usage": {"values": "count"},
    "inference_parameters": ["fault", "note", "priority", "timeout"],
    "shared_memory_regions": ["inside", "outside"],
}


def tensor(datatype: str, data: Any, shape: list[Any] | None = None, **parameters: Any) -> dict[str, Any]:
    """Return an input of the echo: a row of values unless there is a shape; ``data`` None leaves it out."""
    content = {"name": f"IN_{datatype}", "datatype": datatype, "shape": [1, len(data)] if shape is None else shape}
    return {
        **content,
        **({} if data is None else {"data": data}),
        **({"parameters": parameters} if parameters else {}),
    }


def tensor_content(**changes: Any) -> dict[str, Any]:
    """Return a valid tensor job as a gateway thinks of it, with these fields changed or LEFT_OUT."""
    return changed({"job_id": "j-1", "model": MODEL, "inputs": [tensor("FP32", [0.5, 2])]}, changes)


def full_tensor_content(**changes: Any) -> dict[str, Any]:
    """Return a valid tensor job that sets every field of its own."""
    inputs = [
        tensor("FP32", [0.5, "NaN"], shared_memory_offset=0),
        tensor("BYTES", ["/w=="], content_type="base64"),
        tensor("INT8", None, [1, 4], shared_memory_region="inside", shared_memory_byte_size=4, shared_memory_offset=8),
    ]
    outputs = [{"name": "OUT_FP32", "parameters": {"classification": 1}}, {"name": "OUT_BYTES"}]
    parameters = {"note": "x", "fault": "", "priority": 1, "timeout": 1000}
    return tensor_content(
        **{"inputs": inputs, "outputs": outputs, "inference_parameters": parameters, "tenant": "t", **changes}
    )


def tensor_json(**changes: Any) -> bytes:
    """Return a valid tensor job as the bytes in a queue."""
    return json.dumps(tensor_content(**changes)).encode()


def tensor_job(**changes: Any) -> TensorJob:
    """Return a valid tensor job as the task has it."""
    return TensorJob.model_validate(tensor_content(**changes))


def tensors_on(url: str, model_name: str = ECHO, **fields: Any) -> AbstractContextManager[TritonInference]:
    """An adapter for the public name ``MODEL``, of kind ``tensors``; ``tensors`` are its rules."""
    return inference_on(url, model_name, **{"kind": "tensors", "tensors": RULES, **fields})


def run_tensors(adapter: TritonInference, *, request_id: str = "j-1/tag", **changes: Any) -> TensorGeneration:
    """Run one job."""
    return adapter.infer_tensors(tensor_job(**changes), request_id)


def output_of(adapter: TritonInference, **changes: Any) -> OutputTensor:
    """Run one job that has one output, beside what it is billed by."""
    (output,) = [output for output in run_tensors(adapter, **changes).outputs if output.name != "count"]
    return output


def tensors_failure(adapter: TritonInference, error: type[E], **changes: Any) -> E:
    """Run one job that must fail with exactly this class, and return its error."""
    with pytest.raises(error) as caught:
        run_tensors(adapter, **changes)
    assert type(caught.value) is error
    return caught.value
