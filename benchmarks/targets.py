"""What is asked of the ratios. A target that is missed is shown as missed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.figures import (
    AddedTime,
    Idle,
    Rounds,
    Spread,
    Window,
    cpu_microseconds,
    jobs_per_second,
    megabytes,
    redis_round_trips,
)
from benchmarks.sides import DIRECT, OURS, STOCK


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that was measured, and what it is to be."""

    words: str
    found: Spread
    bound: float
    at: Literal["least", "most"]
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Tell whether the median is within the bound."""
        return self.found.median >= self.bound if self.at == "least" else self.found.median <= self.bound


_AGAINST_DIRECT: Final = {"batch-8": 0.97, "batch-64": 0.90, "half-second": 0.98}


def of_load(loads: Mapping[str, Rounds]) -> list[Target]:
    """Return the targets that these workloads say something about."""
    targets = []
    for workload, rounds in loads.items():
        if workload in _AGAINST_DIRECT:
            ratio = rounds.ratio(OURS, DIRECT, jobs_per_second)
            targets += _target(f"{workload}: jobs/s against the direct loop", ratio, _AGAINST_DIRECT[workload], "least")
        else:
            targets += _of_empty(workload, rounds)
        allowed = 0.25 if workload == "empty" else 1.5
        round_trips = rounds.spread(OURS, redis_round_trips)
        targets += _target(f"{workload}: Redis round trips per job", round_trips, allowed, "most")
        targets += _target(f"{workload}: worker memory", rounds.spread(OURS, megabytes), 110, "most", " MB")
    return targets


def of_added_time(added: Mapping[str, Mapping[str, AddedTime]]) -> list[Target]:
    """Return the targets for single jobs, by what fsync was."""
    bounds: dict[str, tuple[float, float]] = {"everysec": (2.5, 6.0), "always": (3.0, 8.0)}
    targets = []
    for fsync, sides in added.items():
        p50, p99 = bounds[fsync]
        mine = sides[OURS]
        targets += _target(f"added time, {fsync}: p50", Spread.of([mine.p50]), p50, "most", " ms")
        targets += _target(f"added time, {fsync}: p99", Spread.of([mine.p99]), p99, "most", " ms")
    return targets


def of_idle(idle: list[Idle]) -> list[Target]:
    """Return the targets for a worker without jobs."""
    targets = []
    for one in idle:
        what = f"idle, {one.models} model{'s' * (one.models > 1)}"
        targets += _target(f"{what}: CPU", Spread.of([one.cpu_percent]), 1.0, "most", " % of a core")
        round_trips = Spread.of([one.round_trips_per_second])
        targets += _target(f"{what}: round trips", round_trips, 5.0, "most", " a second")
    return targets


def _of_empty(workload: str, rounds: Rounds) -> list[Target]:
    def better_stock(figure: Callable[[Window], float | None]) -> Spread | None:
        ratios = [ratio for name in STOCK.values() if (ratio := rounds.ratio(OURS, name, figure)) is not None]
        return min(ratios, key=lambda ratio: ratio.median, default=None)

    cpu = rounds.ratio(OURS, DIRECT, cpu_microseconds)
    return [
        *_target(f"{workload}: jobs/s against the better stock Celery", better_stock(jobs_per_second), 4.0, "least"),
        *_target(f"{workload}: CPU per job against the direct loop", cpu, 3.0, "most"),
    ]


def _target(
    words: str, found: Spread | None, bound: float, at: Literal["least", "most"], unit: str = ""
) -> list[Target]:
    return [] if found is None else [Target(words, found, bound, at, unit)]
