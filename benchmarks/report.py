"""Shows what was found: as tables of rich, and the same tables as a page in Markdown. Pure but for the printing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import figures, targets
from benchmarks.figures import AddedTime, Idle, Rounds, Spread, Window
from benchmarks.machine import Machine
from benchmarks.plan import WORKLOADS
from benchmarks.sides import DIRECT, OURS

_WORDS: Final = {workload.name: workload.words for workload in WORKLOADS}
_FIGURES: Final[tuple[tuple[str, Callable[[Window], float | None]], ...]] = (
    ("jobs/s", figures.jobs_per_second),
    ("CPU µs/job", figures.cpu_microseconds),
    ("round trips/job", figures.redis_round_trips),
    ("Redis commands/job", figures.redis_commands),
    ("Redis CPU µs/job", figures.redis_cpu_microseconds),
    ("memory MB", figures.megabytes),
)
_EXPLAINED: Final = """\
Medians over the rounds, with the lowest and the highest in brackets. All sides run beside each other on the same Valkey
(`appendonly yes`) and the same Triton. They are under load in turns, and a ratio is taken within a round. Ratios carry over to
other machines better than the figures themselves do.

- `speedinfer`: one `speedinfer worker` with its defaults and 64 slots; it logs a line for each job.
- `direct`: 64 greenlets of one process that call tritonclient in a loop, without a queue: the limit.
- `celery x1` and `celery x4`: stock Celery on gevent, 64 greenlets, with tritonclient and a settle script
  (`benchmarks/stock_celery.py`), at that prefetch multiplier; `acks_late`, no results, no gossip, mingle or heartbeat, enough
  connections, Celery's default log level. Prompts have 1 KB on all sides.

CPU is that of the side's own process. A round trip is one write by Redis to a connection, whatever it holds; the few of the
sides that wait are counted in. Commands are those of the side's connections, with those inside scripts. Memory is resident, at
the end of a window. Jobs left are those that the side took and had not settled ten seconds after the load, or put back while
they ran."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All that one run found; what was not measured is empty."""

    machine: Machine
    fsync: str
    quick: bool
    loads: Mapping[str, Rounds] = field(default_factory=dict)
    added: Mapping[str, Mapping[str, AddedTime]] = field(default_factory=dict)
    idle: Sequence[Idle] = ()


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table, as text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def sheets(found: Findings) -> list[Sheet]:
    """Return all tables of a run that hold anything."""
    every = [
        *(_load_sheet(name, rounds, found.fsync) for name, rounds in found.loads.items()),
        _added_sheet(found.added),
        _idle_sheet(found.idle),
        _target_sheet(found),
    ]
    return [sheet for sheet in every if sheet.rows]


def show(found: Findings, console: Console) -> None:
    """Print the tables."""
    for sheet in sheets(found):
        table = Table(title=sheet.title, title_justify="left")
        for number, name in enumerate(sheet.head):
            table.add_column(name, justify="right" if number else "left")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)


def page(found: Findings) -> str:
    """Return the page."""
    parts = ["# Benchmarks", _origin(found), _EXPLAINED, _machine_table(found.machine)]
    for sheet in sheets(found):
        parts += [f"## {sheet.title}", _markdown(sheet)]
    return "\n\n".join(parts) + "\n"


def _origin(found: Findings) -> str:
    line = (
        f"Written by `make bench` (`python -m benchmarks`) on {found.machine.date}; any edit is lost with the next run."
    )
    doubts = []
    if found.quick:
        doubts.append("**This was a quick run: its windows are too short for its figures to be quoted.**")
    if found.machine.is_busy:
        doubts.append("**The machine had other work before the run, which these figures bear.**")
    return "\n\n".join([line, *doubts])


def _machine_table(machine: Machine) -> str:
    rows = [
        ("processor", f"{machine.cpu}, {machine.cores} cores for all sides, Valkey and Triton together"),
        ("memory", f"{machine.memory_gb:.0f} GB"),
        ("system", machine.system),
        ("load before the run", f"{machine.load_before:.2f}"),
        *((name, number) for name, number in machine.versions.items()),
    ]
    return _markdown(Sheet("", ("", ""), rows))


def _load_sheet(name: str, rounds: Rounds, fsync: str) -> Sheet:
    rows = []
    for side in rounds.windows:
        cells = [_spread(rounds.spread(side, figure)) for _, figure in _FIGURES]
        ratio = "1" if side == DIRECT else _spread(rounds.ratio(side, DIRECT, figures.jobs_per_second))
        rows.append((side, *cells, ratio, str(sum(window.left_jobs for window in rounds.windows[side]))))
    head = ("", *(words for words, _ in _FIGURES), "jobs/s of direct's", "jobs left")
    number = max((len(windows) for windows in rounds.windows.values()), default=0)
    seconds = next((window.seconds for windows in rounds.windows.values() for window in windows), 0.0)
    about = f"{number} round{'s' * (number > 1)} of {seconds:.0f} s, fsync {fsync}"
    return Sheet(f"{name}: {_WORDS.get(name, name)} ({about})", head, rows)


def _added_sheet(added: Mapping[str, Mapping[str, AddedTime]]) -> Sheet:
    rows = [
        (f"{side}, {fsync}", f"{one.p50:.2f}", f"{one.p99:.2f}", f"{one.inference:.2f}", str(one.jobs))
        for fsync, sides in added.items()
        for side, one in sides.items()
    ]
    title = "Added time: from enqueueing a single job to reading its settlement, less the inference (empty model)"
    return Sheet(title, ("", "p50 ms", "p99 ms", "the inference ms", "jobs"), rows)


def _idle_sheet(idle: Sequence[Idle]) -> Sheet:
    rows = [
        (
            f"{OURS}, {one.models} model{'s' * (one.models > 1)}",
            f"{one.cpu_percent:.2f}",
            f"{one.round_trips_per_second:.1f}",
            f"{one.commands_per_second:.1f}",
            f"{one.rss_bytes / 1e6:.0f}",
        )
        for one in idle
    ]
    return Sheet("Idle", ("", "% of a core", "round trips/s", "Redis commands/s", "memory MB"), rows)


def _target_sheet(found: Findings) -> Sheet:
    every = [*targets.of_load(found.loads), *targets.of_added_time(found.added), *targets.of_idle(list(found.idle))]
    rows = [
        (
            one.words,
            f"{_spread(one.found)}{one.unit}",
            f"{'≥' if one.at == 'least' else '≤'} {one.bound:g}{one.unit}",
            "met" if one.is_met else "missed",
        )
        for one in every
    ]
    return Sheet("Targets", ("", "found", "target", ""), rows)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    if spread.low == spread.high:
        return _number(spread.median)
    return f"{_number(spread.median)} ({_number(spread.low)} to {_number(spread.high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _markdown(sheet: Sheet) -> str:
    rule = ("---", *("---:" for _ in sheet.head[1:]))
    return "\n".join("| " + " | ".join(row) + " |" for row in (sheet.head, rule, *sheet.rows))
