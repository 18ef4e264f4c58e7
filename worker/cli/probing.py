"""One real inference of a model, for ``speedinfer check --probe``: what it says, what it counts, how long it takes."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from settings.runtime import RuntimeConfig
    from tasks.generate import Generation
    from worker.triton.adapter import TritonInference

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
    warnings: tuple[str, ...] = ()
    code: str | None = None
    reason: str | None = None


def probe(name: str, config: "RuntimeConfig", triton: "TritonInference", prompt: str) -> ProbeFindings:
    """Run one inference of a public name. Raises nothing where it fails."""
    from tasks.errors import JobError
    from tasks.job import GenerateJob
    from worker.triton.failures import reason_of

    max_tokens = min(MAX_TOKENS, config.max_tokens_limit or MAX_TOKENS)
    job_id = f"probe-{uuid.uuid4()}"
    job = GenerateJob.model_validate({"job_id": job_id, "model": name, "prompt": prompt, "max_tokens": max_tokens})
    begun = time.monotonic()
    try:
        got = triton.infer(job, f"{job_id}/1")
    except JobError as error:
        return ProbeFindings(False, _ms_since(begun), code=error.code, reason=reason_of(error))
    return ProbeFindings(
        True,
        _ms_since(begun),
        text=got.text,
        finish_reason=got.finish_reason,
        prompt_tokens=got.usage.prompt_tokens,
        completion_tokens=got.usage.completion_tokens,
        model_version=got.model_version,
        warnings=tuple(_warnings(got, prompt, max_tokens)),
    )


def lines(found: ProbeFindings) -> Iterator[str]:
    """Yield what people read of it."""
    from worker.cli.output import shown

    if not found.ok:
        yield f"probe: FAILED after {found.inference_ms} ms: {found.code} ({found.reason})"
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
