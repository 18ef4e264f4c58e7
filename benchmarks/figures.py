"""From windows to figures: medians, spreads, and ratios within a round. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Self


@dataclass(frozen=True, slots=True)
class Window:
    """What one side did in one window. The figures of Redis are None for a side that has none."""

    jobs: int
    seconds: float
    cpu_seconds: float
    rss_bytes: int
    redis_commands: int | None = None
    redis_round_trips: int | None = None
    redis_bytes: int | None = None
    redis_cpu_seconds: float | None = None
    left_jobs: int = 0
    """Jobs that the side took and had not settled ten seconds after the load, or put back while they ran."""

    @property
    def jobs_per_second(self) -> float:
        """Return the rate."""
        return self.jobs / self.seconds

    def per_job(self, total: float | None) -> float | None:
        """Return a total's share of one job; None where there is no total, or no job."""
        return None if total is None or not self.jobs else total / self.jobs


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some figures, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Self:
        """Return the spread of at least one figure."""
        return cls(median(figures), min(figures), max(figures))


@dataclass(frozen=True, slots=True)
class Rounds:
    """The windows of every side of one workload, a window a round, in order."""

    windows: dict[str, tuple[Window, ...]]

    def spread(self, side: str, figure: Callable[[Window], float | None]) -> Spread | None:
        """Return a figure of a side over its rounds, None where the side has no such figure."""
        figures = [found for found in map(figure, self.windows[side]) if found is not None]
        return Spread.of(figures) if figures else None

    def ratio(self, side: str, other: str, figure: Callable[[Window], float | None]) -> Spread | None:
        """Return a figure of one side over that of another, each taken within one round."""
        pairs = zip(map(figure, self.windows.get(side, ())), map(figure, self.windows.get(other, ())), strict=False)
        ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
        return Spread.of(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class AddedTime:
    """Milliseconds from enqueueing a job to reading its settlement, less the median of the inference alone."""

    p50: float
    p99: float
    inference: float
    jobs: int

    @classmethod
    def of(cls, waited_ms: Sequence[float], inferred_ms: Sequence[float]) -> Self:
        """Return the figures of at least two jobs and one inference."""
        inference = median(inferred_ms)
        cuts = quantiles(waited_ms, n=100, method="inclusive")
        return cls(cuts[49] - inference, cuts[98] - inference, inference, len(waited_ms))


@dataclass(frozen=True, slots=True)
class Idle:
    """What a worker without jobs costs."""

    models: int
    cpu_percent: float
    commands_per_second: float
    round_trips_per_second: float
    rss_bytes: int


def jobs_per_second(window: Window) -> float | None:
    """Return the rate of a window."""
    return window.jobs_per_second


def cpu_microseconds(window: Window) -> float | None:
    """Return the microseconds of CPU that the side's process took for a job."""
    return window.per_job(window.cpu_seconds * 1e6)


def redis_cpu_microseconds(window: Window) -> float | None:
    """Return the microseconds of CPU that Redis took for a job."""
    return window.per_job(None if window.redis_cpu_seconds is None else window.redis_cpu_seconds * 1e6)


def redis_commands(window: Window) -> float | None:
    """Return the commands that Redis ran for a job, those within scripts included."""
    return window.per_job(window.redis_commands)


def redis_round_trips(window: Window) -> float | None:
    """Return the replies and messages that Redis sent for a job, those sent together counted once."""
    return window.per_job(window.redis_round_trips)


def redis_kilobytes(window: Window) -> float | None:
    """Return the kilobytes that went to and from Redis for a job, its enqueueing not counted where that came before the window."""
    return window.per_job(None if window.redis_bytes is None else window.redis_bytes / 1e3)


def megabytes(window: Window) -> float | None:
    """Return the side's resident memory at the end of the window."""
    return window.rss_bytes / 1e6
