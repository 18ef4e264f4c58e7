"""The input file as a table: CSV with a heading, whose columns are fields of a plain line."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pydantic_core

from worker.batch.bad_line import BadLine
from worker.batch.lines import LONGEST_LINE, Record, read_lines

PARAMETERS: Final = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty"),
)
"""Columns that are generation parameters; a cell is JSON, or else text."""

_TEXTS: Final = ("prompt", "custom_id", "model", "tenant", "expires_at")
COLUMNS: Final = (*_TEXTS, "max_tokens", *PARAMETERS)


class WrongTable(Exception):
    """The heading cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns mean what: the name of the one with the prompt, and those that mean nothing."""

    prompt: str = "prompt"
    ignored: frozenset[str] = frozenset()

    def meant_by(self, heading: Sequence[str]) -> list[str | None]:
        """Return the field that each column is, None for an ignored one. Raises WrongTable."""
        if self.prompt not in heading:
            raise WrongTable(
                f"the table has no column {self.prompt}: its first line has to name the columns; name the one with the prompts by --prompt-column"
            )
        fields = [None if name in self.ignored else "prompt" if name == self.prompt else name for name in heading]
        for field in fields:
            if field is not None and fields.count(field) > 1:
                raise WrongTable(
                    f"the table has the column {field} twice: rename one, or leave it out by --ignore-column"
                )
            if field is not None and field not in COLUMNS:
                raise WrongTable(
                    f"the column {field} is none of {', '.join(COLUMNS)}: rename it, or leave it out by --ignore-column {field}"
                )
        return fields


def read_rows(stream: BinaryIO, columns: Columns, longest: int = LONGEST_LINE) -> Iterator[Record]:
    """Yield a record for each row below the heading. Raises WrongTable before the first."""
    # The module's own limit is for the whole process, and at 128 KiB less than a prompt may have.
    csv.field_size_limit(longest)
    lines = _Lines(stream, longest)
    reader = csv.reader(lines, strict=True)
    fields = columns.meant_by(_heading(reader))
    while True:
        lines.begin_row()
        try:
            row = _row(reader, "the row")
        except StopIteration:
            return
        except BadLine as bad:
            yield Record(lines.row_number, bad)
            continue
        if any(row):
            yield Record(lines.row_number, _content(row, fields))


class _Lines(Iterable[str]):
    """The lines as text for csv's reader; knows where the row began that is being read."""

    def __init__(self, stream: BinaryIO, longest: int) -> None:
        self._lines = read_lines(stream, longest)
        self.row_number = 0
        self._begins = True

    def begin_row(self) -> None:
        self._begins = True

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            if self._begins:
                self.row_number, self._begins = number, False
            # A line that is too long, or no UTF-8, must not end the reading: it is marked, and its row refused.
            yield "\udcff\n" if line is None else line.decode("utf-8", "surrogateescape")


def _heading(reader: Iterator[list[str]]) -> list[str]:
    try:
        return [name.strip() for name in _row(reader, "the heading")]
    except StopIteration:
        return []
    except BadLine as bad:
        raise WrongTable(f"the table cannot be read: {bad.message}") from None


def _row(reader: Iterator[list[str]], what: str) -> list[str]:
    try:
        row = next(reader)
    except csv.Error:
        raise BadLine(f"{what} is not CSV") from None
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        raise BadLine(f"{what} is too long, or not UTF-8") from None
    return row


def _content(row: Sequence[str], fields: Sequence[str | None]) -> dict[str, Any] | BadLine:
    if len(row) != len(fields):
        return BadLine(f"the row has {len(row)} cells, and the heading {len(fields)}")
    return {
        field: cell if field in _TEXTS else _value(cell)
        for field, cell in zip(fields, row, strict=True)
        if field is not None and (cell or field == "prompt")
    }


def _value(cell: str) -> Any:
    try:
        # Not json's own: that one ends by the depth of the stack where a cell is nested too deeply, and takes NaN for JSON.
        return pydantic_core.from_json(cell, allow_inf_nan=False)
    except ValueError:
        return cell
