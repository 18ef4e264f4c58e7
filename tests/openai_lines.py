"""A batch's result lines as the ``openai`` package reads them: by its own types, which are strict here."""

import json
from dataclasses import dataclass

from openai.types import BatchError, Completion
from openai.types.chat import ChatCompletion
from pydantic import TypeAdapter

_BODIES: dict[str, TypeAdapter[Completion] | TypeAdapter[ChatCompletion]] = {
    "text_completion": TypeAdapter(Completion),
    "chat.completion": TypeAdapter(ChatCompletion),
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A result line: its ids, and either a text with its total of tokens or an error's code and line."""

    id: str
    custom_id: str
    text: str | None = None
    total_tokens: int | None = None
    code: str | None = None
    line: int | None = None


def parsed(content: bytes | str) -> Parsed:
    """Return what a line says; raises where a type of OpenAI's does not take its part of it."""
    said = json.loads(content)
    assert set(said) == {"id", "custom_id", "response", "error"}
    assert isinstance(said["id"], str)
    assert isinstance(said["custom_id"], str)
    if said["error"] is not None:
        assert said["response"] is None
        error = TypeAdapter(BatchError).validate_python(said["error"], strict=True)
        return Parsed(said["id"], said["custom_id"], code=error.code, line=error.line)
    response = said["response"]
    assert response["status_code"] == 200
    assert isinstance(response["request_id"], str)
    body = _BODIES[response["body"]["object"]].validate_python(response["body"], strict=True)
    assert body.usage is not None
    assert len(body.choices) == 1
    text = body.choices[0].message.content if isinstance(body, ChatCompletion) else body.choices[0].text
    return Parsed(said["id"], said["custom_id"], text=text, total_tokens=body.usage.total_tokens)
