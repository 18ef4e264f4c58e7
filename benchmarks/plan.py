"""What is measured and for how long: the workloads, the sections of a run, and the two paces at which one goes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from worker.sandbox.valkey_server import Fsync

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


EMPTY: Final = Workload(
    "empty", "empty", "a model that costs nothing: all that is left is the queue's cost", 9_000, 8.0
)
BATCH_8: Final = Workload("batch-8", "batched", "20 ms for each batch of up to 8", 500, 8.0)
BATCH_64: Final = Workload("batch-64", "batched_64", "20 ms for each batch of up to 64", 4_000, 8.0)
# Jobs finish in waves of half a second: a window that cuts through one errs by a part of its length.
HALF_SECOND: Final = Workload("half-second", "half_second", "375 to 625 ms for each, any number at once", 200, 30.0)
WORKLOADS: Final = (EMPTY, BATCH_8, BATCH_64, HALF_SECOND)


@dataclass(frozen=True, slots=True)
class Kind:
    """Which sides take part: those that a target is about, in each round, and the others in the first ones only."""

    always_there: tuple[str, ...]
    others: tuple[str, ...] = ()
    redis_ms: tuple[float, ...] = (0.0,)
    """How far away Redis is, as a round trip's milliseconds; each of the sides with a queue takes part once for each."""


@dataclass(frozen=True, slots=True)
class Section:
    """One table under load: a workload, the sides, and how Redis is."""

    name: str
    title: str
    workload: Workload
    kind: Kind
    fsync: Fsync = "everysec"


_MAIN: Final = ("speedinfer", "direct", "celery x1", "celery x4")
_ALL: Final = Kind(_MAIN, ("celery prefork", "rq", "arq", "saq", "dramatiq", "taskiq"))
_AWAY: Final = Kind(("speedinfer",), ("celery x4",), redis_ms=(0.0, 0.5, 2.0))
_FEW: Final = Kind(("speedinfer", "direct", "celery x4"))
_KB: Final = 1024


def _with_prompts(workload: Workload, kilobytes: int) -> Workload:
    return replace(workload, prompt_bytes=kilobytes * _KB)


SECTIONS: Final = (
    *(Section(one.name, f"{one.name}: {one.words}", one, _ALL) for one in WORKLOADS),
    *(
        Section(f"{one.name}-always", f"{one.name}, with appendfsync always", one, _FEW, "always")
        for one in (EMPTY, HALF_SECOND)
    ),
    *(
        Section(f"{one.name}-64kb", f"{one.name}, with prompts of 64 KB", _with_prompts(one, 64), _FEW)
        for one in (EMPTY, BATCH_64)
    ),
    Section(
        "half-second-4kb",
        "half-second, with prompts of 4 KB",
        _with_prompts(HALF_SECOND, 4),
        Kind(("speedinfer", "direct")),
    ),
    *(Section(f"{one.name}-away", f"{one.name}, with Redis further away", one, _AWAY) for one in WORKLOADS),
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a run takes: rounds of the sides, seconds to get going before each window, single jobs, idle seconds."""

    rounds: int
    rounds_of_others: int
    warm_seconds: float
    longest_window_seconds: float
    longest_window_seconds_of_others: float
    single_jobs: int
    idle_seconds: float

    def window_seconds(self, section: Section, side: str) -> float:
        """Return how long a side's window of a section is at this pace."""
        is_other = side in section.kind.others
        longest = self.longest_window_seconds_of_others if is_other else self.longest_window_seconds
        return min(section.workload.window_seconds, longest)


FULL: Final = Pace(
    rounds=3,
    rounds_of_others=1,
    warm_seconds=1.5,
    longest_window_seconds=60.0,
    longest_window_seconds_of_others=8.0,
    single_jobs=200,
    idle_seconds=20.0,
)
QUICK: Final = Pace(
    rounds=1,
    rounds_of_others=1,
    warm_seconds=0.5,
    longest_window_seconds=0.8,
    longest_window_seconds_of_others=0.8,
    single_jobs=15,
    idle_seconds=2.0,
)


class UnknownSection(Exception):
    """There is no section of that name."""


def chosen(names: Sequence[str]) -> tuple[Section, ...]:
    """Return the sections of these names, all where none is given.

    Raises:
        UnknownSection: one of them is none.
    """
    known = {section.name: section for section in SECTIONS}
    for name in names:
        if name not in known:
            raise UnknownSection(f"there is no section {name}: choose from {', '.join(known)}")
    return tuple(section for section in SECTIONS if not names or section.name in names)


def turns(sides: Sequence[str], round_number: int) -> tuple[str, ...]:
    """Return the order in which the sides have their turns in a round: each comes first in one."""
    first = round_number % len(sides)
    return (*sides[first:], *sides[:first])
