"""What waits in Redis, as the last look found it: queues, their oldest jobs, retries, and how much of the pool is in use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from redis.exceptions import ResponseError

from worker.clock import RedisClock
from worker.envelope import Readable, read_envelope
from worker.keys import PRIORITIES, Keys
from worker.redis_link import RedisLink, RedisUnavailable
from worker.scripts import Scripts

LOOK_SECONDS: Final = 5.0
_LARGEST_HEAD_BYTES: Final = 64 << 10
_MINUTE_MS: Final = 60_000
_SHOWN: Final = 80

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Queue:
    """One model's queue; ``oldest_ms`` is the age of the job next in line, 0 where there is none."""

    jobs: int
    oldest_ms: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Pool:
    """What of a pool is in use, and its limits; None is not limited, or not known."""

    slots: int
    slots_limit: float | None
    level: float | None
    requests: int
    requests_limit: float | None
    tokens: float | None
    tokens_limit: float | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """One look."""

    queues: Mapping[str, Queue]
    pool: Pool
    waiting: int
    settlements: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class Head:
    """What was next in line of a list, and since when it is known to be (Redis' unix ms)."""

    mark: bytes
    since_ms: int


@dataclass(slots=True)
class BacklogReader:
    """Looks at the queues of some models and at one pool, over a connection of its own."""

    link: RedisLink
    keys: Keys
    models: Sequence[str]
    pool_name: str
    redis_clock: RedisClock
    last: Backlog | None = None
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
            self.last = self._read(self.redis_clock.now_ms())
        except RedisUnavailable:
            self.last = None  # The committer logs it, whose outage it is.
        except ResponseError as error:
            # Rights that are missing, or a key of another type: an operator's to mend, and no reason to end a worker.
            self.last = None
            if self._complaint != (complaint := str(error)[:_SHOWN]):
                log.warning("backlog.was_refused", reason=complaint)
                self._complaint = complaint

    def _read(self, now_ms: int) -> Backlog:
        lists = [self.keys.jobs(model) + priority for model in self.models for priority in PRIORITIES]
        pool = self.pool_name
        heads, paused, waiting, settlements, dead_letters, slots, grants, limits, tokens = self._scripts.run(
            [
                self._scripts.command("heads_of_queues", lists, [_LARGEST_HEAD_BYTES]),
                ["SMISMEMBER", self.keys.paused, *self.models],
                ["ZCARD", self.keys.waiting],
                ["XLEN", self.keys.settlements],
                ["XLEN", self.keys.dead_letters],
                ["ZCOUNT", self.keys.pool_slots(pool), f"({now_ms}", "+inf"],
                ["ZCOUNT", self.keys.pool_grants(pool), f"({now_ms - _MINUTE_MS}", "+inf"],
                ["HMGET", self.keys.pool(pool), "max_concurrency", "level", "requests_per_minute", "tokens_per_minute"],
                ["HMGET", f"{self.keys.pool(pool)}:tokens", "level", "at"],
            ]
        )
        ages = self._ages(lists, heads, now_ms)
        step = len(PRIORITIES)
        queues = {
            model: Queue(
                sum(length for length, _, _ in heads[step * n : step * (n + 1)]),
                max(ages[step * n : step * (n + 1)]),
                bool(paused[n]),
            )
            for n, model in enumerate(self.models)
        }
        return Backlog(queues, _pool(slots, grants, limits, tokens, now_ms), waiting, settlements, dead_letters)

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
            enqueued_ms = _enqueued_ms(raw)
            ages.append(max(0, now_ms - min(seen.since_ms, seen.since_ms if enqueued_ms is None else enqueued_ms)))
        return ages


def _enqueued_ms(raw: bytes) -> int | None:
    match read_envelope(raw, _LARGEST_HEAD_BYTES):
        case Readable(enqueued_ms=enqueued_ms):
            return enqueued_ms
        case _:
            return None


def _pool(slots: int, grants: int, limits: Sequence[bytes | None], tokens: Sequence[bytes | None], now_ms: int) -> Pool:
    concurrency, level, requests_limit, tokens_limit = (_number(value) for value in limits)
    return Pool(slots, concurrency, level, grants, requests_limit, _tokens(tokens_limit, tokens, now_ms), tokens_limit)


def _tokens(limit: float | None, state: Sequence[bytes | None], now_ms: int) -> float | None:
    """Return what the bucket holds now: it fills up all the time, to a sixth of what a minute brings."""
    if limit is None:
        return None
    full = limit / 6
    level, at_ms = (_number(value) for value in state)
    if level is None or at_ms is None:
        return full
    return max(level, min(full, level + (now_ms - at_ms) * limit / _MINUTE_MS))


def _number(value: bytes | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None
