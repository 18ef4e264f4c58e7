"""What a failed exchange with Triton means for a job: one table, the text before the status.

Text comes first since the status alone says too little (a queue that is full and a server that shuts down are both 503),
and since servers before 24.01 answer 400 to everything. A pattern stands for the whole beginning of a text: what a model
says further on may hold a part of a prompt, and must not decide anything.
"""

import hashlib
import json
import re
from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tasks.errors import (
    ConnectionLost,
    ContractMismatch,
    InferenceRejected,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    OutputInvalid,
    QueueFull,
    RuntimeTimeout,
    RuntimeUnavailable,
)

_LONGEST_TEXT_READ: Final = 4096
_LONGEST_LINE_LOGGED: Final = 200
_PREFIXES: Final = re.compile(r"(?:\[request id: \S*\] |in ensemble '[^']*', )*")


class Loss(StrEnum):
    """How an exchange ended without an answer to look at."""

    NEVER_SENT = "never_sent"
    REFUSED = "refused"
    NOT_IN_TIME = "not_in_time"
    CONNECTION_LOST = "connection_lost"
    TOO_LARGE = "too_large"
    ENCODED = "encoded"


class ExchangeFailed(Exception):
    """There is no answer; ``reason`` says why in words of ours, for operators."""

    def __init__(self, loss: Loss, reason: str) -> None:
        """Take how it ended."""
        super().__init__(reason)
        self.loss = loss
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Cause:
    """One row: what Triton, or what stands before it, may say, and what that is to a job.

    ``text`` must match from the start of Triton's own error text; ``statuses`` must hold the status; None matches any.
    ``from_triton`` False is for answers that are not of Triton's form, such as a proxy's page.
    """

    name: str
    error: type[JobError]
    text: re.Pattern[str] | None = None
    statuses: Container[int] | None = None
    from_triton: bool | None = None

    def covers(self, status: int, text: str | None) -> bool:
        """Tell whether this row is about such an answer; ``text`` is None where it is not of Triton's form."""
        if self.from_triton is not None and self.from_triton != (text is not None):
            return False
        if self.statuses is not None and status not in self.statuses:
            return False
        return self.text is None or (text is not None and self.text.match(text) is not None)


def _says(name: str, error: type[JobError], *beginnings: str) -> Cause:
    return Cause(name, error, text=re.compile("|".join(beginnings)))


_NAME: Final = r"'[^']*'"
_DECOUPLED: Final = "decoupled model"

CAUSES: Final = (
    # What Triton says, whatever status it comes with.
    _says(
        "model process dead",
        ModelCrashed,
        rf"Stub process {_NAME} is not healthy",
        rf"Failed to process the request\(s\) for model instance {_NAME}, message: "
        r"(?:Stub process is not healthy|Failed to obtain the health mutex)",
    ),
    _says("model exception", ModelException, r"Failed to process the request"),
    _says(
        "vLLM's engine dead",
        ModelCrashed,
        r"Error generating stream: (?:EngineCore encountered an issue\. See stack trace|Background loop (?:has errored|is (?:stopped|not running)))",
    ),
    _says("vLLM's exception", ModelException, r"Error generating stream: "),
    _says("vLLM's engine ill", RuntimeUnavailable, r"Model is unavailable due to unhealthy vLLM engine"),
    _says("adapter not loaded", InferenceRejected, r"LoRA (?:feature is not enabled|.{1,200} is not supported, we )"),
    _says("queue full", QueueFull, r"Exceeds maximum queue size"),
    _says("queue timeout", QueueFull, r"Request timeout expired"),
    _says(
        "model unknown, loading or unloaded",
        ModelNotReady,
        r"Request for unknown model: ",
        r"Model version not ready",
        rf"Model {_NAME} is not ready",
    ),
    _says("stopping", RuntimeUnavailable, r"Server is stopping"),
    _says("wrong datatype", ContractMismatch, rf"inference input {_NAME} data-type is"),
    _says(
        "wrong shape",
        ContractMismatch,
        rf"(?:unexpected|invalid) (?:shape|size) for input {_NAME}",
        rf"input byte size mismatch for input {_NAME}",
        rf"input {_NAME} has no shape",
        rf"The schema can not convert input {_NAME}",
    ),
    _says("input not in JSON", ContractMismatch, r"receiving B?FP?16 data via JSON is not supported"),
    _says("input taken for a parameter", ContractMismatch, rf"parameter {_NAME} has invalid type"),
    _says("batch too big", ContractMismatch, r"inference request batch-size must be <="),
    _says("batch sizes differ", ContractMismatch, rf"input {_NAME} batch size does not match other inputs"),
    _says(
        "inputs missing or too many",
        ContractMismatch,
        r"expected (?:number of inputs between )?\d+ (?:and \d+ )?(?:inputs )?but got \d+ inputs",
    ),
    _says("unknown input or output", ContractMismatch, rf"unexpected inference (?:input|output) {_NAME}"),
    _says("stateful model", ContractMismatch, r"inference request to model .{1,200} must specify"),
    _says(_DECOUPLED, ContractMismatch, r"HTTP end point doesn't support models with decoupled transaction policy"),
    _says("shared memory too small", InferenceRejected, r"shared memory size specified with the request"),
    _says("restricted", ContractMismatch, r"This API is restricted"),
    _says("no such path", ContractMismatch, r"Not Found$", r"Method Not Allowed$"),
    _says("not parsed", InferenceRejected, r"failed to parse the request JSON buffer", r"Unable to parse"),
    _says("too large", InferenceRejected, r"request (?:JSON )?size"),
    _says("none or several answers", OutputInvalid, r"generate expects model to produce exactly 1 response"),
    _says("output not in JSON", OutputInvalid, r"sending B?FP?16 data via JSON is not supported"),
    _says(
        "an output that has not its own size",
        OutputInvalid,
        r"(?:Failed to write 'data' field: )?output tensor shape does not match size of output for ",
    ),
    # What the status says, where the text says nothing that is known.
    Cause("answered, but not as Triton does", OutputInvalid, statuses=range(200, 300)),
    Cause("redirected", ContractMismatch, statuses=range(300, 400)),
    Cause("not allowed", ContractMismatch, statuses=(401, 403, 407)),
    Cause("another server's path", ContractMismatch, statuses=(404, 405, 501), from_triton=False),
    Cause("not read in time", RuntimeUnavailable, statuses=(408,)),
    Cause("too many requests", QueueFull, statuses=(429,)),
    Cause("rejected", InferenceRejected, statuses=range(400, 500)),
    Cause("unsupported by the model", InferenceRejected, statuses=(501,)),
    Cause("gateway lost the server", ConnectionLost, statuses=(502,)),
    Cause("unavailable", RuntimeUnavailable, statuses=(503,)),
    Cause("gateway gave up waiting", RuntimeTimeout, statuses=(504,)),
    Cause("model error", ModelException, statuses=(500,), from_triton=True),
    Cause("gateway failed", ConnectionLost, statuses=range(500, 600)),
    Cause("no status of HTTP", ConnectionLost),
)


