"""The level of an adaptive pool: how many inferences it lets run at once, found from what comes back. Pure; docs/adaptive.md has the rules.

It grows while nothing speaks against it: at first doubling, then by halves of the way to what was too much, and then by trying one
more now and then. Whatever is judged belongs to a flight: jobs that were granted after the level last changed. So what was granted
before is counted once, and a level is judged by its own jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import log2
from typing import Final

FEWEST_ANSWERS: Final = 4
"""A flight has as many answers as the level, and at least so many."""

GROWS_BELOW: Final = 2.5
"""So many times its shortest an answer may take for the level to grow: at a server that is just full it is 1 to 2."""

FALLS_ABOVE: Final = 3.5
"""The level falls when more than half of a flight's answers take longer than so many times their shortest."""

WAITING_SHARE: Final = 0.6
"""The level does not grow while Triton never has fewer than this share of it waiting."""

KEPT_SHARE: Final = 0.7
"""What is left of a level that was too much, where no level below it has proven to be right."""

HELPED_SHARE: Final = 1 / 3
"""Where a queue is what makes answers slow, a fall makes them quicker by its own share; this part of it shows that it did."""

VAIN_FALLS: Final = 2
"""After so many falls that made nothing quicker it is no queue: what was taken for the shortest time is not true any more."""

FIRST_PAUSE_MS: Final = 2_000
LONGEST_PAUSE_MS: Final = 60_000
"""How long a level that was too much is not tried again, after the first time and at the most; it doubles."""

_MOST_TIMES: Final = 64.0


class Reason(StrEnum):
    """Why a level last changed."""

    BEGUN = ""
    ROOM = "room"
    QUEUE_FULL = "queue_full"
    SLOW = "slow"
    LIMIT = "max_concurrency"


@dataclass(frozen=True, slots=True)
class Answer:
    """An inference that has ended: when it was granted (Redis' unix ms), and how many times its shortest it took.

    1 where its shortest is not known yet; inf where there was no answer in time.
    """

    granted_ms: int
    times: float


@dataclass(frozen=True, slots=True)
class Signals:
    """What was seen since the last decision.

    ``refused_ms`` is when the newest job was granted that met a full queue, 0 for none. ``waiting`` is how many requests Triton had
    waiting, None where nobody asked. ``full`` says that the level stood in the way of a job.
    """

    refused_ms: int = 0
    answers: Sequence[Answer] = ()
    waiting: int | None = None
    full: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """What was seen of a level: answers, how many of them were slow or too slow, and the sum of log2 of their times."""

    answers: int = 0
    slow: int = 0
    too_slow: int = 0
    logs: float = 0.0
    waiting: int | None = None
    full: bool = False

    def plus(self, seen: Signals, since_ms: int) -> "Flight":
        """Return this and what was seen of jobs that were granted later than ``since_ms``."""
        times = [answer.times for answer in seen.answers if answer.granted_ms > since_ms]
        return Flight(
            self.answers + len(times),
            self.slow + sum(each > GROWS_BELOW for each in times),
            self.too_slow + sum(each > FALLS_ABOVE for each in times),
            self.logs + sum(log2(min(max(each, 1.0), _MOST_TIMES)) for each in times),
            min((each for each in (self.waiting, seen.waiting) if each is not None), default=None),
            self.full or seen.full,
        )


@dataclass(frozen=True, slots=True)
class Level:
    """Where an adaptive pool stands; times are Redis' unix milliseconds.

    ``proven`` is the highest level below that had a good flight, ``ceiling`` the lowest above that was too much; 0 is none.
    ``step`` is how much it grows by where there is no ceiling. At the ceiling is tried again at ``retry_ms``, ``failed`` says how
    often in vain. ``slowness`` is the mean of log2 of the times before a fall for their sake, ``vain`` how many such falls in a row
    did not help. With each ``era`` what was known of shortest times is forgotten.
    """

    level: int = 1
    reason: Reason = Reason.BEGUN
    step: int = 1
    proven: int = 0
    ceiling: int = 0
    failed: int = 0
    retry_ms: int = 0
    changed_ms: int = 0
    lowered_ms: int = 0
    slowness: float | None = None
    vain: int = 0
    era: int = 0
    flight: Flight = field(default_factory=Flight)


