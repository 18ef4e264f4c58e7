"""From a line to a job: the same line of the same batch makes the same job, whenever it is read."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from tasks.job import GenerateJob
from tasks.reading import DeadLetterReason, ModelLimits, NotAJob, RejectedJob, ValidJob, read_job
from worker.batch.bad_line import BadLine
from worker.batch.lines import Record
from worker.batch.models import ModelCard
from worker.batch.prompts import render
from worker.batch.requests import Endpoint, Request, custom_id_of, read_request

_UNKNOWN_LIMITS: Final = ModelLimits(max_prompt_bytes=1 << 30, parameters=None)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What lines are taken to say that say nothing: ``model``, ``max_tokens`` and ``tenant``, None for nothing."""

    model: str | None = None
    max_tokens: int | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a batch's input; ``number`` says where it stands in the file, from 1."""

    batch_id: str
    number: int
    custom_id: str

    @property
    def job_id(self) -> str:
        """Return the id of the line's job: the same in every run of the batch."""
        return f"{self.batch_id}:{self.number}"


@dataclass(frozen=True, slots=True)
class Asked(Line):
    """A line that is a job."""

    endpoint: Endpoint
    model: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A line with its job, ready to be sent; ``size`` is about that of the job in bytes."""

    line: Asked
    job: GenerateJob = field(repr=False)
    size: int


class Templates(Protocol):
    """What a batch remembers of chat templates, so that a later run makes the same prompts."""

    def template_for(self, model: str, found: Callable[[], str | None]) -> str | None:
        """Return the template that the batch uses for a model: the first that was found for it."""
        ...


def line_of(batch_id: str, record: Record) -> Line:
    """Return the line that a record is; one without a usable ``custom_id`` is named after its number."""
    return Line(batch_id, record.number, custom_id_of(record.content) or f"line-{record.number}")


class JobMaker:
    """Makes the jobs of one batch. ``now`` is the batch's own time, which chat templates may write down."""

    def __init__(
        self,
        batch_id: str,
        now: datetime,
        defaults: Defaults,
        *,
        card: Callable[[str], ModelCard],
        templates: Templates,
        max_job_bytes: int,
    ) -> None:
        self._batch_id = batch_id
        self._now = now
        self._defaults = defaults
        self._card = card
        self._templates = templates
        self._max_job_bytes = max_job_bytes

    def make(self, record: Record) -> Planned:
        """Return the line's job. Raises BadLine."""
        if isinstance(record.content, BadLine):
            raise record.content
        request = read_request(record.content)
        model = self._model(request)
        card = self._card(model)
        line = line_of(self._batch_id, record)
        content = self._content(line, request, model, self._prompt(request, model, card))
        return self._planned(line, request.endpoint, content, card)

    def _model(self, request: Request) -> str:
        model = request.model if request.model is not None else self._defaults.model
        if model is None:
            raise BadLine("the line names no model", option="--model")
        if not isinstance(model, str):
            raise BadLine("model must be a text")
        return model

    def _prompt(self, request: Request, model: str, card: ModelCard) -> str:
        if not card.takes_prompts:
            raise BadLine("the model takes tensors, not prompts")
        if isinstance(request.prompt, str):
            return request.prompt
        template = self._templates.template_for(model, lambda: card.chat_template)
        if template is None:
            raise BadLine("no chat template is known for the model", option="--config")
        return render(template, request.prompt, self._now)

    def _content(self, line: Line, request: Request, model: str, prompt: str) -> dict[str, Any]:
        max_tokens = self._defaults.max_tokens if request.max_tokens is None else request.max_tokens
        if max_tokens is None:
            raise BadLine("the line says no max_tokens", option="--max-tokens")
        return {
            "job_id": line.job_id,
            "model": model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "parameters": request.parameters,
            "tenant": self._defaults.tenant,
            "batch_id": self._batch_id,
            "custom_id": line.custom_id,
            **request.attended,
        }

    def _planned(self, line: Line, endpoint: Endpoint, content: dict[str, Any], card: ModelCard) -> Planned:
        try:
            raw = json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadLine("the prompt is not Unicode text") from None
        match read_job(
            raw,
            queue_model=content["model"],
            limits=card.limits or _UNKNOWN_LIMITS,
            max_job_bytes=self._max_job_bytes,
        ):
            case ValidJob(job=GenerateJob() as job):
                asked = Asked(line.batch_id, line.number, line.custom_id, endpoint, job.model, job.max_tokens)
                return Planned(asked, job, len(raw))
            case RejectedJob(error=error):
                raise BadLine(error.message, code=error.code.value)
            case NotAJob(reason=DeadLetterReason.TOO_LARGE):
                raise BadLine(f"the job is over {self._max_job_bytes} bytes", code=DeadLetterReason.TOO_LARGE.value)
            case _:
                raise BadLine("the line holds a number that JSON cannot write")
