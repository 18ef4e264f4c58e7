"""Tables of growing, and what follows from them for one Redis. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks import figures
from benchmarks.figures import Spread, Window
from benchmarks.scale.memory import Checked
from benchmarks.scale.parts import Measured
from benchmarks.scale.soak import Soak
from benchmarks.sheets import Sheet, number, of_targets, spread
from benchmarks.targets import Target, target

_FIGURES: Final[tuple[tuple[str, Callable[[Window], float | None]], ...]] = (
    ("jobs/s", figures.jobs_per_second),
    ("CPU µs/job", figures.cpu_microseconds),
    ("round trips/job", figures.redis_round_trips),
    ("Redis commands/job", figures.redis_commands),
    ("KB/job to and from Redis", figures.redis_kilobytes),
    ("Redis CPU µs/job", figures.redis_cpu_microseconds),
    ("memory MB", figures.megabytes),
)
MANY_WORKERS: Final = 100


@dataclass(frozen=True, slots=True)
class Grown:
    """All that one run found; what was not measured is empty."""

    depths: Sequence[Measured] = ()
    models: Sequence[Measured] = ()
    workers: Mapping[float, Sequence[Measured]] = field(default_factory=dict)
    """By how long an inference took, in milliseconds."""
    memory: Sequence[Checked] = ()
    soak: Soak | None = None


def sheets(found: Grown) -> dict[str, Sheet]:
    """Return all tables that hold anything, by the names that docs/scaling.md has for them."""
    every = {
        "depth": _steps("Queue depth (empty model, prompts of 128 bytes)", "jobs waiting", found.depths),
        "models": _steps("Models of one worker, all of which have jobs (empty model)", "models", found.models),
        **{
            f"workers-{ms:g}": _steps(
                f"Workers on one queue, without Triton: an inference takes {ms:g} ms", "workers", measured
            )
            for ms, measured in found.workers.items()
        },
        "ceiling": _ceilings(found.workers),
        "memory": _memory(found.memory),
        "soak": _soak(found.soak),
        "targets": of_targets(targets(found)),
    }
    return {name: sheet for name, sheet in every.items() if sheet.rows}


def targets(found: Grown) -> list[Target]:
    """Return the targets that the run says something about."""
    every = []
    if len(found.depths) > 1:
        *_, shallow, deep = found.depths
        words = f"{deep.step:,} jobs queued against {shallow.step:,}"
        every += target(f"{words}: jobs/s", _ratio(deep, shallow, figures.jobs_per_second), 0.95, "least")
        every += target(f"{words}: worker memory", _ratio(deep, shallow, figures.megabytes), 1.05, "most")
    for ms, measured in found.workers.items():
        by_step = {one.step: one for one in measured}
        if ms == 0 and {1, 2} <= by_step.keys():
            two = "2 processes against 1, no inference"
            every += target(f"{two}: jobs/s", _ratio(by_step[2], by_step[1], figures.jobs_per_second), 1.6, "least")
            cpu = _ratio(by_step[2], by_step[1], figures.cpu_microseconds)
            every += target(f"{two}: CPU per job", cpu, 1.1, "most")
    if found.soak and found.soak.looks:
        every += target("soak: worker memory at the end", Spread.of([found.soak.growth]), 1.05, "most")
    return every


def _ratio(one: Measured, other: Measured, figure: Callable[[Window], float | None]) -> Spread | None:
    pairs = zip(map(figure, one.windows), map(figure, other.windows), strict=False)
    ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
    return Spread.of(ratios) if ratios else None


def _of(one: Measured, figure: Callable[[Window], float | None]) -> Spread | None:
    found = [value for value in map(figure, one.windows) if value is not None]
    return Spread.of(found) if found else None


def _steps(title: str, unit: str, measured: Sequence[Measured]) -> Sheet:
    has_idle = any(one.idle_cpu_percent is not None for one in measured)
    rows = []
    for one in measured:
        cells = [spread(_of(one, figure)) for _, figure in _FIGURES]
        if has_idle:
            cells += [
                number(figure) if figure is not None else ""
                for figure in (one.idle_cpu_percent, one.idle_round_trips, one.idle_redis_cpu_percent)
            ]
        rows.append((f"{one.step:,}", *cells))
    idle = ("idle: % of a core", "idle: round trips/s", "idle: Redis % of a core") if has_idle else ()
    return Sheet(title, (unit, *(words for words, _ in _FIGURES), *idle), rows)


def _ceilings(workers: Mapping[float, Sequence[Measured]]) -> Sheet:
    """Return what one Redis could do: its one thread, less what idle workers ask of it, over what a job takes of it."""
    rows = []
    for ms, measured in workers.items():
        if not measured:
            continue
        most = measured[-1]
        per_job, traffic = _of(most, figures.redis_cpu_microseconds), _of(most, figures.redis_kilobytes)
        if per_job is None or traffic is None or most.idle_redis_cpu_percent is None:
            continue
        asks = most.idle_redis_cpu_percent / most.step * MANY_WORKERS / 100
        jobs = max(0.0, 1 - asks) * 1e6 / per_job.median
        rows.append(
            (
                f"{ms:g} ms, as {most.step} workers cost it",
                number(per_job.median),
                f"{100 * asks:.1f}",
                number(jobs),
                number(jobs * traffic.median * 8 / 1e6),
            )
        )
    head = (
        "an inference takes",
        "Redis CPU µs/job",
        f"% of its core for {MANY_WORKERS} idle workers",
        "jobs/s at most",
        "Gbit/s then",
    )
    return Sheet("The ceiling of one Redis", head, rows)


def _memory(checked: Sequence[Checked]) -> Sheet:
    rows = []
    for one in checked:
        kept = one.kept
        rows.append(
            (
                number(kept.json_bytes),
                number(kept.result),
                number(kept.marker),
                number(kept.entry),
                number(one.used_bytes / one.jobs),
                f"{one.said_by_formula / one.used_bytes:.2f}",
            )
        )
    head = (
        "result as JSON, bytes",
        "its result key",
        "its marker",
        "its settlement entry",
        "measured, all of a job",
        "formula / measured",
    )
    return Sheet("Redis' memory for each settled job, in bytes", head, rows)


def _soak(soak: Soak | None) -> Sheet:
    looks = soak.looks[:: max(1, len(soak.looks) // 12)] if soak else ()
    rows = [
        (
            f"{look.after_seconds:,.0f}",
            f"{look.settled:,}",
            f"{look.worker_bytes / 1e6:.1f}",
            f"{look.redis_bytes / 1e6:.1f}",
            f"{look.redis_keys:,}",
        )
        for look in looks
    ]
    about = f" ({soak.rate:g} jobs/s, results and markers kept for {soak.kept_seconds} s)" if soak else ""
    return Sheet(f"Soak{about}", ("seconds", "settled", "worker MB", "Redis MB", "keys"), rows)
