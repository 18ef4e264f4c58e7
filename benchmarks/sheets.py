"""Tables as text: printed by rich, and written as Markdown. Pure but for the printing."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Spread
from benchmarks.targets import Target


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def show(sheets: Sequence[Sheet], console: Console) -> None:
    """Print tables."""
    for sheet in sheets:
        table = Table(title=sheet.title, title_justify="left")
        for number, name in enumerate(sheet.head):
            table.add_column(name, justify="right" if number else "left")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)


def markdown(sheet: Sheet) -> str:
    """Return a table without its title."""
    rule = ("---", *("---:" for _ in sheet.head[1:]))
    return "\n".join("| " + " | ".join(row) + " |" for row in (sheet.head, rule, *sheet.rows))


def of_targets(targets: Sequence[Target]) -> Sheet:
    """Return the table of targets."""
    rows = [
        (
            one.words,
            f"{spread(one.found)}{one.unit}",
            f"{'≥' if one.at == 'least' else '≤'} {one.bound:g}{one.unit}",
            "met" if one.is_met else "missed",
        )
        for one in targets
    ]
    return Sheet("Targets", ("", "found", "target", ""), rows)


def spread(found: Spread | None) -> str:
    """Return a figure as text: the median, with the lowest and the highest where they differ from it."""
    if found is None:
        return ""
    if found.low == found.high:
        return number(found.median)
    return f"{number(found.median)} ({number(found.low)} to {number(found.high)})"


def number(value: float) -> str:
    """Return a number with three digits that count, or all there are before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
