"""Reads the job out of what the claim script left unread: a Celery protocol 2 message, a job in unusual JSON, or one to be compared.

Pure. A message that asks for what a job cannot have (a time, a callback, another serializer) is refused whole: dropping the wish
would run the job in a way its producer did not ask for.
"""

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any, Final

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from tasks import rfc3339
from tasks.fingerprint import fingerprint
from tasks.job import INT32_MAX, TASK_NAME, JobId
from tasks.reading import DeadLetterReason, NotAJob

_JOB_ID: Final = TypeAdapter(JobId)
_WISHES: Final = ("eta", "expires", "compression", "timelimit", "stamps")
"""Headers of a message that ask for something, unless they are null, empty or a list of nulls."""

_SCANNER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
"""Finds where a value ends; what its numbers are is left to whoever reads the job."""

_FOLLOW_UPS: Final = ("callbacks", "errbacks", "chain", "chord")


@dataclass(frozen=True, slots=True)
class Readable:
    """A job's own bytes with what the ledger must know of it; times in unix ms, None where absent or not valid."""

    raw: bytes = field(repr=False)
    job_id: str
    fingerprint: str
    expires_ms: int | None
    enqueued_ms: int | None
    prompt_bytes: int = 0
    max_tokens: int = 0
    """What a job asks of its pool's tokens, 0 where it has none."""


def read_envelope(raw: bytes, max_job_bytes: int) -> Readable | NotAJob | None:
    """Return the job in ``raw``; None where it holds no message and no job_id, to be judged as it stands."""
    content = _json(raw) if len(raw) <= max_job_bytes else None
    if not isinstance(content, dict):
        return None
    if "job_id" in content:
        return _readable(raw, content)
    if "body" not in content or not ("headers" in content or "properties" in content):
        return None
    body = _body_of(content)
    job = _only_argument(_json(body))
    if job is None:
        return NotAJob(DeadLetterReason.BAD_ENVELOPE)
    return _readable(_own_text(body), job) or NotAJob(DeadLetterReason.NO_JOB_ID)


def _json(raw: bytes) -> Any:
    try:
        return pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError:
        return None


def _body_of(message: dict[str, Any]) -> bytes:
    """Return the arguments' JSON of a plain message for our task; nothing where it is another kind of message."""
    headers, properties = message.get("headers"), message.get("properties")
    if not isinstance(headers, dict) or not isinstance(properties, dict):
        return b""
    if headers.get("task") != TASK_NAME or any(_asks(headers.get(wish)) for wish in _WISHES):
        return b""
    if message.get("content-type") != "application/json":
        return b""
    return _decoded(message["body"], properties.get("body_encoding"))


def _asks(wish: object) -> bool:
    if isinstance(wish, list):
        return any(part is not None for part in wish)
    return wish is not None and wish not in ("", {})  # 0 asks: a message that expires after 0 seconds has expired


def _decoded(body: object, encoding: object) -> bytes:
    if not isinstance(body, str):
        return b""
    if encoding != "base64":
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _only_argument(body: object) -> dict[str, Any] | None:
    match body:
        case [[dict(job)], {}, embed] if not body[1] and isinstance(embed, dict):
            return None if any(_asks(embed.get(follow_up)) for follow_up in _FOLLOW_UPS) else job
    return None


def _own_text(body: bytes) -> bytes:
    """Return the job's JSON as its producer wrote it: written again, a number beyond every float would be no JSON at all."""
    text = body.decode()
    start = text.index("{")
    _, end = _SCANNER.raw_decode(text, start)
    return text[start:end].encode()


def _readable(raw: bytes, job: dict[str, Any]) -> Readable | None:
    try:
        job_id = _JOB_ID.validate_python(job.get("job_id"), strict=True)
    except ValidationError:
        return None
    times = _unix_ms(job.get("expires_at")), _unix_ms(job.get("enqueued_at"))
    prompt, max_tokens = job.get("prompt"), job.get("max_tokens")
    if not isinstance(prompt, str) or type(max_tokens) is not int or not 0 < max_tokens <= INT32_MAX:
        return Readable(raw, job_id, fingerprint(job), *times)
    return Readable(raw, job_id, fingerprint(job), *times, len(prompt.encode()), max_tokens)


def _unix_ms(value: object) -> int | None:
    try:
        return rfc3339.to_ms(rfc3339.parse(value)) if isinstance(value, str) else None
    except ValueError:
        return None
