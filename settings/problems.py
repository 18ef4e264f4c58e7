"""What is wrong with a configuration, in words that name file, field, value and reason and hold no secret."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from settings import addresses
from settings.fields import MISSING, Refusal, Section
from settings.schema import Settings

LONGEST_VALUE = 60  # characters; one line a problem
HIDDEN = "(hidden)"
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
    return Problem(source, ".".join(str(part) for part in refusal.at), shown(refusal), refusal.reason)


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
    if refusal.at[:1] in {("runtime_headers",), ("redis_url",)}:
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


@cache
def known_fields() -> frozenset[str]:
    """Every name of a field, at any level."""
    names: set[str] = set()
    sections: list[type[Section]] = [Settings]
    while sections:
        for name, field in sections.pop().model_fields.items():
            names.add(name)
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, Section):
                sections.append(kind)
    return frozenset(names)
