"""A model as it is asked: what is the same for each of its jobs is made once, and only the rest for each."""

from dataclasses import replace
from typing import Final, Protocol

from settings.runtime import RuntimeConfig
from tasks.job import GenerateJob
from worker.triton.binary import binary_slot, outputs_field, read_answer, request_body
from worker.triton.codec import InferenceAnswer, NoInferenceAnswer
from worker.triton.generating import generate_body, json_slot, read_generated
from worker.triton.http import Answer, Limits, Request
from worker.triton.job_inputs import JobInputs
from worker.triton.model_contract import ModelContract
from worker.triton.outputs import ReadGeneration, read_generation
from worker.triton.server import ModelPath

# What an answer holds beside the text: headers, its JSON, the counts.
_ALLOWANCE_BYTES: Final = 64 << 10
# What one byte of a text may become in JSON.
_LONGEST_ESCAPE: Final = len("\\u0000")


class AskedModel(Protocol):
    """One public name's model: the requests that its jobs become, and what its answers are worth."""

    limits: Limits
    status_is_vague: bool
    """Whether Triton answers 400 to whatever is wrong, so that only its text tells."""

    def request(self, job: GenerateJob, request_id: str) -> Request:
        """Return the request of a job.

        Raises:
            InvalidJob: ``max_tokens`` or a parameter does not fit the model.
            StreamingNotSupported: a parameter asks for a stream.
        """
        ...

    def read(self, answer: Answer, request_id: str) -> ReadGeneration:
        """Return the generation in an answer with status 200.

        Raises:
            NoInferenceAnswer: it is no inference's result: something may say with 200 that it failed.
            OutputInvalid: its text is not valid, or it answers another request.
            UsageUnavailable: a count is not valid.
        """
        ...

    def by_generate(self) -> "AskedModel | None":
        """Return the same asked by /generate, where the configuration leaves it open and it is not already."""
        ...


def limits_of(config: RuntimeConfig) -> Limits:
    """Return what one exchange with a model may take."""
    return Limits(
        timeout_seconds=config.timeout_seconds,
        connect_timeout_seconds=config.connect_timeout_seconds,
        max_bytes=config.max_result_bytes + _ALLOWANCE_BYTES,
    )


def asked_model(config: RuntimeConfig, contract: ModelContract) -> AskedModel:
    """Return a text model as its contract says that it is asked."""
    return _ByGenerate(config, contract) if contract.transport == "generate" else _ByInfer(config, contract)


class _Text:
    """What both endpoints have in common."""

    status_is_vague = False

    def __init__(self, config: RuntimeConfig, contract: ModelContract) -> None:
        self.limits = limits_of(config)
        self._config = config
        self._contract = contract
        self._model = str(ModelPath(config.model_name, config.model_version))
        self._wanted = contract.outputs.wanted

    def by_generate(self) -> AskedModel | None:
        return None

    def _generation(self, result: InferenceAnswer, request_id: str) -> ReadGeneration:
        if result.request_id is None:
            raise NoInferenceAnswer
        return read_generation(
            result, self._contract.outputs, request_id=request_id, max_result_bytes=self._config.max_result_bytes
        )


class _ByInfer(_Text):
    """Asked by /infer, with binary tensors."""

    def __init__(self, config: RuntimeConfig, contract: ModelContract) -> None:
        super().__init__(config, contract)
        self._inputs = JobInputs(contract, binary_slot)
        self._outputs = outputs_field(self._wanted)

    def request(self, job: GenerateJob, request_id: str) -> Request:
        body, json_bytes = request_body(self._inputs.of(job), self._outputs, request_id)
        headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(json_bytes),
            **_trace(job),
        }
        return Request(f"{self._model}/infer", body, headers)

    def read(self, answer: Answer, request_id: str) -> ReadGeneration:
        return self._generation(read_answer(answer.body, answer.json_bytes, self._wanted), request_id)

    def by_generate(self) -> AskedModel | None:
        if self._config.transport != "auto":
            return None
        return _ByGenerate(self._config, replace(self._contract, transport="generate"))


class _ByGenerate(_Text):
    """Asked by /generate, with JSON."""

    status_is_vague = True

    def __init__(self, config: RuntimeConfig, contract: ModelContract) -> None:
        super().__init__(config, contract)
        self.limits = replace(self.limits, max_bytes=_LONGEST_ESCAPE * config.max_result_bytes + _ALLOWANCE_BYTES)
        self._inputs = JobInputs(contract, json_slot)

    def request(self, job: GenerateJob, request_id: str) -> Request:
        body = generate_body(self._inputs.of(job), request_id)
        return Request(f"{self._model}/generate", body, {"Content-Type": "application/json", **_trace(job)})

    def read(self, answer: Answer, request_id: str) -> ReadGeneration:
        return self._generation(read_generated(answer.body, self._wanted), request_id)


def _trace(job: GenerateJob) -> dict[str, str]:
    return {} if job.traceparent is None else {"traceparent": job.traceparent}
