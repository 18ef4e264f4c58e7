"""Load for a long time: whether the worker's memory stays flat, and Redis' as the formula says."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from threading import Event, Thread
from typing import Any, Final

from benchmarks.gauges import ProcessUse
from benchmarks.ours import KEYS
from benchmarks.plan import EMPTY
from benchmarks.scale.bed import Bed, Say, bed
from benchmarks.stage import valkey

_PART_SETTLED: Final = 60
"""Results and markers live for so small a part of the soak that most of it shows what the formula is about."""

_READ_SECONDS: Final = 1.0
_LOOKS: Final = 60
_SAID: Final = 10
_FEED_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Look:
    """The worker and Redis at one moment of a soak."""

    after_seconds: float
    settled: int
    worker_bytes: int
    redis_bytes: int
    redis_keys: int


@dataclass(frozen=True, slots=True)
class Soak:
    """A whole soak, with the seconds that results and markers were kept."""

    rate: float
    kept_seconds: int
    looks: tuple[Look, ...]

    @property
    def growth(self) -> float:
        """Return the worker's memory at the end over that after a fifth of the time."""
        early = self.looks[len(self.looks) // 5]
        return self.looks[-1].worker_bytes / early.worker_bytes


def soak(triton_url: str, minutes: float, rate: float, say: Say) -> Soak:
    """Return how one worker and Redis do with ``rate`` jobs a second for so long; a consumer reads and trims the settlements."""
    seconds = 60 * minutes
    kept = max(2, round(seconds / _PART_SETTLED))
    ttls = {"result_ttl_seconds": kept, "settled_ttl_seconds": kept}
    looks = []
    with valkey("everysec") as server, bed(server.url, triton_url, EMPTY, changes=ttls) as one, _reader(one) as trimmed:
        began = time.monotonic()
        next_look = count(1)
        due = began + seconds / _LOOKS
        while (now := time.monotonic()) < began + seconds:
            lacking = round((now - began) * rate) - one.given
            one.push(max(0, lacking))
            if now >= due:
                looks.append(_look(one, now - began, trimmed))
                due = began + seconds * (next(next_look) + 1) / _LOOKS
                if len(looks) % _SAID == 0:
                    say(f"soak, {now - began:,.0f} s: worker {looks[-1].worker_bytes / 1e6:.1f} MB")
            time.sleep(_FEED_SECONDS)
    return Soak(rate, kept, tuple(looks))


def _look(one: Bed, after_seconds: float, trimmed: list[int]) -> Look:
    info: Any = one.client.info("memory")
    keys: Any = one.client.dbsize()
    settled = one.settled() + sum(trimmed)
    return Look(after_seconds, settled, ProcessUse.of(one.pids[0]).rss_bytes, int(info["used_memory"]), int(keys))


@contextmanager
def _reader(one: Bed) -> Iterator[list[int]]:
    """Trim the settlements each second, as whoever has read them does; yields how many were trimmed, a number a time."""
    stop, trimmed = Event(), [0]

    def read() -> None:
        while not stop.wait(_READ_SECONDS):
            trimmed.append(int(one.client.xtrim(KEYS.settlements, maxlen=0, approximate=False)))

    reader = Thread(target=read)
    reader.start()
    try:
        yield trimmed
    finally:
        stop.set()
        reader.join()
