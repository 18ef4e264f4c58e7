"""What a batch's later runs have to know, in a small file beside its output: a line for each fact, the last one renewed in its place."""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

VERSION: Final = 1

_BEGINNING: Final = b'{"version": '

_ALIGNMENT: Final = 64
"""Bytes that every line is a multiple of, so that one that is renewed never crosses a page: no kill finds it half renewed."""


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
    if not whole and not _may_be_cut_short(content):
        raise _no_journal()
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
        raise _no_journal() from None


def _may_be_cut_short(content: bytes) -> bool:
    """Tell whether a kill, or a crash of the machine, may have left this of a first line; a stranger's file is never cut."""
    said = content.rstrip(b"\0")
    return said.startswith(_BEGINNING) or _BEGINNING.startswith(said)


def _no_journal() -> UnusableJournal:
    return UnusableJournal("is not one: move it away, or name another --output")


def _begun(said: dict[str, Any]) -> Facts:
    if said["version"] != VERSION:
        raise UnusableJournal(
            f"is of version {said['version']}, and this command knows {VERSION}: end the batch with the other release"
        )
    terms = {**said["terms"], "ignored_columns": tuple(said["terms"]["ignored_columns"])}
    created = int(said["created_at_ms"])
    return Facts(str(said["batch_id"]), created, Terms(**terms), seen_at_ms=created)


class Journal:
    """The file, held by this process alone. It is written before what it says may have consequences."""

    def __init__(self, file: int, content: bytes) -> None:
        """Take the file's descriptor, locked. Raises UnusableJournal."""
        self._file = file
        self._facts, self._end = replay(content)
        self._templates = dict(self._facts.templates) if self._facts else {}
        self._sent = self._facts.sent if self._facts else 0
        self._mark_at: int | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the journal at this path, made if need be. Raises UnusableJournal and OSError."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # The lock goes with the process, however that ends.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal = cls(file, path.read_bytes())
            os.ftruncate(file, journal._end)
        except BlockingIOError:
            os.close(file)
            raise UnusableJournal("is in use: another command is at work on this output") from None
        except BaseException:
            os.close(file)
            raise
        return journal

    @property
    def facts(self) -> Facts | None:
        """Return what the journal said when it was opened or begun, None if the batch has not begun."""
        return self._facts

    def begin(self, facts: Facts) -> None:
        """Write down a new batch, in place of whatever was there."""
        os.ftruncate(self._file, 0)
        self._end = 0
        self._append(
            {
                "version": VERSION,
                "batch_id": facts.batch_id,
                "created_at_ms": facts.created_at_ms,
                "terms": asdict(facts.terms),
            }
        )
        # A batch that forgot its id would send everything again.
        os.fsync(self._file)
        self._facts, self._templates = facts, {}
        self._sent, self._mark_at = 0, None

    def will_send(self, number: int, at_ms: int) -> None:
        """Write down that lines up to this number may be sent from now on, and that this is the time."""
        self._sent = max(self._sent, number)
        said = {"sent": self._sent, "at_ms": at_ms}
        if self._mark_at is None:
            self._mark_at = self._append(said)
        else:
            _write(self._file, _line(said), self._mark_at)

    def template_for(self, model: str, found: Callable[[], str | None]) -> str | None:
        """Return the template that the batch uses for a model: the first that was found for it."""
        if model not in self._templates and (template := found()) is not None:
            self._append({"model": model, "template": template})
            self._mark_at = None
            self._templates[model] = template
        return self._templates.get(model)

    def close(self) -> None:
        """Give up the file."""
        os.close(self._file)

    def _append(self, said: dict[str, Any]) -> int:
        """Write a line at the end; return where it begins."""
        line, at = _line(said), self._end
        _write(self._file, line, at)
        self._end += len(line)
        return at


def _line(said: dict[str, Any]) -> bytes:
    text = json.dumps(said).encode()
    return text.ljust(-(-(len(text) + 1) // _ALIGNMENT) * _ALIGNMENT - 1) + b"\n"


def _write(file: int, content: bytes, at: int) -> None:
    while content:
        written = os.pwrite(file, content, at)
        content, at = content[written:], at + written
