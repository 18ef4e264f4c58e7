"""Time: this process' own for durations, and Redis' for everything that is written down or compared."""

import time
from dataclasses import dataclass

from tasks import rfc3339
from tasks.generate import Clock


@dataclass(frozen=True, slots=True)
class MonotonicClock:
    """The process' clock that only moves forward."""

    def monotonic_ms(self) -> float:
        """Return milliseconds since some fixed moment."""
        return time.monotonic() * 1000


class RedisClock:
    """Redis' time, carried forward by this process' clock since it was last heard of."""

    def __init__(self, clock: Clock) -> None:
        """Know nothing yet: until a first reply the time reads as 1970."""
        self._clock = clock
        self._offset_ms = -clock.monotonic_ms()

    def heard(self, now_ms: int) -> None:
        """Take the time a reply of Redis brought, in unix milliseconds."""
        self._offset_ms = now_ms - self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return Redis' unix milliseconds, to within what a reply takes."""
        return round(self._offset_ms + self._clock.monotonic_ms())

    def now(self) -> str:
        """Return the same as RFC 3339."""
        return rfc3339.from_ms(self.now_ms())
