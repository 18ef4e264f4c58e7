"""What is wrong with a configuration, in words that name file, field, value and reason and hold no secret."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic.fields import FieldInfo

from settings import addresses
from settings.fields import MISSING, UNKNOWN_FIELD, Location, Refusal, Section
from settings.runtime import RuntimeConfig
from settings.schema import Settings

LONGEST_VALUE = 60  # characters; one line a problem
HIDDEN = "(hidden)"
_SECRET_PLACES = {("runtime_headers",), ("redis_url",), ("redis_password",), ("redis_sentinel",)}
_SECRETIVE = re.compile(r"header|token|secret|passw|pwd|credential|auth|cookie|key|redis", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right: the file or environment variable, the dotted field, its value as shown, and why."""

    source: str
    field: str
    value: str
    reason: str

    def __str__(self) -> str:
        """One line, whatever the names and values contain."""
        where = f"{self.source}: {self.field}" if self.field else self.source
        return _one_line(f"{where} = {self.value}: {self.reason}" if self.value else f"{where}: {self.reason}")


class ConfigurationError(Exception):
    """The configuration cannot be used; `problems` says everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        """One line a problem."""
        return "\n".join(str(problem) for problem in self.problems)


def problem(refusal: Refusal, source: str) -> Problem:
    """The refusal as people are told it."""
    reason = refusal.reason
    if reason == UNKNOWN_FIELD and (name := _near(refusal.at)):
        reason = f"{reason}; did you mean {name}?"
    return Problem(source, ".".join(str(part) for part in refusal.at), shown(refusal), reason)


def _near(at: Location) -> str | None:
    """The field of the same section whose name is most like this one's."""
    fields = fields_of_section(at[:-1])
    return next(iter(difflib.get_close_matches(str(at[-1]), sorted(fields), n=1)), None)


def shown(refusal: Refusal) -> str:
    """The refused value for people: short, on one line, and hidden where it is, or may be, a secret."""
    value = refusal.value
    if value is MISSING:
        return ""
    if refusal.at == ("redis_url",) and isinstance(value, str):
        scheme, separator, _ = value.partition("://")
        return f"{scheme}://{HIDDEN}" if separator and scheme.isalpha() and len(scheme) < 10 else HIDDEN
    if _may_be_secret(refusal):
        return HIDDEN
    if isinstance(value, Mapping):
        return "(a mapping)"
    if isinstance(value, (list, tuple)):
        return "(a list)"
    return _short(_as_written(value))


def _may_be_secret(refusal: Refusal) -> bool:
    """By where it stands; a misspelt field is judged by its name, since a password may stand in it all the same."""
    if refusal.at[:1] in _SECRET_PLACES:
        return True
    name = refusal.at[-1] if refusal.at else ""
    return isinstance(name, str) and name not in known_fields() and _SECRETIVE.search(name) is not None


def _as_written(value: object) -> str:
    if isinstance(value, str):
        # Cut before it is written out, since a value may be megabytes.
        return _one_line(json.dumps(addresses.without_secrets(value[:1000]), ensure_ascii=False))
    if value is None or isinstance(value, (bool, float)):
        return json.dumps(value)
    if isinstance(value, int) and value.bit_length() > 256:
        return "(a huge number)"  # beyond some thousand digits Python refuses to write one
    return str(value) if isinstance(value, int) else f"({type(value).__name__})"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def fields_of_section(at: Location) -> Mapping[str, FieldInfo]:
    """The fields of the section at this place; none if there is no section."""
    is_of_one_model = len(at) >= 2 and at[0] == "models"
    section: Any = RuntimeConfig if is_of_one_model else Settings
    for name in at[2:] if is_of_one_model else at:
        field = section.model_fields.get(name)
        section = field.annotation if field else None
        if not (isinstance(section, type) and issubclass(section, Section)):
            return {}
    return dict(section.model_fields)


@cache
def known_fields() -> frozenset[str]:
    """Every name of a field, at any level."""
    sections = [(), *((name,) for name in Settings.model_fields)]
    return frozenset(field for at in sections for field in fields_of_section(at))
