"""The input file as numbered records: one JSON object a line, or the rows of a table. Flat memory, whatever the file holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pydantic_core

from worker.batch.bad_line import BadLine

LONGEST_LINE: Final = 16 << 20
"""Bytes; a line is read whole, and none that is longer can be a job that any worker takes."""

_BOM: Final = b"\xef\xbb\xbf"
_SKIPPED_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """What stands in one place of the input: ``number`` is that of its (first) line, from 1; ``content`` what it says."""

    number: int
    content: dict[str, Any] | BadLine


def read_lines(stream: BinaryIO, longest: int = LONGEST_LINE) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its number and its line break; None for one that is longer than ``longest`` bytes."""
    number = 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest:
            _skip_rest(stream, line)
            yield number, None
        else:
            yield number, line.removeprefix(_BOM) if number == 1 else line


def read_objects(stream: BinaryIO, longest: int = LONGEST_LINE) -> Iterator[Record]:
    """Yield a record for each line that is not blank."""
    for number, line in read_lines(stream, longest):
        if not is_blank(line):
            yield Record(number, _object(line, longest))


def is_blank(line: bytes | None) -> bool:
    """Tell whether a line of ``read_lines`` holds nothing."""
    return line is not None and not line.strip()


def _skip_rest(stream: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = stream.readline(_SKIPPED_AT_ONCE)


def _object(line: bytes | None, longest: int) -> dict[str, Any] | BadLine:
    if line is None:
        return BadLine(f"the line is over {longest} bytes")
    try:
        content = pydantic_core.from_json(line, allow_inf_nan=False)
    except ValueError:
        return BadLine("the line is not JSON")
    return content if isinstance(content, dict) else BadLine("the line is not a JSON object")
