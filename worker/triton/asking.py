"""A model as it is asked: what is the same for each of its jobs is made once, and only the rest for each."""

import json
from collections.abc import Iterator
from typing import Final

from settings.runtime import RuntimeConfig
from tasks.errors import InvalidJob
from tasks.job import GenerateJob
from worker.triton.codec import Input, encode_input, encode_request, request_outputs
from worker.triton.http import Limits, Request
from worker.triton.model_contract import FittedTensor, ModelContract, TensorPlan
from worker.triton.server import ModelPath
from worker.triton.values import DoesNotFit

# What an answer holds beside the text: headers, its JSON, the counts.
_ALLOWANCE_BYTES: Final = 64 << 10


class AskedModel:
    """One public name's model, and the requests that its jobs become."""

    def __init__(self, config: RuntimeConfig, contract: ModelContract) -> None:
        """Encode what every request shares."""
        self.outputs = contract.outputs
        self.max_result_bytes = config.max_result_bytes
        self.limits = Limits(
            timeout_seconds=config.timeout_seconds,
            connect_timeout_seconds=config.connect_timeout_seconds,
            max_bytes=config.max_result_bytes + _ALLOWANCE_BYTES,
        )
        self._path = f"{ModelPath(config.model_name, config.model_version)}/infer"
        self._contract = contract
        self._constants = tuple(_encoded(constant) for constant in contract.constants)
        self._requested = request_outputs(contract.outputs.wanted)
        self._prompt_shape = contract.prompt.shape_for(1)

    def request(self, job: GenerateJob, request_id: str) -> Request:
        """Return the inference request of a job.

        Raises:
            InvalidJob: ``max_tokens`` or a parameter does not fit its tensor.
        """
        body, json_bytes = encode_request(self._inputs(job), self._requested, request_id)
        headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(json_bytes),
        }
        if job.traceparent is not None:
            headers["traceparent"] = job.traceparent
        return Request(self._path, body, headers)

    def _inputs(self, job: GenerateJob) -> Iterator[Input]:
        contract = self._contract
        yield encode_input(contract.prompt.name, "BYTES", self._prompt_shape, (job.prompt.encode(),))
        if contract.max_tokens is not None:
            yield _fitted("max_tokens", contract.max_tokens, job.max_tokens)
        yield from self._constants
        for name, value in job.parameters.items():
            if name in contract.options:
                yield _fitted(f"parameter {name}", contract.options[name], value)
            elif contract.options_json is None:
                raise InvalidJob("a parameter is not supported")
        if contract.options_json is not None:
            yield _fitted("parameters", contract.options_json, self._as_json(job))

    def _as_json(self, job: GenerateJob) -> str:
        own_tensor = self._contract.options
        others = {name: value for name, value in job.parameters.items() if name not in own_tensor}
        return json.dumps({**others, "max_tokens": job.max_tokens})


def _fitted(what: str, plan: TensorPlan, value: object) -> Input:
    try:
        return _encoded(plan.holding(value if isinstance(value, list) else (value,)))
    except DoesNotFit as problem:
        raise InvalidJob(f"{what} {problem}") from None


def _encoded(tensor: FittedTensor) -> Input:
    return encode_input(tensor.name, tensor.datatype, tensor.shape, tensor.values)
