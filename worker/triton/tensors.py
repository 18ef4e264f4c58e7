"""A model as tensor jobs ask it: the request that a job becomes, and what an answer to it is worth."""

from collections.abc import Iterator
from typing import Any, Final

from settings.runtime import RuntimeConfig
from tasks.errors import InvalidJob
from tasks.tensor_limits import LEAST_BYTES, over_bytes
from tasks.tensor_result import TensorGeneration
from tasks.tensors import BASE64, InputTensor, InSharedMemory, OutputParameters, TensorJob
from worker.triton.asking import limits_of
from worker.triton.codec import Held, Input, RequestedOutputs, encode_request, encode_tensor, request_output
from worker.triton.http import Answer, Request
from worker.triton.server import ModelPath
from worker.triton.tensor_contract import TensorContract
from worker.triton.tensor_outputs import read_tensors
from worker.triton.tensor_values import Array, array_of
from worker.triton.values import DoesNotFit

_MOST_SHOWN: Final = 5


class AskedTensors:
    """One public name's model of kind ``tensors``."""

    status_is_vague: Final = False

    def __init__(self, config: RuntimeConfig, contract: TensorContract) -> None:
        """Take what does not change from job to job."""
        self.contract = contract
        self.limits = limits_of(config)
        self._max_input_bytes = config.tensors.max_input_bytes
        self._max_result_bytes = config.max_result_bytes
        self._path = f"{ModelPath(config.model_name, config.model_version)}/infer"

    def request(self, job: TensorJob, request_id: str) -> Request:
        """Return the inference request of a job.

        Raises:
            InvalidJob: the job asks for what the model does not have, or its values do not fit.
        """
        objections = list(self.contract.objections(job))
        if objections:
            raise InvalidJob("; ".join(objections[:_MOST_SHOWN]))
        outputs = RequestedOutputs(tuple(self._requested(job)))
        body, json_bytes = encode_request(self._inputs(job), outputs, request_id, job.inference_parameters)
        headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(json_bytes),
        }
        if job.traceparent is not None:
            headers["traceparent"] = job.traceparent
        return Request(self._path, body, headers)

    def read(self, answer: Answer, job: TensorJob, request_id: str) -> TensorGeneration:
        """Return the outputs in an answer with status 200; raises as ``read_tensors`` does."""
        return read_tensors(
            answer,
            self._wanted(job),
            self.contract.usage,
            request_id=request_id,
            max_result_bytes=self._max_result_bytes,
            all_needed=bool(job.outputs),
        )

    def _wanted(self, job: TensorJob) -> dict[str, OutputParameters]:
        if job.outputs:
            return {output.name: output.parameters for output in job.outputs}
        return {output.name: OutputParameters() for output in self.contract.model.outputs}

    def _requested(self, job: TensorJob) -> Iterator[Any]:
        wanted = self._wanted(job)
        for name, parameters in wanted.items():
            yield request_output(name, classification=parameters.classification or 0, held=_held(parameters))
        yield from (request_output(name) for name in dict.fromkeys(self.contract.usage.values()) if name not in wanted)

    def _inputs(self, job: TensorJob) -> list[Input]:
        inputs: list[Input] = []
        size = 0
        for index, tensor in enumerate(job.inputs):
            values = _held(tensor.parameters) or _array(index, tensor)
            size += 0 if isinstance(values, Held) else _bytes_of(values)
            if size > self._max_input_bytes:
                raise InvalidJob(over_bytes(self._max_input_bytes))
            inputs.append(encode_tensor(tensor.name, tensor.datatype, tensor.shape, values))
        return inputs


def _array(index: int, tensor: InputTensor) -> Array:
    is_base64 = tensor.parameters.content_type == BASE64
    try:
        return array_of(tensor.datatype, tensor.shape, tensor.data or [], is_base64=is_base64)
    except DoesNotFit as problem:
        raise InvalidJob(f"inputs[{index}].data {problem}") from None


def _bytes_of(array: Array) -> int:
    if array.dtype != object:
        return array.nbytes
    texts: list[bytes] = array.ravel().tolist()
    return sum(LEAST_BYTES["BYTES"] + len(text) for text in texts)


def _held(parameters: InSharedMemory) -> Held | None:
    if parameters.shared_memory_region is None or parameters.shared_memory_byte_size is None:
        return None
    return Held(parameters.shared_memory_region, parameters.shared_memory_byte_size, parameters.shared_memory_offset)
