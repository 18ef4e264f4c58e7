"""From chat messages to a prompt, by the model's chat template."""

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NoReturn

from settings.chat_template import UnusableTemplateError, compiled
from worker.batch.bad_line import BadLine

_LONGEST_DETAIL: Final = 200

_compiled = lru_cache(maxsize=64)(compiled)


class _Refused(Exception):
    """The template does not take the messages, and says why in its author's words."""


def render(source: str, messages: list[dict[str, Any]], now: datetime) -> str:
    """Return the prompt, up to where the assistant's answer begins; ``now`` is what the template takes for the time.

    Raises:
        BadLine: the template does not take these messages, or is none.
    """
    try:
        template = _compiled(source)
    except UnusableTemplateError as error:
        raise BadLine(f"the model's chat template {error}") from None
    try:
        return template.render(
            messages=messages, add_generation_prompt=True, raise_exception=_refuse, strftime_now=_strftime(now)
        )
    except _Refused as refusal:
        # A template's text may hold half a surrogate pair, which cannot be written.
        detail = str(refusal)[:_LONGEST_DETAIL].encode(errors="replace").decode()
        raise BadLine("the model's chat template does not take these messages", detail=detail) from None
    except Exception:  # noqa: BLE001 - a template is a program: messages it was not made for can fail in any way
        raise BadLine("the model's chat template fails on these messages") from None


def _refuse(reason: object) -> NoReturn:
    raise _Refused(str(reason))


def _strftime(now: datetime) -> Callable[[str], str]:
    return now.strftime
