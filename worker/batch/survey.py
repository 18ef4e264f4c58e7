"""What is in the input file before anything of it is sent: how much, which bytes, and whether jobs can be made of it."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

from worker.batch.bad_line import BadLine
from worker.batch.jobs import JobMaker
from worker.batch.lines import Record, is_blank, read_lines, read_objects
from worker.batch.table import Columns, read_rows

_TABLES: Final = frozenset({".csv"})


class Form(StrEnum):
    """How the input is written."""

    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Input:
    """The input file and how to read it."""

    path: Path
    form: Form
    columns: Columns

    def records(self) -> Iterator[Record]:
        """Yield what stands in the file. Raises OSError, and WrongTable before the first."""
        with self.path.open("rb") as stream:
            yield from self._read(stream)

    def digest(self) -> str:
        """Return the SHA-256 of the file's bytes, as hex digits. Raises OSError."""
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def count(self) -> int:
        """Return how many records the file has. Raises OSError and WrongTable."""
        if self.form is Form.CSV:
            return sum(1 for _ in self.records())
        with self.path.open("rb") as stream:
            return sum(1 for _, line in read_lines(stream) if not is_blank(line))

    def _read(self, stream: BinaryIO) -> Iterator[Record]:
        return read_rows(stream, self.columns) if self.form is Form.CSV else read_objects(stream)


def form_of(path: Path) -> Form:
    """Return how a file of this name is written."""
    return Form.CSV if path.suffix.lower() in _TABLES else Form.JSONL


class Unpinned:
    """Chat templates as they are found, and none that a batch has to keep to but those it began with."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known

    def template_for(self, model: str, found: Callable[[], str | None]) -> str | None:
        """Return the template for a model."""
        return self._known.get(model) or found()


def bad_lines(records: Iterable[Record], maker: JobMaker) -> Iterator[tuple[int, BadLine]]:
    """Yield each line of which no job can be made, with its number and why."""
    for record in records:
        try:
            maker.make(record)
        except BadLine as bad:
            yield record.number, bad
