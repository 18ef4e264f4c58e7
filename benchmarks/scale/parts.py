"""What is measured of growing: queue depth, models, workers. Each part returns its figures, in order."""

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.figures import Window
from benchmarks.gauges import ProcessUse, RedisUse
from benchmarks.plan import EMPTY
from benchmarks.scale.bed import Bed, MadeUp, Say, bed
from benchmarks.stage import valkey

_SHORT: Final = replace(EMPTY, prompt_bytes=128)
_CALM_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ScalePace:
    """How long a run takes, and how far it goes."""

    warm_seconds: float
    window_seconds: float
    rounds: int
    idle_seconds: float
    depths: tuple[int, ...]
    models: tuple[int, ...]
    workers: tuple[int, ...]
    memory_jobs: int


FULL: Final = ScalePace(2.0, 15.0, 3, 20.0, (1, 1_000, 1_000_000), (1, 50, 500), (1, 2, 4, 8), 20_000)
QUICK: Final = ScalePace(0.5, 1.0, 1, 3.0, (1, 1_000, 20_000), (1, 50, 100), (1, 2, 4), 1_000)


@dataclass(frozen=True, slots=True)
class Measured:
    """Windows of one step, a round each, and what the same workers cost without any job."""

    step: int
    windows: tuple[Window, ...]
    idle_cpu_percent: float | None = None
    idle_round_trips: float | None = None
    idle_redis_cpu_percent: float | None = None


def by_depth(triton_url: str, pace: ScalePace, say: Say) -> list[Measured]:
    """Return what one worker does with so many jobs in its queue; the same feeder keeps each as deep as it is."""
    windows: dict[int, list[Window]] = {depth: [] for depth in pace.depths}
    for number in range(pace.rounds):
        for depth in pace.depths:
            with (
                valkey("everysec") as server,
                bed(server.url, triton_url, _SHORT) as one,
                one.kept(_SHORT.in_flight + depth),
            ):
                windows[depth].append(one.window(pace.warm_seconds, pace.window_seconds))
            say(f"depth {depth:,}, round {number + 1}: {windows[depth][-1].jobs_per_second:,.0f} jobs/s")
    return [Measured(depth, tuple(found)) for depth, found in windows.items()]


def by_models(triton_url: str, pace: ScalePace, say: Say) -> list[Measured]:
    """Return what one worker does with so many models, of which all have jobs; and what it costs when none has."""
    found = []
    for models in pace.models:
        with valkey("everysec") as server, bed(server.url, triton_url, EMPTY, models=models) as one:
            idle = _idle(one, pace.idle_seconds)
            with one.kept(2_000 + EMPTY.in_flight):
                windows = tuple(one.window(pace.warm_seconds, pace.window_seconds) for _ in range(pace.rounds))
        found.append(Measured(models, windows, *idle))
        say(f"{models} models: {windows[0].jobs_per_second:,.0f} jobs/s, idle {idle[0]:.2f} % of a core")
    return found


def by_workers(triton_url: str, pace: ScalePace, say: Say, *, made_up_ms: float) -> list[Measured]:
    """Return what so many workers do together with one queue, without a Triton: each inference takes ``made_up_ms``."""
    found = []
    for workers in pace.workers:
        with (
            valkey("everysec") as server,
            bed(server.url, triton_url, EMPTY, workers=workers, made_up=MadeUp(made_up_ms)) as one,
        ):
            idle = _idle(one, pace.idle_seconds)
            with one.kept(2 * EMPTY.in_flight * workers + 2_000):
                windows = tuple(one.window(pace.warm_seconds, pace.window_seconds) for _ in range(pace.rounds))
        found.append(Measured(workers, windows, *idle))
        say(f"{workers} workers, inference {made_up_ms:g} ms: {windows[0].jobs_per_second:,.0f} jobs/s")
    return found


def _idle(one: Bed, seconds: float) -> tuple[float, float, float]:
    """Return percents of a core of all workers, round trips a second, and percents of a core of Redis, without any job."""
    time.sleep(_CALM_SECONDS)
    before, use, began = [ProcessUse.of(pid) for pid in one.pids], RedisUse.of(one.client), time.monotonic()
    time.sleep(seconds)
    used, passed = RedisUse.of(one.client).since(use, asked=1), time.monotonic() - began
    after: Any = [ProcessUse.of(pid) for pid in one.pids]
    cpu = sum(now.cpu_seconds for now in after) - sum(then.cpu_seconds for then in before)
    return 100 * cpu / passed, used.round_trips / passed, 100 * used.cpu_seconds / passed
