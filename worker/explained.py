"""What this worker's last look found of the jobs that wait in the fleet, for as long as that can still be so. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tasks.generate import Clock
from worker.explain import Kind

KEPT_MS: Final = 120_000
"""How long a look counts: two turns. Whoever has the next turn shows its own by then, and there is a scrape of either in between
even where Prometheus comes once a minute: an alert that has to hold for minutes does not begin anew with each turn."""


@dataclass(frozen=True, slots=True)
class Wait:
    """So many jobs of a model wait in its queue, for a reason of this kind."""

    model: str
    kind: Kind
    queued: int


class Explained:
    """The last look of this worker, whose turn the next one need not be: then nobody says here that it is over, and it lapses."""

    def __init__(self, clock: Clock) -> None:
        """Know of no look yet; ``clock`` tells how old one is."""
        self._clock = clock
        self._waits: tuple[Wait, ...] = ()
        self._found_ms = 0.0

    def found(self, waits: Iterable[Wait]) -> None:
        """Take what a look found in the place of what the one before did."""
        self._waits, self._found_ms = tuple(waits), self._clock.monotonic_ms()

    def waits(self) -> tuple[Wait, ...]:
        """Return what the last look found, nothing once it is older than KEPT_MS."""
        return self._waits if self._clock.monotonic_ms() - self._found_ms < KEPT_MS else ()