def adapted(level: Level, seen: Signals, most: int, now_ms: int) -> Level:
    """Return the level after what was seen, from 1 to ``most``, which is the pool's max_concurrency."""
    level = _within(level, most, now_ms)
    if seen.refused_ms > level.lowered_ms:
        return replace(_lowered(level, Reason.QUEUE_FULL, now_ms), slowness=None, vain=0)
    flight = level.flight.plus(seen, level.changed_ms)
    level = replace(level, flight=flight)
    if flight.answers < max(level.level, FEWEST_ANSWERS):
        return level
    if flight.too_slow * 2 > flight.answers:
        return _slowed(level, flight.logs / flight.answers, now_ms)
    level = replace(level, slowness=None, vain=0, flight=Flight())
    if flight.slow * 2 > flight.answers or _many_wait(level.level, flight.waiting):
        return _proven(level)
    return _raised(_proven(level), most, now_ms) if flight.full else level


def _many_wait(level: int, waiting: int | None) -> bool:
    return waiting is not None and waiting > max(1.0, WAITING_SHARE * level)


def _within(level: Level, most: int, now_ms: int) -> Level:
    if level.level <= most:
        return level
    return _changed(level, most, Reason.LIMIT, now_ms)


def _proven(level: Level) -> Level:
    """Return the level as one that can be gone back to; a ceiling that it reached is none."""
    if level.ceiling and level.level >= level.ceiling:
        return replace(level, proven=level.level, ceiling=0, failed=0)
    return replace(level, proven=level.level)


def _raised(level: Level, most: int, now_ms: int) -> Level:
    here, ceiling = level.level, level.ceiling
    if here >= most:
        return level
    if not ceiling:
        to = here + level.step
        level = replace(level, step=min(2 * level.step, to))
    elif ceiling - here > 1:
        to = here + (ceiling - here) // 2
    elif now_ms >= level.retry_ms:
        to = ceiling
    else:
        return level
    return _changed(level, min(to, most), Reason.ROOM, now_ms)


def _lowered(level: Level, reason: Reason, now_ms: int) -> Level:
    """Return what a level falls to that was too much: back to one that has proven right, or by a share."""
    here = level.level
    if 0 < level.proven < here:
        to, proven, failed = level.proven, level.proven, level.failed + (0 < level.ceiling <= here)
    else:
        to, proven, failed = max(1, int(here * KEPT_SHARE)), 0, 0
    pause_ms = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(failed, 16))
    level = replace(level, step=1, proven=proven, ceiling=max(2, here), failed=failed, retry_ms=now_ms + pause_ms)
    return replace(_changed(level, to, reason, now_ms), lowered_ms=now_ms)


def _slowed(level: Level, slowness: float, now_ms: int) -> Level:
    """Return what becomes of a level whose answers take too long: it falls, unless falls have shown that it is no queue."""
    vain = level.vain + (level.slowness is not None and not _has_helped(level, slowness))
    if vain < VAIN_FALLS:
        return replace(_lowered(level, Reason.SLOW, now_ms), slowness=slowness, vain=vain)
    begun_anew = replace(level, slowness=None, vain=0, era=level.era + 1, proven=0, ceiling=0, step=1)
    return _changed(begun_anew, level.level, level.reason, now_ms)


def _has_helped(level: Level, slowness: float) -> bool:
    """Tell whether the last fall, which was from the ceiling, has made answers quicker."""
    return (level.slowness or 0.0) - slowness >= HELPED_SHARE * log2(level.ceiling / level.level)


def _changed(level: Level, to: int, reason: Reason, now_ms: int) -> Level:
    return replace(level, level=to, reason=reason, changed_ms=now_ms, flight=Flight())
