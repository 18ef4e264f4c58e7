"""What a batch shows: a bar while it runs, and a summary at its end."""

import time
from types import TracebackType
from typing import Any, Final, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from worker.batch.counts import Counts
from worker.cli.batch_work import Done
from worker.cli.output import duration, write_json, write_note

LINE_EVERY_SECONDS: Final = 10.0
"""Where there is no terminal to draw on, a line now and then."""


class BatchScreen:
    """A context manager: writes to stderr how far a batch is, and says how to go on if it ends before its end."""

    def __init__(self, *, shown: bool | None) -> None:
        """Take whether progress is shown; None is: on a terminal."""
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._draws = self._console.is_terminal and shown is not False
        self._writes = not self._console.is_terminal and shown is True
        self._bar: Progress | None = None
        self._total = 0
        self._counts: Counts | None = None
        self._written_before = 0
        self._tokens_before = 0
        self._began = self._line_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if kind is not None and self._counts is not None:
            write_note(
                f"speedinfer: stopped; {self._counts.written:,} of {self._total:,} lines are written. Jobs that were sent go on, "
                "and the same command goes on from here"
            )

    def begin(self, total: int, counts: Counts) -> None:
        """Show how many lines there are, and what is written of them already."""
        self._total, self._counts = total, counts
        self._written_before, self._tokens_before = counts.written, counts.total_tokens
        self._began = self._line_at = time.monotonic()
        if counts.written:
            self.note(f"{counts.written:,} of {total:,} lines are written already")
        if self._draws:
            self._bar = Progress(*_columns(), console=self._console, expand=True)
            self._bar.add_task("", total=total, completed=counts.written, said="")
            self._bar.start()

    def moved(self, counts: Counts) -> None:
        """Show how many lines are written by now."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=counts.written, said=_said(counts))
        elif self._writes and time.monotonic() - self._line_at >= LINE_EVERY_SECONDS:
            self._line_at = time.monotonic()
            self.note(
                f"{counts.written:,} of {self._total:,} lines, {self._per_second(counts.written - self._written_before):,.0f}/s · {_said(counts)}"
            )

    def note(self, text: str) -> None:
        """Write a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(f"speedinfer: {text}", soft_wrap=True)
        else:
            write_note(f"speedinfer: {text}")

    def summary(self, done: Done, *, as_json: bool) -> None:
        """Write what became of all lines, and what this run took."""
        facts = self._facts(done)
        if as_json:
            write_json(facts)
            return
        counts = done.counts
        typer.echo(
            f"{counts.written:,} lines: {counts.succeeded:,} succeeded, {counts.failed:,} failed{_codes(counts)}"
        )
        typer.echo(
            f"tokens: {counts.prompt_tokens:,} prompt + {counts.completion_tokens:,} completion = {counts.total_tokens:,}"
        )
        typer.echo(
            f"this run: {facts['run']['lines']:,} lines in {duration(facts['run']['wall_seconds'] * 1000)}, "
            f"{facts['run']['tokens_per_second']:,.0f} tokens/s"
        )
        where = f", failures in {done.order.errors}" if done.order.errors else ""
        typer.echo(f"results in {done.order.output}{where}")

    def _facts(self, done: Done) -> dict[str, Any]:
        counts = done.counts
        seconds = time.monotonic() - self._began
        return {
            "batch_id": done.batch_id,
            "input": str(done.order.input.path),
            "output": str(done.order.output),
            "errors": None if done.order.errors is None else str(done.order.errors),
            "lines": {"total": counts.written, "succeeded": counts.succeeded, "failed": counts.failed},
            "failures": dict(counts.failures.most_common()),
            "usage": {
                "prompt_tokens": counts.prompt_tokens,
                "completion_tokens": counts.completion_tokens,
                "total_tokens": counts.total_tokens,
            },
            "run": {
                "lines": counts.written - self._written_before,
                "wall_seconds": round(seconds, 3),
                "tokens_per_second": round(self._per_second(counts.total_tokens - self._tokens_before), 3),
            },
        }

    def _per_second(self, count: int) -> float:
        return count / max(time.monotonic() - self._began, 0.001)


class _Rate(ProgressColumn):
    """Lines a second, over the last half minute."""

    def render(self, task: Task) -> Text:
        """Return the column's text."""
        return Text("-/s" if task.speed is None else f"{task.speed:,.0f}/s")


def _columns() -> tuple[ProgressColumn, ...]:
    numbers = TextColumn("{task.completed:,.0f}/{task.total:,.0f}", markup=False)
    # Where a line is too short for all of it, this one is cut.
    said = TextColumn(
        "{task.fields[said]}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    return (BarColumn(bar_width=16), numbers, _Rate(), TimeRemainingColumn(), said)


def _said(counts: Counts) -> str:
    return f"{counts.total_tokens:,} tokens · {counts.failed:,} failed{_codes(counts)}"


def _codes(counts: Counts) -> str:
    codes = ", ".join(f"{code} {count:,}" for code, count in counts.failures.most_common())
    return f" ({codes})" if codes else ""
