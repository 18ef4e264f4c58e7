"""What a batch's later runs have to know, in a small file beside its output; each line of it is a fact that stays one."""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, Self

VERSION: Final = 1


class UnusableJournal(Exception):
    """The journal cannot be read, or is in use; the message says why."""


@dataclass(frozen=True, slots=True)
class Terms:
    """All that decides what a batch sends, where to, and what it writes where."""

    input_sha256: str
    format: str
    prompt_column: str
    ignored_columns: tuple[str, ...]
    model: str | None
    max_tokens: int | None
    tenant: str | None
    keep_order: bool
    errors: str | None
    redis: str
    namespace: str

    def differing(self, other: "Terms") -> list[str]:
        """Return the names of the terms that are not the same."""
        ours, theirs = asdict(self), asdict(other)
        return [name for name, value in ours.items() if theirs[name] != value]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a journal says. Times are Redis' unix milliseconds.

    ``sent`` is the highest line number that may have been sent, and ``seen_at_ms`` when the batch was last worked on.
    """

    batch_id: str
    created_at_ms: int
    terms: Terms
    sent: int = 0
    seen_at_ms: int = 0
    templates: Mapping[str, str] = field(default_factory=dict)


def replay(content: bytes) -> tuple[Facts | None, int]:
    """Return what a journal says, None for one that was not begun, and how many of its bytes say it.

    What follows those bytes is a line that a kill cut short: it had no consequences yet.

    Raises:
        UnusableJournal: it is no journal, or that of another version.
    """
    facts: Facts | None = None
    whole = content.rpartition(b"\n")[0]
    for line in whole.split(b"\n") if whole else []:
        facts = _with(facts, line)
    return facts, len(whole) + 1 if whole else 0


def _with(facts: Facts | None, line: bytes) -> Facts:
    try:
        said = json.loads(line)
        if facts is None:
            return _begun(said)
        if "template" in said:
            return replace(facts, templates={**facts.templates, said["model"]: said["template"]})
        return replace(facts, sent=max(facts.sent, int(said["sent"])), seen_at_ms=int(said["at_ms"]))
    except (ValueError, KeyError, TypeError):
        raise UnusableJournal("is not a batch's journal") from None


def _begun(said: dict[str, Any]) -> Facts:
    if said["version"] != VERSION:
        raise UnusableJournal(f"is of version {said['version']}, and this command knows {VERSION}")
    terms = {**said["terms"], "ignored_columns": tuple(said["terms"]["ignored_columns"])}
    created = int(said["created_at_ms"])
    return Facts(str(said["batch_id"]), created, Terms(**terms), seen_at_ms=created)


class Journal:
    """The file, held by this process alone. It is written before what it says may have consequences."""

    def __init__(self, file: IO[bytes], facts: Facts | None) -> None:
        self._file = file
        self._facts = facts
        self._templates = dict(facts.templates) if facts else {}

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the journal at this path, made if need be. Raises UnusableJournal and OSError."""
        file = path.open("a+b", buffering=0)
        try:
            # The lock goes with the process, however that ends.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(0)
            facts, length = replay(file.read())
            file.truncate(length)
        except BlockingIOError:
            file.close()
            raise UnusableJournal("is in use: another command is at work on this output") from None
        except BaseException:
            file.close()
            raise
        return cls(file, facts)

    @property
    def facts(self) -> Facts | None:
        """Return what the journal said when it was opened or begun, None if the batch has not begun."""
        return self._facts

    def begin(self, facts: Facts) -> None:
        """Write down a new batch, in place of whatever was there."""
        self._file.truncate(0)
        self._write(
            {
                "version": VERSION,
                "batch_id": facts.batch_id,
                "created_at_ms": facts.created_at_ms,
                "terms": asdict(facts.terms),
            }
        )
        # A batch that forgot its id would send everything again.
        os.fsync(self._file.fileno())
        self._facts, self._templates = facts, {}

    def will_send(self, number: int, at_ms: int) -> None:
        """Write down that lines up to this number may be sent from now on, and that this is the time."""
        self._write({"sent": number, "at_ms": at_ms})

    def template_for(self, model: str, found: Callable[[], str | None]) -> str | None:
        """Return the template that the batch uses for a model: the first that was found for it."""
        if model not in self._templates and (template := found()) is not None:
            self._write({"model": model, "template": template})
            self._templates[model] = template
        return self._templates.get(model)

    def close(self) -> None:
        """Give up the file."""
        self._file.close()

    def _write(self, said: dict[str, Any]) -> None:
        line = json.dumps(said).encode() + b"\n"
        while line:
            line = line[self._file.write(line) :]
