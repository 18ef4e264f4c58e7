"""What is written for each line of the input: a line as OpenAI's batches write theirs (docs/batch.md). Pure.

A result makes the same bytes each time, so that a batch can be written again.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from tasks import rfc3339
from tasks.result import GenerateResult
from tasks.usage import Usage
from worker.batch.bad_line import BadLine
from worker.batch.counts import Outcome
from worker.batch.jobs import Asked, Line
from worker.batch.requests import Endpoint

_ID: Final = re.compile(rb'\{"id":"batch_req_(?P<batch>[0-9a-z]+)_(?P<number>[0-9]+)",')
_BATCH: Final = "batch_"
_BREAKS: Final = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}
"""What some readers take for the end of a line, though JSON does not."""

_CUT_SHORT: Final = frozenset({"length", "max_tokens", "max_length", "max_new_tokens"})


@dataclass(frozen=True, slots=True)
class Written:
    """A result line: the number of the input's line, the bytes with their line break, and what they say."""

    number: int
    content: bytes
    outcome: Outcome


def batch_id(name: str) -> str:
    """Return the id of the batch that has this name, of digits and small letters."""
    return f"{_BATCH}{name}"


def ended(line: Asked, result: GenerateResult) -> Written:
    """Return the line of a job that has ended."""
    if result.error is not None:
        error = result.error
        return failed(line, error.code.value, error.message, retryable=error.retryable, usage=result.usage)
    response = {"status_code": 200, "request_id": line.job_id, "body": _body(line, result)}
    return _written(line, response, None, Outcome(None, result.usage))


def refused(line: Line, bad: BadLine) -> Written:
    """Return the error line of a line that was never sent."""
    message = f"line {line.number}: {bad.message}"
    return failed(line, bad.code, f"{message}: {bad.detail}" if bad.detail else message)


def failed(line: Line, code: str, message: str, *, retryable: bool = False, usage: Usage | None = None) -> Written:
    """Return an error line; ``retryable`` says whether sending the line again may help, ``usage`` what it spent."""
    error = {
        "code": code,
        "message": message,
        "param": None,
        "line": line.number,
        "retryable": retryable,
        "usage": usage and usage.model_dump(),
    }
    return _written(line, None, error, Outcome(code, usage))


def read_back(content: bytes, batch_id: str) -> Written | None:
    """Return what a line of the output is, None where this batch did not write it."""
    found = _ID.match(content)
    if not found or f"{_BATCH}{found['batch'].decode()}" != batch_id or not content.endswith(b"\n"):
        return None
    try:
        said = json.loads(content)
        error = said["error"]
        usage = said["response"]["body"]["usage"] if error is None else error["usage"]
        spent = None if usage is None else Usage.model_validate(usage)
        return Written(int(found["number"]), content, Outcome(error and error["code"], spent))
    except (ValueError, KeyError, TypeError):
        return None


def _written(line: Line, response: dict[str, Any] | None, error: dict[str, Any] | None, outcome: Outcome) -> Written:
    said = {
        "id": f"batch_req_{line.batch_id.removeprefix(_BATCH)}_{line.number}",
        "custom_id": line.custom_id,
        "response": response,
        "error": error,
    }
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":")).translate(_BREAKS)
    return Written(line.number, text.encode() + b"\n", outcome)


def _body(line: Asked, result: GenerateResult) -> dict[str, Any]:
    is_chat = line.endpoint is Endpoint.CHAT
    text = (
        {"message": {"role": "assistant", "content": result.text, "refusal": None}}
        if is_chat
        else {"text": result.text}
    )
    return {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{line.job_id}",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": rfc3339.to_ms(rfc3339.parse(result.finished_at)) // 1000,
        "model": result.model,
        "choices": [{"index": 0, **text, "logprobs": None, "finish_reason": _finish_reason(line, result)}],
        "usage": result.usage and result.usage.model_dump(),
    }


def _finish_reason(line: Asked, result: GenerateResult) -> str:
    """Return why the text ends, in OpenAI's words; a model that does not say is judged by its true count of tokens."""
    match result.finish_reason:
        case None:
            cut_short = result.usage is not None and result.usage.completion_tokens >= line.max_tokens
        case "content_filter":
            return "content_filter"
        case reason:
            cut_short = reason.lower() in _CUT_SHORT
    return "length" if cut_short else "stop"
