"""What commands write: tables for people, JSON for scripts, and nothing that a terminal would obey."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from worker import duration as words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_WITHOUT_TERMINAL = 1000
"""Columns, so that a row stays one line; a table is only as wide as what it holds."""


def wants_json(asked: bool | None) -> bool:
    """Tell whether to write JSON: as asked for, else where stdout is no terminal."""
    return not sys.stdout.isatty() if asked is None else asked


def write_json(value: Any) -> None:
    """Write one object on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def write_note(text: str) -> None:
    """Write a line to stderr, beside the output proper."""
    typer.echo(text, err=True)


def console(*, width_without_terminal: int = _WIDTH_WITHOUT_TERMINAL) -> "Console":
    """Return a console for stdout that takes text as it is: square brackets mean nothing."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else width_without_terminal
    return Console(markup=False, highlight=False, emoji=False, width=width)


def write_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = (), title: str | None = None
) -> None:
    """Write a table; the columns named in ``right`` are aligned there. Cells are escaped."""
    console().print(table(headings, rows, right=right, title=title))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = (), title: str | None = None
) -> "Table":
    """Return the same table, for those who show more than one thing."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_edge=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(shown(cell)) for cell in row))
    return made


def shown(cell: object) -> str:
    """Return a table cell's text; what is unknown is a dash."""
    return "-" if cell is None or cell == "" else escaped(str(cell))


def escaped(content: bytes | str) -> str:
    r"""Return content as one line of printable text, with everything else as ``\n``, ``\x1b``, ``\u202e`` and the like.

    A backslash is doubled, so that no two contents look alike.
    """
    text = content.decode("utf-8", "surrogateescape") if isinstance(content, bytes) else content
    return "".join(map(_escaped_character, text))


def readable(text: str) -> str:
    """Return text as people read it, line breaks and tabs kept; what a terminal would obey is escaped."""
    return "".join(c if c in "\n\t" or c.isprintable() else _escaped_character(c) for c in text)


def duration(milliseconds: float | None) -> str | None:
    """Return a duration for people, such as ``1.2 s`` or ``3 min``; None for None."""
    return None if milliseconds is None else words.duration(milliseconds)


def _escaped_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    if 0xDC80 <= ord(character) <= 0xDCFF:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
