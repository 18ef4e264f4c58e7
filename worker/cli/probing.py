"""One real inference of a model, for ``speedinfer check --probe``: what it says, what it counts, how long it takes."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from settings.runtime import RuntimeConfig
    from tasks.generate import Generation
    from tasks.tensor_result import TensorGeneration
    from worker.triton.adapter import TritonInference
    from worker.triton.description import ModelDescription, TensorDescription

MAX_TOKENS = 16
PROMPT = "Say hello."


@dataclass(frozen=True, slots=True)
class ProbeFindings:
    """What became of the inference; ``warnings`` says what looks wrong in an answer that would be settled."""

    ok: bool
    inference_ms: int
    text: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model_version: str | None = None
    usage: dict[str, int] | None = None
    """Of tensors: what a job would be billed by."""
    outputs: tuple[str, ...] = ()
    """Of tensors: name, datatype and shape of each."""
    warnings: tuple[str, ...] = ()
    code: str | None = None
    reason: str | None = None


def probe(
    name: str, config: "RuntimeConfig", model: "ModelDescription", triton: "TritonInference", prompt: str
) -> ProbeFindings:
    """Run one inference of a public name, of tensors with zeros in them. Raises nothing where it fails."""
    if config.kind == "tensors":
        return _tensors(name, model, triton)
    from tasks.job import GenerateJob

    max_tokens = min(MAX_TOKENS, config.max_tokens_limit or MAX_TOKENS)
    fields = {"job_id": _job_id(), "model": name, "prompt": prompt, "max_tokens": max_tokens}
    job = GenerateJob.model_validate(fields)
    got, inference_ms = _run(lambda: triton.infer(job, f"{job.job_id}/1"))
    if isinstance(got, ProbeFindings):
        return got
    return ProbeFindings(
        True,
        inference_ms,
        text=got.text,
        finish_reason=got.finish_reason,
        prompt_tokens=got.usage.prompt_tokens,
        completion_tokens=got.usage.completion_tokens,
        model_version=got.model_version,
        warnings=tuple(_warnings(got, prompt, max_tokens)),
    )


def _tensors(name: str, model: "ModelDescription", triton: "TritonInference") -> ProbeFindings:
    from tasks.tensors import TensorJob

    required = [tensor for tensor in model.inputs if not tensor.optional]
    inputs = [_zeros(tensor) for tensor in required or model.inputs[:1]]
    if not inputs:
        return ProbeFindings(False, 0, code="invalid_job", reason="the model has no input, so no job can be for it")
    job = TensorJob.model_validate({"job_id": _job_id(), "model": name, "inputs": inputs})
    got, inference_ms = _run(lambda: triton.infer_tensors(job, f"{job.job_id}/1"))
    if isinstance(got, ProbeFindings):
        return got
    return ProbeFindings(
        True,
        inference_ms,
        model_version=got.model_version,
        usage=dict(got.usage.root),
        outputs=tuple(_in_words(got)),
    )


def _zeros(tensor: "TensorDescription") -> dict[str, Any]:
    shape = [max(1, size) for size in tensor.shape]
    zero: Any = {"BYTES": "", "BOOL": False}.get(tensor.datatype, 0)
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": shape, "data": [zero] * prod(shape)}


def _in_words(got: "TensorGeneration") -> Iterator[str]:
    for output in got.outputs:
        yield f"{output.name} {output.datatype} [{','.join(map(str, output.shape))}]"


def _run(infer: Callable[[], Any]) -> tuple[Any, int]:
    """Return what the inference gave, or the findings that it failed, and how long it took."""
    from tasks.errors import JobError
    from worker.triton.failures import reason_of

    begun = time.monotonic()
    try:
        got = infer()
    except JobError as error:
        took_ms = _ms_since(begun)
        return ProbeFindings(False, took_ms, code=error.code, reason=error.detail or reason_of(error)), took_ms
    return got, _ms_since(begun)


def _job_id() -> str:
    return f"probe-{uuid.uuid4()}"


def lines(found: ProbeFindings) -> Iterator[str]:
    """Yield what people read of it."""
    from worker.cli.output import shown

    if not found.ok:
        yield f"probe: FAILED after {found.inference_ms} ms: {found.code} ({found.reason})"
        return
    if found.usage is not None:
        units = ", ".join(f"{count} {unit}" for unit, count in found.usage.items())
        yield f"probe: {shown(units)} in {found.inference_ms} ms, of inputs that are zero"
        yield f"       outputs: {shown(', '.join(found.outputs))}"
        return
    finished = f", finish reason {shown(found.finish_reason)}" if found.finish_reason else ""
    counts = f"{found.prompt_tokens} prompt + {found.completion_tokens} completion tokens"
    yield f"probe: {counts} in {found.inference_ms} ms{finished}"
    yield f'       text: "{shown(found.text)}"' if found.text else "       text: (empty)"
    yield from (f"       warning: {warning}" for warning in found.warnings)


def _warnings(got: "Generation", prompt: str, max_tokens: int) -> Iterator[str]:
    if got.text.startswith(prompt):
        yield "the text begins with the prompt; most models have an input that leaves it out"
    if got.usage.completion_tokens > max_tokens:
        yield f"{got.usage.completion_tokens} completion tokens for max_tokens {max_tokens}: the count may include the prompt"
    if not got.usage.completion_tokens and got.text:
        yield "a text of no completion tokens"


def _ms_since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)


def as_json(found: ProbeFindings | None) -> dict[str, Any] | None:
    """Return the findings as JSON holds them, None for none."""
    from dataclasses import asdict

    return None if found is None else asdict(found)
