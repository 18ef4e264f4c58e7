"""What is measured and for how long: the workloads, and the two paces at which a run goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MODEL_REPOSITORIES: Final = (ROOT / "tests" / "models", ROOT / "benchmarks" / "models")


@dataclass(frozen=True, slots=True)
class Workload:
    """One model under load. ``most_per_second`` is more jobs than any side does in a second: what is queued beforehand."""

    name: str
    model: str
    words: str
    most_per_second: int
    window_seconds: float
    in_flight: int = 64
    prompt_bytes: int = 1024


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a run takes: rounds of each side, seconds to get going before each window, single jobs, idle seconds."""

    rounds: int
    warm_seconds: float
    longest_window_seconds: float
    single_jobs: int
    idle_seconds: float

    def window_seconds(self, workload: Workload) -> float:
        """Return how long a window of the workload is at this pace."""
        return min(workload.window_seconds, self.longest_window_seconds)


WORKLOADS: Final = (
    Workload("empty", "empty", "a model that costs nothing: all that is left is the queue's cost", 9_000, 5.0),
    Workload("batch-8", "batched", "20 ms for each batch of up to 8", 500, 4.0),
    Workload("batch-64", "batched_64", "20 ms for each batch of up to 64", 4_000, 4.0),
    Workload("half-second", "half_second", "375 to 625 ms for each, any number at once", 200, 10.0),
)
FULL: Final = Pace(rounds=3, warm_seconds=1.5, longest_window_seconds=60.0, single_jobs=200, idle_seconds=10.0)
QUICK: Final = Pace(rounds=1, warm_seconds=0.5, longest_window_seconds=0.8, single_jobs=15, idle_seconds=2.0)


class UnknownWorkload(Exception):
    """There is no workload of that name."""


def chosen(names: Sequence[str]) -> tuple[Workload, ...]:
    """Return the workloads of these names, all where none is given.

    Raises:
        UnknownWorkload: one of them is none.
    """
    known = {workload.name: workload for workload in WORKLOADS}
    for name in names:
        if name not in known:
            raise UnknownWorkload(f"there is no workload {name}: choose from {', '.join(known)}")
    return tuple(workload for workload in WORKLOADS if not names or workload.name in names)


def turns(sides: Sequence[str], round_number: int) -> tuple[str, ...]:
    """Return the order in which the sides have their turns in a round: each comes first in one."""
    first = round_number % len(sides)
    return (*sides[first:], *sides[:first])
