"""Keeps one worker's copies of circuits and Redis together: one greenlet, one connection, one round trip for all that is due."""

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import gevent
import structlog
from gevent.event import Event
from redis.exceptions import ResponseError

from settings.schema import Settings
from tasks.generate import Clock
from worker.circuit import State
from worker.circuit_copy import CircuitCopy
from worker.circuit_store import CircuitStore
from worker.clock import RedisClock
from worker.keys import Keys
from worker.redis_link import RedisLink, RedisUnavailable
from worker.terms import circuit_terms
from worker.tracking import Tracking

_SWEEP_MS: Final = 5_000.0
"""How often what is not closed is read whatever rings, and all of them where nothing does."""

_UNTOLD_SWEEP_MS: Final = 1_000.0
"""The same where nothing rings and something is not closed."""

_BETWEEN_WRITES_MS: Final = 100.0
"""What changes no state is told together: one circuit takes the writes of all workers of its endpoint."""

_CONFLICT_MS: Final = 20.0
_OUTAGE_SECONDS: Final = 0.25
_REFUSED_SECONDS: Final = 2.0

log = structlog.get_logger()


@dataclass(slots=True)
class CircuitSync:
    """``copies`` are by Triton's model name. ``writer`` is a name that no other run of a worker has; it begins the versions it writes."""

    copies: Mapping[str, CircuitCopy]
    store: CircuitStore
    tracking: Tracking
    clock: Clock
    redis_clock: RedisClock
    draw: Callable[[], float]
    writer: str
    _stale: set[str] = field(default_factory=set)
    _due_ms: dict[str, float] = field(default_factory=dict)
    _written_ms: dict[str, float] = field(default_factory=dict)
    _sweep_at_ms: float = 0.0
    _writes: int = 0
    _refused: str = ""
    _wake: Event = field(default_factory=Event)

    @classmethod
    def of(
        cls,
        settings: Settings,
        keys: Keys,
        link: RedisLink,
        doorbell_id: Callable[[], int | None],
        clocks: tuple[Clock, RedisClock],
        draw: Callable[[], float],
    ) -> Self:
        """Return what keeps the circuits of a worker's settings, over a connection of its own."""
        terms = circuit_terms(settings)
        names = {settings.runtime_for(model).model_name for model in settings.supported_models}
        store = CircuitStore(link, keys, settings.endpoint_id)
        return cls(
            copies={name: CircuitCopy(terms, draw) for name in names},
            store=store,
            tracking=Tracking(link, store.key(""), doorbell_id),
            clock=clocks[0],
            redis_clock=clocks[1],
            draw=draw,
            writer=f"{settings.worker_id}-{secrets.token_hex(4)}",
        )

    def tell(self, model_name: str, within_ms: float, *, at_once: bool = False) -> None:
        """Learn that a copy has news, and how soon Redis is to have them."""
        now_ms = self.clock.monotonic_ms()
        at_ms = now_ms + within_ms
        if not at_once:
            at_ms = max(at_ms, self._written_ms.get(model_name, -_BETWEEN_WRITES_MS) + _BETWEEN_WRITES_MS)
        self._due_ms[model_name] = min(at_ms, self._due_ms.get(model_name, at_ms))
        self._wake.set()

    def changed(self, keys: Collection[str] | None) -> None:
        """Learn that others have changed these keys, or may have changed any."""
        if keys is None:
            self._stale.update(self.copies)
        else:
            self._stale.update(name for name in self.copies if self.store.key(name) in keys)
        if self._stale:
            self._wake.set()

    def run(self, heard: Callable[[str], None]) -> None:
        """Read and write until killed; ``heard`` is called with each model whose copy may have changed by it. Outages are waited out."""
        while True:
            self._wake.clear()
            try:
                self.exchange(heard)
            except RedisUnavailable:
                self.tracking.lost()
                gevent.sleep(_OUTAGE_SECONDS * (0.5 + self.draw()))
            except ResponseError as error:
                # Rights that are missing, a key of another type: until somebody mends it, each worker has circuits of its own.
                if str(error) != self._refused:
                    self._refused = str(error)
                    log.error("circuits.were_refused", reason=self._refused[:120])
                gevent.sleep(_REFUSED_SECONDS)
            else:
                self._refused = ""
                self._wake.wait(self._rest_seconds())

    def exchange(self, heard: Callable[[str], None]) -> None:
        """Read what is stale and write what is due, once.

        Raises:
            RedisUnavailable: it may or may not have been done; it is done again by the next call.
        """
        if self.tracking.tie():
            self._stale.update(self.copies)
        now_ms = self.clock.monotonic_ms()
        if now_ms >= self._sweep_at_ms:
            self._stale.update(self._swept())
        if self._stale or now_ms >= self._sweep_at_ms:  # A sweep of nothing tells whether the connection is whole.
            self._read(heard)
        if due := [name for name, at_ms in self._due_ms.items() if at_ms <= now_ms]:
            self._write(due, heard)

    def _swept(self) -> list[str]:
        unclosed = [name for name, copy in self.copies.items() if copy.circuit.state is not State.CLOSED]
        if self.tracking.is_told:
            return unclosed
        return list(self.copies)

    def _read(self, heard: Callable[[str], None]) -> None:
        stale, self._stale = list(self._stale), set()
        try:
            now_ms, stored = self.store.read(stale)
        except (RedisUnavailable, ResponseError):
            self._stale.update(stale)
            raise
        self.redis_clock.heard(now_ms)
        for name, each in zip(stale, stored, strict=True):
            self.copies[name].heard(each, now_ms)
            heard(name)
        quick = not self.tracking.is_told and any(
            copy.circuit.state is not State.CLOSED for copy in self.copies.values()
        )
        self._sweep_at_ms = self.clock.monotonic_ms() + (_UNTOLD_SWEEP_MS if quick else _SWEEP_MS)

    def _write(self, due: Collection[str], heard: Callable[[str], None]) -> None:
        for name in due:
            del self._due_ms[name]
        writes = {name: write for name in due if (write := self.copies[name].write(self._version())) is not None}
        try:
            replies = self.store.store(writes) if writes else {}
        except (RedisUnavailable, ResponseError):
            for name in writes:
                self.tell(name, 0.0, at_once=True)
            raise
        for name, reply in replies.items():
            self.redis_clock.heard(reply.now_ms)
            self._written_ms[name] = self.clock.monotonic_ms()
            self.copies[name].replied(reply)
            heard(name)
            if self.copies[name].has_news:
                # Another was quicker, or there was more to tell meanwhile.
                self.tell(name, _CONFLICT_MS * self.draw(), at_once=reply.instead is not None)

    def _version(self) -> str:
        self._writes += 1
        return f"{self.writer}-{self._writes}"

    def _rest_seconds(self) -> float:
        next_ms = min((self._sweep_at_ms, *self._due_ms.values()))
        return max(0.0, next_ms - self.clock.monotonic_ms()) / 1000
