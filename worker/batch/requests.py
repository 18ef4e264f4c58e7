"""What a line asks for: an OpenAI batch line, or a plain one. Pure; what it does not understand it refuses, never drops."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from worker.batch.bad_line import BadLine


class Endpoint(StrEnum):
    """Which of OpenAI's endpoints a line is for, and so the shape of its result."""

    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Request:
    """A line, understood; ``prompt`` is a text, or for CHAT the messages. ``max_tokens`` and ``attended`` are not checked yet.

    ``attended`` holds what a job says beside the work itself: ``tenant``, ``metadata``, ``expires_at``.
    """

    endpoint: Endpoint
    custom_id: str | None
    model: Any
    prompt: str | list[dict[str, Any]] = field(repr=False)
    max_tokens: Any
    parameters: dict[str, Any] = field(repr=False)
    attended: dict[str, Any] = field(repr=False)


_WRAPPING: Final = frozenset({"custom_id", "method", "url", "body"})
_ONLY_OPENAI: Final = frozenset({"method", "url", "body"})
_WITHOUT_EFFECT: Final = frozenset({"user", "store"})
"""What OpenAI's bodies may say of the caller and of its own storage; no model sees it."""
_ONE_ANSWER: Final = {"n": 1, "best_of": 1, "stream": False, "echo": False, "logprobs": False}
"""What can be said in no other way here, and so need not be passed on."""
_ATTENDED: Final = ("tenant", "metadata", "expires_at")


def read_request(content: dict[str, Any]) -> Request:
    """Return what a line asks for. Raises BadLine."""
    return _openai(content) if _ONLY_OPENAI & content.keys() else _plain(content)


def custom_id_of(content: object) -> str | None:
    """Return the line's own name for itself, None where it has none that can be used."""
    custom_id = content.get("custom_id") if isinstance(content, dict) else None
    return custom_id if isinstance(custom_id, str) and 0 < len(custom_id) <= 200 else None


def _openai(content: dict[str, Any]) -> Request:
    if content.keys() - _WRAPPING:
        raise BadLine("the line has a field beside custom_id, method, url and body")
    if custom_id_of(content) is None:
        raise BadLine("custom_id must be a text of 1 to 200 characters")
    if content.get("method") != "POST":
        raise BadLine("method must be POST")
    if content.get("url") not in list(Endpoint):
        raise BadLine(f"url must be {' or '.join(Endpoint)}")
    if not isinstance(content.get("body"), dict):
        raise BadLine("body must be an object")
    body = dict(content["body"])
    endpoint = Endpoint(content["url"])
    attended = {"metadata": _taken(body, "metadata")}
    return _request(endpoint, custom_id_of(content), body, attended, "body.")


def _plain(content: dict[str, Any]) -> Request:
    body = dict(content)
    if body.pop("custom_id", None) is not None and custom_id_of(content) is None:
        raise BadLine("custom_id must be a text of 1 to 200 characters")
    if "prompt" in body and "messages" in body:
        raise BadLine("the line has both prompt and messages")
    attended = {name: _taken(body, name) for name in _ATTENDED}
    parameters = _taken(body, "parameters") or {}
    if not isinstance(parameters, dict):
        raise BadLine("parameters must be an object")
    if parameters.keys() & body.keys():
        raise BadLine("a parameter stands both in parameters and beside it")
    endpoint = Endpoint.CHAT if "messages" in body else Endpoint.COMPLETIONS
    return _request(endpoint, custom_id_of(content), {**body, **parameters}, attended, "")


def _request(
    endpoint: Endpoint, custom_id: str | None, body: dict[str, Any], attended: dict[str, Any], at: str
) -> Request:
    model = _taken(body, "model")
    name = "messages" if endpoint is Endpoint.CHAT else "prompt"
    prompt = _messages(_taken(body, name), at) if endpoint is Endpoint.CHAT else _text(_taken(body, name), at)
    max_tokens = _max_tokens(body, at)
    _refuse_more_than_one_answer(body, at)
    parameters = {key: value for key, value in body.items() if value is not None and key not in _WITHOUT_EFFECT}
    said = {key: value for key, value in attended.items() if value is not None}
    return Request(endpoint, custom_id, model, prompt, max_tokens, parameters, said)


def _taken(body: dict[str, Any], name: str) -> Any:
    return body.pop(name, None)


def _text(prompt: Any, at: str) -> str:
    if not isinstance(prompt, str) or not prompt:
        raise BadLine(f"{at}prompt must be a text that is not empty")
    return prompt


def _max_tokens(body: dict[str, Any], at: str) -> Any:
    """Return the one number; OpenAI has two names for it."""
    first, second = _taken(body, "max_tokens"), _taken(body, "max_completion_tokens")
    if first is not None and second is not None and first != second:
        raise BadLine(f"{at}max_tokens and {at}max_completion_tokens differ")
    return second if first is None else first


def _refuse_more_than_one_answer(body: dict[str, Any], at: str) -> None:
    for name, only in _ONE_ANSWER.items():
        value = _taken(body, name)
        if value is not None and (value != only or isinstance(value, bool) != isinstance(only, bool)):
            raise BadLine(f"{at}{name} must be {str(only).lower()}: a line has one answer, whole")


def _messages(messages: Any, at: str) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise BadLine(f"{at}messages must be a list that is not empty")
    return [_message(message, f"{at}messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Any, at: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadLine(f"{at} must be an object with a role")
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return message
    if isinstance(content, list):
        return {**message, "content": "".join(_part(part, at) for part in content)}
    if not isinstance(content, str):
        raise BadLine(f"{at}.content must be a text, or a list of text parts")
    return message


def _part(part: Any, at: str) -> str:
    """Return the text of one part: templates take a message's content as one text."""
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise BadLine(f"{at}.content has a part that is no text")
