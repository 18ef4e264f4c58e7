"""Which queues to look at, and when: what the doorbell rang for, what sweeps are due, whose turn is first. No I/O."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import structlog

from worker.exchange import Claimed, ClaimRequest

SWEEP_MS: Final = 5_000.0
"""How often all queues are looked at, whatever the doorbell said; also how soon an expired or cancelled job at a resting head is settled."""

UNTRACKED_SWEEP_MS: Final = 100.0
"""The same where the server does not let us listen."""

_ENDED_A_SWEEP: Final = 100
"""How many heads that have ended one call may claim: they wait for no slot, and Redis must not be held up by thousands."""


log = structlog.get_logger()


@dataclass(slots=True)
class Lookout:
    """The queues of one worker. ``is_open`` says which models jobs may be claimed of; times are monotonic milliseconds."""

    is_open: Callable[[str], bool]
    is_told_of_pushes: Callable[[], bool]
    _models: list[str] = field(default_factory=list)
    _maybe_filled: set[str] = field(default_factory=set)
    _rings: Counter[str] = field(default_factory=Counter)
    _rings_at_request: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _unusable: frozenset[str] = frozenset()
    _sweep_at_ms: float = 0.0
    _retry_at_ms: float | None = None

    def open(self, model: str) -> None:
        """Look at a model's queue from now on."""
        if model not in self._models:
            self._models.append(model)
        self.ring(frozenset({model}))

    def close(self, model: str) -> None:
        """Look at a model's queue no more."""
        if model in self._models:
            self._models.remove(model)

    def ring(self, models: frozenset[str] | None) -> None:
        """Learn that something may have come in: for these models, or for any."""
        for model in self._models if models is None else models:
            self._maybe_filled.add(model)
            self._rings[model] += 1

    def request(self, now_ms: float, wanted: int, *, one_runs_alone: bool = False) -> ClaimRequest | None:
        """Return what to claim now that ``wanted`` slots are free, None where there is nothing to look for."""
        sweep = now_ms >= self._sweep_at_ms
        retry_due = self._retry_at_ms is not None and now_ms >= self._retry_at_ms
        if sweep:
            self._maybe_filled.update(self._models)
        opened = [model for model in self._models if model in self._maybe_filled and self.is_open(model)]
        if not (sweep or retry_due or (wanted and opened)):
            return None
        closed = [model for model in self._models if not self.is_open(model)] if sweep else []
        if sweep:
            self._sweep_at_ms = now_ms + (SWEEP_MS if self.is_told_of_pushes() else UNTRACKED_SWEEP_MS)
        self._end_turn(opened[:1])
        self._rings_at_request = self._rings.copy()
        return ClaimRequest(
            next(self._numbers), wanted, tuple(opened), tuple(closed), _ENDED_A_SWEEP if sweep else 0, one_runs_alone
        )

    def expect_retry(self, at_ms: float) -> None:
        """Learn of a retry that was just made: by itself it rings for nobody."""
        self._retry_at_ms = at_ms if self._retry_at_ms is None else min(self._retry_at_ms, at_ms)

    def learn(self, claimed: Claimed, now_ms: float) -> None:
        """Take the reply to the last request."""
        # A push that the script could not see yet has rung since: what it found empty then may be filled now.
        unrung = {model for model in claimed.empty if self._rings[model] == self._rings_at_request[model]}
        self._maybe_filled -= unrung
        self.ring(claimed.returned)
        if claimed.unusable - self._unusable:
            log.error("queue.was_unusable", keys=sorted(claimed.unusable), reason="it is no list")
        self._unusable |= claimed.unusable
        self._retry_at_ms = None
        if claimed.next_due_ms is not None:
            self._retry_at_ms = now_ms + max(0, claimed.next_due_ms - claimed.now_ms)

    def next_look_ms(self) -> float:
        """Return when to look again though nothing rings."""
        return self._sweep_at_ms if self._retry_at_ms is None else min(self._sweep_at_ms, self._retry_at_ms)

    def _end_turn(self, first: list[str]) -> None:
        """Let what came first now come last next time: of those that have something to do, each is first in its turn."""
        self._models = [model for model in self._models if model not in first] + first