class ServerAway(RuntimeUnavailable):
    """The server refuses connections: nothing runs there any more."""


LOSSES: Final[dict[Loss, type[JobError]]] = {
    Loss.NEVER_SENT: RuntimeUnavailable,
    Loss.REFUSED: ServerAway,
    Loss.NOT_IN_TIME: RuntimeTimeout,
    Loss.CONNECTION_LOST: ConnectionLost,
    Loss.TOO_LARGE: OutputInvalid,
    Loss.ENCODED: OutputInvalid,
}


class Refused(Exception):
    """The cause of a JobError that an answer stands behind; its words are ours."""


class NotTriton(Exception):
    """The cause of a JobError where something answers, and is no Triton."""

    def __str__(self) -> str:
        return "what answers there is no Triton"


def cause_of(status: int, text: str | None) -> Cause:
    """Return the row for an answer; ``text`` is Triton's own, None where the answer is not of Triton's form."""
    beginning = None if text is None else _beginning(text)
    return next(cause for cause in CAUSES if cause.covers(status, beginning))


def error_from_answer(status: int, body: bytes, *, status_is_vague: bool = False) -> JobError:
    """Return what an answer that is no inference's result means. Its text is in no part of the error.

    With ``status_is_vague`` a 400 may be anything: what is no known text of Triton's own is what the model said.
    """
    text = error_text(body)
    cause = cause_of(500 if status_is_vague and status == 400 and text is not None else status, text)
    error = cause.error(upstream_status=status)
    error.__cause__ = Refused(f"HTTP {status}: {cause.name}")
    if isinstance(error, ModelException) and text is not None:
        error.text_digest = _digest(_beginning(text))
    return error


def is_decoupled(status: int, body: bytes) -> bool:
    """Tell whether Triton refused to run the model by /infer, since it is a decoupled one."""
    return status != 200 and cause_of(status, error_text(body)).name == _DECOUPLED


def error_from_loss(failed: ExchangeFailed) -> JobError:
    """Return what an exchange without an answer means."""
    error = LOSSES[failed.loss]()
    error.__cause__ = failed
    return error


def _beginning(text: str) -> str:
    """Return what is looked at: without the request's id, which differs within a batch."""
    return _PREFIXES.sub("", text[:_LONGEST_TEXT_READ], count=1)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def error_text(body: bytes) -> str | None:
    """Return the text of Triton's ``{"error": text}``, None where the body is nothing of that form."""
    try:
        content = json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    text = content.get("error") if isinstance(content, dict) else None
    return text if isinstance(text, str) else None


def reason_of(error: JobError) -> str:
    """Return why, in words for operators: no upstream text, but what was refused or lost."""
    return str(error.__cause__ or error.message)


def first_line(body: bytes) -> str:
    """Return what may be logged of an upstream text where the operator asked for it."""
    text = error_text(body)
    whole = body[:_LONGEST_TEXT_READ].decode(errors="replace") if text is None else text
    return (whole.strip().splitlines() or [""])[0][:_LONGEST_LINE_LOGGED]
