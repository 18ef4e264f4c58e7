"""Which faults happen, to whom, when and for how long: drawn from the seed up front. Pure."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FaultKind(StrEnum):
    """What is done to a process, or to a worker's line to Redis."""

    WORKER_KILL = "worker-kill"
    WORKER_FREEZE = "worker-freeze"
    WORKER_DRAIN = "worker-drain"
    LINE_CUT = "line-cut"
    LINE_STALL = "line-stall"
    LINE_DELAY = "line-delay"
    LINE_LOSE = "line-lose"
    CLIENT_KILL = "client-kill"
    SCRIPT_FLUSH = "script-flush"
    REDIS_KILL = "redis-kill"
    REDIS_FREEZE = "redis-freeze"
    TRITON_KILL = "triton-kill"
    TRITON_FREEZE = "triton-freeze"

    @property
    def track(self) -> str:
        """Return what it happens to: a worker (by number), redis or triton. One thing at a time happens to each."""
        return _TRACKS.get(self.partition("-")[0], "redis")


_TRACKS: Final = {"worker": "worker", "line": "worker", "triton": "triton"}

TRITON_FAULTS: Final = frozenset({FaultKind.TRITON_KILL, FaultKind.TRITON_FREEZE})


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins ``at`` seconds after the start and lasts ``seconds``."""

    at: float
    kind: FaultKind
    target: int
    """Which worker; 0 for what there is one of."""
    seconds: float
    fresh_id: bool
    """Whether a worker comes back under another worker_id."""

    @property
    def track(self) -> tuple[str, int]:
        """Return what it happens to."""
        return self.kind.track, self.target

    def __str__(self) -> str:
        target = f" {self.target}" if self.kind.track == "worker" else ""
        return f"{self.at:6.2f} s  {self.kind}{target} for {self.seconds:.2f} s{' (new id)' if self.fresh_id else ''}"


def draw_faults(
    seed: int, seconds: float, kinds: Collection[FaultKind], *, workers: int, lease_seconds: float, every: float
) -> tuple[Fault, ...]:
    """Return the faults of a run in time order; a worker's come about ``every`` seconds, Redis' and Triton's more rarely."""
    draw = random.Random(f"{seed}/faults")
    tracks = [("worker", number, every * workers) for number in range(workers)]
    tracks += [("redis", 0, every * 2), ("triton", 0, every * 3)]
    decks = {name: _deck(draw, [kind for kind in FaultKind if kind in kinds and kind.track == name]) for name in _NAMES}
    faults: list[Fault] = []
    for name, number, gap in tracks:
        at = draw.uniform(0.3, 1.0 + gap)
        while at < seconds and (kind := next(decks[name], None)) is not None:
            fault = _fault(draw, at, kind, number, lease_seconds)
            faults.append(fault)
            at += fault.seconds + draw.uniform(0.4, 1.6) * gap
    return tuple(sorted(faults, key=lambda fault: fault.at))


_NAMES: Final = ("worker", "redis", "triton")


def _deck(draw: random.Random, kinds: Sequence[FaultKind]) -> Iterator[FaultKind]:
    """Yield kinds in shuffled rounds, so that each comes about as often as the others."""
    while kinds:
        yield from draw.sample(kinds, len(kinds))


def _fault(draw: random.Random, at: float, kind: FaultKind, target: int, lease_seconds: float) -> Fault:
    past_the_lease = draw.uniform(1.3, 2.5) * lease_seconds
    within_the_lease = draw.uniform(0.05, 0.6) * lease_seconds
    match kind:
        case FaultKind.WORKER_FREEZE | FaultKind.LINE_STALL:
            seconds = past_the_lease if draw.random() < 0.7 else within_the_lease
        case FaultKind.REDIS_FREEZE:
            seconds = past_the_lease if draw.random() < 0.4 else within_the_lease
        case FaultKind.LINE_DELAY | FaultKind.LINE_LOSE:
            seconds = draw.uniform(0.5, 2.0)
        case FaultKind.LINE_CUT | FaultKind.CLIENT_KILL | FaultKind.SCRIPT_FLUSH:
            seconds = 0.0
        case _:
            seconds = draw.uniform(0.2, 1.5)
    return Fault(at, kind, target, seconds, fresh_id=kind.track == "worker" and draw.random() < 0.5)
