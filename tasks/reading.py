"""From a queue's bytes to a job, a rejected job or a dead letter. Pure, and total: nothing is raised."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from tasks.errors import InvalidJob, JobError, ModelNotSupported, StreamingNotSupported
from tasks.fingerprint import fingerprint
from tasks.job import GenerateJob, JobId, Label, Metadata, PublicName
from tasks.tensor_limits import TensorLimits
from tasks.tensors import InputParameters, InputTensor, Job, OutputParameters, TensorJob

_MOST_SHOWN: Final = 5
_SHOWN: Final = frozenset(GenerateJob.model_fields) | frozenset(
    (
        *("messages", "input", "inputs", "outputs", "inference_parameters", "options", "priority", "user", "tools"),
        *("temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "n", "best_of", "num_beams", "beam_width"),
        *("stop", "stop_words", "bad_words", "end_id", "ignore_eos", "echo", "length_penalty", "early_stopping"),
        *("max_new_tokens", "max_completion_tokens", "min_tokens", "min_length", "logprobs", "logit_bias"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "response_format"),
    )
)
"""The names that a message may repeat. A key is the customer's own text (a prompt or a secret can stand in its place, and
look like a name), so one that is not among these stays unseen, whatever its form."""
_TENSORS: Final = frozenset({"inputs", "outputs"})
_WITHIN_TENSORS: Final = frozenset(
    field for part in (InputTensor, InputParameters, OutputParameters) for field in part.model_fields
)
_JOB_ID: Final = TypeAdapter(JobId)
_PUBLIC_NAME: Final = TypeAdapter(PublicName)
_LABEL: Final = TypeAdapter(Label)
_METADATA: Final = TypeAdapter(Metadata)


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What a result echoes of its job, also of one that is not valid otherwise."""

    job_id: str
    model: str
    fingerprint: str
    tenant: str | None = None
    batch_id: str | None = None
    custom_id: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a model's configuration allows in a job; ``parameters`` is None where it takes any."""

    max_prompt_bytes: int
    max_tokens_limit: int | None = None
    parameters: frozenset[str] | None = frozenset()


Limits = ModelLimits | TensorLimits
"""Of a model that takes texts, or of one that takes tensors."""


class DeadLetterReason(StrEnum):
    """Why something taken from a queue cannot become a job."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    NO_JOB_ID = "no_job_id"
    TOO_LARGE = "too_large"
    BAD_ENVELOPE = "bad_envelope"
    JOB_ID_CONFLICT = "job_id_conflict"
    DELIVERY_LIMIT_EXCEEDED = "delivery_limit_exceeded"


@dataclass(frozen=True, slots=True)
class ValidJob:
    """A job that may be run."""

    job: Job
    identity: JobIdentity


@dataclass(frozen=True, slots=True)
class RejectedJob:
    """A job that has an id, and so a settlement, but may not be run."""

    identity: JobIdentity
    error: JobError


@dataclass(frozen=True, slots=True)
class NotAJob:
    """Bytes that have no job_id to settle under."""

    reason: DeadLetterReason


def read_job(
    raw: bytes, *, queue_model: str, limits: Limits | None, max_job_bytes: int
) -> ValidJob | RejectedJob | NotAJob:
    """Tell what the bytes of a queue's element are.

    ``queue_model`` is the public name whose queue held them; ``limits`` are that model's, None where it is not declared.
    """
    if len(raw) > max_job_bytes:
        return NotAJob(DeadLetterReason.TOO_LARGE)
    try:
        content = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError:
        return NotAJob(DeadLetterReason.NOT_JSON)
    if not isinstance(content, dict):
        return NotAJob(DeadLetterReason.NOT_AN_OBJECT)
    if not _fits(_JOB_ID, content.get("job_id")):
        return NotAJob(DeadLetterReason.NO_JOB_ID)
    identity = _identity(content, queue_model)
    try:
        return ValidJob(_validated(content, queue_model, limits), identity)
    except JobError as error:
        return RejectedJob(identity, error)


def _identity(content: dict[str, Any], queue_model: str) -> JobIdentity:
    labels = {
        name: content[name]
        for name in ("tenant", "batch_id", "custom_id")
        if name in content and _fits(_LABEL, content[name])
    }
    return JobIdentity(
        job_id=content["job_id"],
        model=content["model"] if _fits(_PUBLIC_NAME, content.get("model")) else queue_model,
        fingerprint=fingerprint(content),
        metadata=content["metadata"] if "metadata" in content and _fits(_METADATA, content["metadata"]) else {},
        **labels,
    )


def _fits(adapter: TypeAdapter[Any], value: object) -> bool:
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _validated(content: dict[str, Any], queue_model: str, limits: Limits | None) -> Job:
    if content.get("stream", False) is not False:
        raise StreamingNotSupported
    if isinstance(content.get("model"), str) and content["model"] != queue_model:
        raise ModelNotSupported
    if limits is None:
        raise ModelNotSupported
    try:
        if isinstance(limits, TensorLimits):
            return _within(limits, TensorJob.model_validate(content))
        job = GenerateJob.model_validate(content)
    except ValidationError as error:
        raise InvalidJob(_named_fields(error)) from None
    _check_limits(job, limits)
    return job


def _within(limits: TensorLimits, job: TensorJob) -> TensorJob:
    unmapped = sorted(job.inference_parameters.keys() - limits.inference_parameters)
    objections = [f"{_shown('parameter', name)} is not allowed" for name in unmapped]
    objections += limits.objections(job)
    if objections:
        raise InvalidJob(_listed(objections))
    return job


def _check_limits(job: GenerateJob, limits: ModelLimits) -> None:
    if len(job.prompt.encode()) > limits.max_prompt_bytes:
        raise InvalidJob(f"prompt is over {limits.max_prompt_bytes} bytes")
    if limits.max_tokens_limit is not None and job.max_tokens > limits.max_tokens_limit:
        raise InvalidJob(f"max_tokens is over {limits.max_tokens_limit}")
    if limits.parameters is None:
        return
    unmapped = sorted(job.parameters.keys() - limits.parameters)
    if unmapped:
        raise InvalidJob(_listed(f"{_shown('parameter', name)} is not supported" for name in unmapped))


def _named_fields(error: ValidationError) -> str:
    """Name what is wrong without a value: these words reach the customer."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return _listed(_in_words(problem["type"], problem["loc"], problem["msg"]) for problem in problems)


def _in_words(kind: str, location: tuple[int | str, ...], message: str) -> str:
    *outer, last = location
    if kind == "extra_forbidden":
        within = f" of {_place(outer)}" if outer else ""
        return f"{_shown('field', str(last))}{within} is unknown"
    if kind == "missing":
        return f"{_place(location)} is missing"
    # The checks of tensors say in words of ours what is wrong with which.
    own_words = kind == "value_error" and location[0] in _TENSORS
    return f"{_place(location)} {message.removeprefix('Value error, ') if own_words else 'is not valid'}"


def _place(location: Sequence[int | str]) -> str:
    """Say where, as far as the names are the contract's own."""
    field, *inner = location
    place = str(field)
    for each in inner if field in _TENSORS else ():
        if isinstance(each, int):
            place += f"[{each}]"
        elif each in _WITHIN_TENSORS:
            place += f".{each}"
    return place


def _listed(problems: Iterable[str]) -> str:
    return "; ".join(list(dict.fromkeys(problems))[:_MOST_SHOWN])


def _shown(kind: str, name: str) -> str:
    return f"{kind} {name}" if name in _SHOWN else f"a {kind}"
