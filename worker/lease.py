"""Who is alive: each run of a worker counts up a lease, and watches everyone else's.

Nobody's clock is compared with another's, and no key's time to live decides: a run is dead when its counter stood still over the
length of its lease, seen by regular looks that all succeeded. An outage of Redis interrupts the looks, and so is nobody's death.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from tasks.generate import Clock

TRUSTED_SHARE: Final = 0.6
"""Which part of its lease a run trusts since it last asked for it: the rest is for stalls and for what is on its way."""

_LONGEST_GAP: Final = 2.0
"""How many intervals a look may lie after the one before and still count as regular."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's lease as Redis holds it: ``<incarnation> <counter> <lease_ms>``."""

    text: str

    @property
    def incarnation(self) -> str:
        """Return whose it is."""
        return self.text.split(" ", 1)[0]

    @property
    def lease_ms(self) -> float:
        """Return how long its counter has to stand still."""
        return float(self.text.rsplit(" ", 1)[1])


class Incarnation:
    """This run of the worker, by its name; it may have to begin anew under another."""

    def __init__(self, worker_id: str, lease_ms: float, clock: Clock) -> None:
        """Begin under a name of its own; the lease is not held yet."""
        self._worker_id = worker_id
        self._lease_ms = lease_ms
        self._clock = clock
        self._trusted_until_ms = float("-inf")
        self.name = ""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Take a new name: the old one was declared dead."""
        self.name = f"{self._worker_id}:{uuid.uuid4().hex[:12]}"
        self._trusted_until_ms = float("-inf")

    def renewed(self, asked_ms: float) -> None:
        """Learn that the lease was renewed by a call that was sent at ``asked_ms`` (monotonic)."""
        self._trusted_until_ms = asked_ms + TRUSTED_SHARE * self._lease_ms

    def is_trusted(self) -> bool:
        """Tell whether the lease is certainly still held: no inference is begun without."""
        return self._clock.monotonic_ms() < self._trusted_until_ms


@dataclass(frozen=True, slots=True)
class Dead:
    """A run that is to be ended: its lease as it stood still, None where it has claims and no lease."""

    worker_id: str
    incarnation: str
    stood: str | None

    @classmethod
    def of(cls, incarnation: str, stood: str | None) -> Self:
        """Return a dead run by its incarnation, ``<worker_id>:<id of the run>``."""
        return cls(incarnation.rpartition(":")[0], incarnation, stood)


@dataclass(slots=True)
class LeaseWatch:
    """Sees which runs have stood still. Pure: times are monotonic milliseconds of the watcher.

    ``interval_ms`` is how far apart looks are; ``lease_ms`` is for those who have claims but no lease.
    """

    interval_ms: float
    lease_ms: float
    _looked_at_ms: float | None = None
    _stood: dict[str, tuple[str | None, float]] = field(default_factory=dict)

    def missed(self) -> None:
        """Learn that a look failed: what was seen before it proves nothing any more."""
        self._looked_at_ms = None
        self._stood.clear()

    def look(self, leases: Mapping[str, str], claimants: frozenset[str], now_ms: float) -> list[Dead]:
        """Take what a look saw: leases by worker_id, and the incarnations that hold claims. Returns who is dead."""
        gap_ms = 0.0 if self._looked_at_ms is None else now_ms - self._looked_at_ms
        if gap_ms > _LONGEST_GAP * self.interval_ms:
            gap_ms = self.interval_ms  # We were stalled ourselves; others may have been too.
        self._looked_at_ms = now_ms
        seen: dict[str, str | None] = dict.fromkeys(claimants)
        seen.update({Lease(text).incarnation: text for text in leases.values()})
        self._stood = {name: self._still(name, text, gap_ms) for name, text in seen.items()}
        return [Dead.of(name, text) for name, (text, still_ms) in self._stood.items() if still_ms >= self._limit(text)]

    def _still(self, name: str, text: str | None, gap_ms: float) -> tuple[str | None, float]:
        before, still_ms = self._stood.get(name, (text, 0.0))
        if name not in self._stood or before != text:
            return text, 0.0
        return text, still_ms + gap_ms

    def _limit(self, text: str | None) -> float:
        return self.lease_ms if text is None else Lease(text).lease_ms
