"""Has an adaptive pool find its level: gathers what this worker sees, and moves the level that all workers of the pool share.

One greenlet, one connection. While jobs end there is a look and at most one write in each tick, and nothing where none do, but for
a look now and then that keeps the level.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, Self

import gevent
import structlog
from gevent.event import Event
from redis.exceptions import ResponseError

from settings.schema import Settings
from tasks.delivery import Delivery, Retry, Return, Settlement
from tasks.errors import QueueFull, RuntimeTimeout
from tasks.generate import Clock
from worker.adaptive import Answer, Level, Signals, adapted
from worker.keys import Keys
from worker.level_store import LevelStore, Look, Write
from worker.metrics.pending import PendingRequests
from worker.outcomes import last_attempt
from worker.paces import Paces, kind_and_pace
from worker.redis_link import RedisLink, RedisUnavailable

TICK_SECONDS: Final = 0.5
KEPT_EVERY_MS: Final = 10_000.0
"""How often the level is looked at while no job ends; it holds for a minute (worker/lua/level.lua)."""

_SHORTEST_REST_SECONDS: Final = 0.1
_MOST_ANSWERS: Final = 100_000
_OUTAGE_SECONDS: Final = 0.25
_REFUSED_SECONDS: Final = 2.0

log = structlog.get_logger()


@dataclass(slots=True)
class Seen:
    """What was seen and is not decided upon yet."""

    refused_ms: int = 0
    answers: list[Answer] = field(default_factory=list)
    waiting: int | None = None

    def __bool__(self) -> bool:
        return bool(self.refused_ms or self.answers)

    def add(self, other: "Seen") -> None:
        """Take what was seen elsewhere too."""
        self.refused_ms = max(self.refused_ms, other.refused_ms)
        self.answers = (self.answers + other.answers)[-_MOST_ANSWERS:]


@dataclass(slots=True)
class Adapting:
    """One worker's part in it. ``writer`` is a name that no other run of a worker has; it begins the versions it writes."""

    store: LevelStore
    pool: str
    pending: PendingRequests
    clock: Clock
    draw: Callable[[], float]
    writer: str
    _seen: Seen = field(default_factory=Seen)
    _paces: Paces = field(default_factory=Paces)
    _level: Level = field(default_factory=Level)
    _was_full: bool = False
    _unanswered: tuple[Write, Seen] | None = None
    _writes: int = 0
    _look_at_ms: float = 0.0
    _refused: str = ""
    _wake: Event = field(default_factory=Event)

    @classmethod
    def of(
        cls, settings: Settings, keys: Keys, link: RedisLink, clock: Clock, draw: Callable[[], float]
    ) -> Self | None:
        """Return the part of a worker with these settings, over a connection of its own; None where its pool is not adaptive."""
        if not settings.gpu_pool.adaptive:
            return None
        return cls(
            store=LevelStore(link, keys, settings.pool_name),
            pool=settings.pool_name,
            pending=PendingRequests.of(settings, clock.monotonic_ms),
            clock=clock,
            draw=draw,
            writer=f"{settings.worker_id}-{secrets.token_hex(4)}",
        )

    def observe(self, delivery: Delivery, outcome: Settlement | Retry | Return) -> None:
        """Learn how a delivery ended."""
        error, granted_ms = outcome.error, delivery.claimed_at_ms
        if isinstance(error, QueueFull):
            self._seen.refused_ms = max(self._seen.refused_ms, granted_ms)
            if granted_ms > self._level.lowered_ms:
                self._wake.set()
        elif isinstance(error, RuntimeTimeout):
            self._answered(granted_ms, inf)
        elif error is None and (attempt := last_attempt(outcome)) is not None and attempt.inference_ms is not None:
            self._answered(
                granted_ms,
                self._paces.times(*kind_and_pace(delivery.queue_model, attempt.usage, attempt.inference_ms)),
            )

    def run(self) -> None:
        """Adapt until killed. While Redis is away nothing is granted anyhow."""
        try:
            while True:
                self._wake.clear()
                self._tick()
        finally:
            self.pending.close()

    def exchange(self) -> None:
        """Look at the level, and move it as what was seen says: two round trips at the most.

        Raises:
            RedisUnavailable: it may or may not have been done; the next call does what is left.
        """
        waiting = self.pending.count() if self._was_full and self._level.flight.waiting is None else None
        look = self._look(self._unanswered and self._unanswered[0])
        if not look.adaptive:
            self._seen = Seen()
            return
        seen, self._seen = self._seen, Seen()
        level = adapted(
            look.stored.level, Signals(seen.refused_ms, seen.answers, waiting, look.full), look.most, look.now_ms
        )
        if level == look.stored.level:
            return
        self._writes += 1
        write = Write(look.stored, level, f"{self.writer}-{self._writes}")
        self._unanswered = write, seen
        self._look(write)

    def _answered(self, granted_ms: int, times: float) -> None:
        if len(self._seen.answers) < _MOST_ANSWERS:
            self._seen.answers.append(Answer(granted_ms, times))

    def _tick(self) -> None:
        try:
            if self._is_due():
                self.exchange()
        except RedisUnavailable:
            gevent.sleep(_OUTAGE_SECONDS * (0.5 + self.draw()))
        except ResponseError as error:
            # Rights that are missing, a key of another type: until somebody mends it, the level stays, and then ends.
            if str(error) != self._refused:
                self._refused = str(error)
                log.error("level.was_refused", pool=self.pool, reason=self._refused[:120])
            gevent.sleep(_REFUSED_SECONDS)
        else:
            gevent.sleep(_SHORTEST_REST_SECONDS)
            self._wake.wait(TICK_SECONDS * (0.5 + self.draw()) - _SHORTEST_REST_SECONDS)

    def _is_due(self) -> bool:
        return bool(self._seen or self._unanswered) or self.clock.monotonic_ms() >= self._look_at_ms

    def _look(self, write: Write | None) -> Look:
        now_ms = self.clock.monotonic_ms()
        told = self._paces.to_tell(now_ms)
        look = self.store.look(write, told)
        self._refused, self._look_at_ms = "", now_ms + KEPT_EVERY_MS
        if self._unanswered is not None:
            (sent, seen), self._unanswered = self._unanswered, None
            if look.stands:
                self._tell(sent, look)
            elif look.adaptive:
                self._seen.add(seen)  # Another worker was quicker: it is decided anew, on what is there now.
        if look.adaptive:
            self._paces.heard(told, look.shortest, now_ms)
            self._paces.begin(look.stored.level.era)
            self._level, self._was_full = look.stored.level, look.full
        return look

    def _tell(self, write: Write, look: Look) -> None:
        before, level = write.before.level, write.level
        about = log.bind(pool=self.pool, level=level.level, before=before.level, reason=level.reason, most=look.most)
        if level.era != before.era:
            about.info("level.times_forgotten")
        elif level.level < before.level:
            about.info("level.lowered")
        elif level.level > before.level:
            about.debug("level.raised")
