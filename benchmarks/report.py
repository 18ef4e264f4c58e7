"""Shows what a run found: as printed tables, and the same tables as a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks import figures, targets
from benchmarks.figures import AddedTime, Idle, Rounds, Window
from benchmarks.machine import Machine
from benchmarks.others import RIVAL_QUEUES
from benchmarks.plan import SECTIONS, Section
from benchmarks.sheets import Sheet, markdown, of_targets, spread
from benchmarks.sides import DIRECT, OURS

_SECTIONS: Final = {section.name: section for section in SECTIONS}
_FIGURES: Final[tuple[tuple[str, Callable[[Window], float | None]], ...]] = (
    ("jobs/s", figures.jobs_per_second),
    ("CPU µs/job", figures.cpu_microseconds),
    ("round trips/job", figures.redis_round_trips),
    ("Redis commands/job", figures.redis_commands),
    ("KB/job to and from Redis", figures.redis_kilobytes),
    ("Redis CPU µs/job", figures.redis_cpu_microseconds),
    ("memory MB", figures.megabytes),
)
_EXPLAINED: Final = """\
Medians over the rounds, with the lowest and the highest in brackets. All sides are measured in one run, on the same Valkey
(`appendonly yes`) and the same Triton. They have turns: each starts for its turn, alone, and a ratio is taken within a round.
Ratios carry over to other machines better than the figures themselves do.

- `speedinfer`: one `speedinfer worker` with its defaults and 64 slots; it logs a line for each job.
- `direct`: 64 greenlets of one process that call tritonclient in a loop, without a queue: the limit.
- `celery x1` and `celery x4`: stock Celery on gevent, 64 greenlets, with tritonclient and a settle script
  (`benchmarks/stock_celery.py`), at that prefetch multiplier; `acks_late`, no results, no gossip, mingle or heartbeat, enough
  connections, Celery's default log level. `celery prefork`: the same with 64 processes, multiplier 4.
- {others}: the same work in `benchmarks/rivals`, each tuned as its documentation advises and with 64 jobs at once:
  RQ's pool has 64 workers that do not fork for each job, dramatiq runs on gevent, arq is polled for every 10 ms, taskiq reads a
  stream and acknowledges. Each has its own virtual environment. None of them, nor stock Celery, does what
  [guarantees.md](guarantees.md) promises of `speedinfer`: the settle script keeps a job from being settled twice, and no more.

Prompts have 1 KB where nothing else is said. CPU and memory are those of the side's own processes, what they share counted once.
A round trip is one write by Redis to a connection, whatever it holds. Commands are those of the side's connections, with those
inside scripts. Memory is resident, at the end of a window. Jobs left are those that the side took and had not settled ten seconds
after the load, or put back while they ran; a side whose queue does not tell has none shown."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All that one run found; what was not measured is empty."""

    machine: Machine
    quick: bool
    loads: Mapping[str, Rounds] = field(default_factory=dict)
    """By the name of the section."""
    added: Mapping[str, Mapping[str, AddedTime]] = field(default_factory=dict)
    idle: Sequence[Idle] = ()
    left_out: Sequence[str] = ()
    """Sides whose packages could not be had."""


def sheets(found: Findings) -> list[Sheet]:
    """Return all tables of a run that hold anything."""
    every = [
        of_targets(
            [*targets.of_load(found.loads), *targets.of_added_time(found.added), *targets.of_idle(list(found.idle))]
        ),
        *(_load_sheet(_SECTIONS[name], rounds) for name, rounds in found.loads.items()),
        _added_sheet(found.added),
        _idle_sheet(found.idle),
    ]
    return [sheet for sheet in every if sheet.rows]


def page(found: Findings) -> str:
    """Return the page."""
    others = ", ".join(f"`{name}`" for name in RIVAL_QUEUES)
    parts = ["# Benchmarks", _origin(found), _EXPLAINED.format(others=others), _machine_table(found.machine)]
    for sheet in sheets(found):
        parts += [f"## {sheet.title}", markdown(sheet)]
    return "\n\n".join(parts) + "\n"


def _origin(found: Findings) -> str:
    line = (
        f"Written by `make bench` (`python -m benchmarks`) on {found.machine.date}; any edit is lost with the next run. "
        "How it grows with queues, models and workers is in [scaling.md](scaling.md)."
    )
    doubts = []
    if found.quick:
        doubts.append("**This was a quick run: its windows are too short for its figures to be quoted.**")
    if found.machine.is_busy:
        doubts.append("**The machine had other work before the run, which these figures bear.**")
    if found.left_out:
        doubts.append(f"**Left out, for their packages could not be had: {', '.join(found.left_out)}.**")
    return "\n\n".join([line, *doubts])


def _machine_table(machine: Machine) -> str:
    rows = [
        ("processor", f"{machine.cpu}, {machine.cores} cores for all sides, Valkey and Triton together"),
        ("memory", f"{machine.memory_gb:.0f} GB"),
        ("system", machine.system),
        ("load before the run", f"{machine.load_before:.2f}"),
        *((name, number) for name, number in machine.versions.items()),
        *((name, ", ".join(rival.requirements)) for name, rival in RIVAL_QUEUES.items()),
    ]
    return markdown(Sheet("", ("", ""), rows))


def _load_sheet(section: Section, rounds: Rounds) -> Sheet:
    near = next(iter(rounds.windows)) if len(section.kind.redis_ms) > 1 else None
    against = near or DIRECT
    rows = []
    for side, windows in rounds.windows.items():
        cells = [spread(rounds.spread(side, figure)) for _, figure in _FIGURES]
        if near:
            against = _near(side, tuple(rounds.windows))
        ratio = "1" if side == against else spread(rounds.ratio(side, against, figures.jobs_per_second))
        left = "" if not windows or side in (DIRECT, *RIVAL_QUEUES) else str(sum(w.left_jobs for w in windows))
        rows.append((side, *cells, ratio, left))
    last = "jobs/s of 0 ms'" if near else "jobs/s of direct's"
    head = ("", *(words for words, _ in _FIGURES), last, "jobs left")
    return Sheet(f"{section.title} ({_about(section, rounds)})", head, rows)


def _near(side: str, sides: Sequence[str]) -> str:
    """Return the same side with Redis where it is."""
    name = side.rsplit(", ", 1)[0]
    return next((one for one in sides if one.rsplit(", ", 1)[0] == name), side)


def _about(section: Section, rounds: Rounds) -> str:
    def of(names: Sequence[str]) -> str:
        windows = [window for name in names for window in rounds.windows.get(name, ())]
        number = max((len(rounds.windows.get(name, ())) for name in names), default=0)
        return f"{number} round{'s' * (number > 1)} of {windows[0].seconds:.0f} s" if windows else ""

    is_other = {name: name.rsplit(", ", 1)[0] in section.kind.others for name in rounds.windows}
    main = of([name for name, other in is_other.items() if not other])
    others = of([name for name, other in is_other.items() if other])
    parts = [main, f"others {others}" if others and others != main else "", f"fsync {section.fsync}"]
    return ", ".join(part for part in parts if part)


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
