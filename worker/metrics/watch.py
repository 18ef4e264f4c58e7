"""What waits in Redis, as the last look found it: queues, their oldest jobs, retries, and how much of the pool is in use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from redis.exceptions import ResponseError

from worker.backlog import enqueued_ms
from worker.clock import RedisClock
from worker.keys import PRIORITIES, Keys, lists_of
from worker.pool_use import PoolUse, answered
from worker.redis_link import RedisLink, RedisUnavailable
from worker.scripts import Scripts

LOOK_SECONDS: Final = 5.0
"""How old what is seen may be; less where the worker's heart beats more often."""

_LARGEST_HEAD_BYTES: Final = 64 << 10
_MINUTE_MS: Final = 60_000
_SHOWN: Final = 80

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One model's queue; ``oldest_ms`` is the age of the job next in line, 0 where there is none."""

    jobs: int
    oldest_ms: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """One look; ``queues`` is by public name."""

    queues: Mapping[str, QueueSeen]
    pool: PoolUse
    waiting: int
    settlements: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class Head:
    """What was next in line of a list, and since when it is known to be (Redis' unix ms)."""

    mark: bytes
    since_ms: int


@dataclass(slots=True)
class Watch:
    """Looks at the queues of some models and at one pool, over a connection of its own."""

    link: RedisLink
    keys: Keys
    models: Sequence[str]
    pool_name: str
    redis_clock: RedisClock
    last: Seen | None = None
    """What the last look found, None where Redis did not answer it."""

    _scripts: Scripts = field(init=False)
    _heads: dict[str, Head] = field(default_factory=dict)
    _complaint: str = ""

    def __post_init__(self) -> None:
        """Connect nothing yet."""
        self._scripts = Scripts(self.link, ["heads_of_queues"])

    def look(self) -> None:
        """Look once."""
        try:
            self.last = self._seen(self.redis_clock.now_ms())
        except RedisUnavailable:
            self.last = None  # The committer logs it, whose outage it is.
        except ResponseError as error:
            # Rights that are missing, or a key of another type: an operator's to mend, and no reason to end a worker.
            self.last = None
            if self._complaint != (complaint := str(error)[:_SHOWN]):
                log.warning("queues.were_not_seen", reason=complaint)
                self._complaint = complaint

    def _seen(self, now_ms: int) -> Seen:
        pool = self.pool_name
        lists = [name for model in self.models for name in lists_of(self.keys, model)]
        heads, paused, waiting, settlements, dead_letters, limits, slots, requests = self._scripts.run(
            [
                self._scripts.command("heads_of_queues", lists, [_LARGEST_HEAD_BYTES]),
                ["SMISMEMBER", self.keys.paused, *self.models],
                ["ZCARD", self.keys.waiting],
                ["XLEN", self.keys.settlements],
                ["XLEN", self.keys.dead_letters],
                ["HGETALL", self.keys.pool(pool)],
                ["ZCOUNT", self.keys.pool_slots(pool), f"({now_ms}", "+inf"],
                ["ZCOUNT", self.keys.pool_grants(pool), f"({now_ms - _MINUTE_MS}", "+inf"],
            ]
        )
        ages = self._ages(lists, heads, now_ms)
        step = len(PRIORITIES)
        queues = {
            model: QueueSeen(
                sum(length for length, _, _ in heads[step * n : step * (n + 1)]),
                max(ages[step * n : step * (n + 1)]),
                bool(paused[n]),
            )
            for n, model in enumerate(self.models)
        }
        fields = dict(zip(limits[::2], limits[1::2], strict=True))
        return Seen(queues, answered(pool, (fields, slots, requests), now_ms), waiting, settlements, dead_letters)

    def _ages(self, lists: Sequence[str], heads: Sequence[tuple[int, bytes, bytes]], now_ms: int) -> list[int]:
        """Return the age of each list's head in ms: by what it says of itself, or at least since it was first seen."""
        before, self._heads = self._heads, {}
        ages = []
        for name, (_, raw, mark) in zip(lists, heads, strict=True):
            if not mark:
                ages.append(0)
                continue
            seen = before.get(name)
            seen = seen if seen is not None and seen.mark == mark else Head(mark, now_ms)
            self._heads[name] = seen
            said_ms = enqueued_ms(raw)
            ages.append(max(0, now_ms - (seen.since_ms if said_ms is None else min(seen.since_ms, said_ms))))
        return ages
