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
_FAR_AWAY: Final = {"empty-away": 0.75, "batch-8-away": 0.97, "batch-64-away": 0.90, "half-second-away": 0.98}
NEAR: Final = f"{OURS}, 0 ms"
FAR: Final = f"{OURS}, 2 ms"


def of_load(loads: Mapping[str, Rounds]) -> list[Target]:
    """Return the targets that these sections say something about, by their names."""
    targets = []
    for section, rounds in loads.items():
        if section in _AGAINST_DIRECT:
            ratio = rounds.ratio(OURS, DIRECT, jobs_per_second)
            targets += target(f"{section}: jobs/s against the direct loop", ratio, _AGAINST_DIRECT[section], "least")
        if section == "empty":
            targets += _of_empty(section, rounds)
        if section in _AGAINST_DIRECT or section == "empty":
            allowed = 0.25 if section == "empty" else 1.5
            found = rounds.spread(OURS, redis_round_trips)
            targets += target(f"{section}: Redis round trips per job", found, allowed, "most")
        if section in _FAR_AWAY:
            ratio = rounds.ratio(FAR, NEAR, jobs_per_second)
            words = f"{section.removesuffix('-away')}: jobs/s with Redis 2 ms away against 0 ms"
            targets += target(words, ratio, _FAR_AWAY[section], "least")
        if section == "half-second-4kb":
            found = rounds.spread(OURS, megabytes)
            targets += target("worker memory, 64 in flight of 4 KB", found, 110, "most", " MB")
    return targets


def of_added_time(added: Mapping[str, Mapping[str, AddedTime]]) -> list[Target]:
    """Return the targets for single jobs, by what fsync was."""
    bounds: dict[str, tuple[float, float]] = {"everysec": (2.5, 6.0), "always": (3.0, 8.0)}
    targets = []
    for fsync, sides in added.items():
        p50, p99 = bounds[fsync]
        for name, mine in sides.items():
            if name.startswith(OURS):
                what = f"added time, {fsync}{name.removeprefix(OURS)}"
                targets += target(f"{what}: p50", Spread.of([mine.p50]), p50, "most", " ms")
                targets += target(f"{what}: p99", Spread.of([mine.p99]), p99, "most", " ms")
    return targets


def of_idle(idle: list[Idle]) -> list[Target]:
    """Return the targets for a worker without jobs."""
    targets = []
    for one in idle:
        what = f"idle, {one.models} model{'s' * (one.models > 1)}"
        targets += target(f"{what}: CPU", Spread.of([one.cpu_percent]), 1.0, "most", " % of a core")
        round_trips = Spread.of([one.round_trips_per_second])
        targets += target(f"{what}: round trips", round_trips, 5.0, "most", " a second")
    return targets


def _of_empty(section: str, rounds: Rounds) -> list[Target]:
    def better_stock(figure: Callable[[Window], float | None]) -> Spread | None:
        ratios = [ratio for name in STOCK.values() if (ratio := rounds.ratio(OURS, name, figure)) is not None]
        return min(ratios, key=lambda ratio: ratio.median, default=None)

    cpu = rounds.ratio(OURS, DIRECT, cpu_microseconds)
    against = f"{section}: jobs/s against the better stock Celery on gevent"
    return [
        *target(against, better_stock(jobs_per_second), 4.0, "least"),
        *target(f"{section}: CPU per job against the direct loop", cpu, 3.0, "most"),
    ]


def target(
    words: str, found: Spread | None, bound: float, at: Literal["least", "most"], unit: str = ""
) -> list[Target]:
    """Return a target; none where nothing was found."""
    return [] if found is None else [Target(words, found, bound, at, unit)]
