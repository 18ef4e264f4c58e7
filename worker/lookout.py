"""Which queues to look at, and when: what the doorbell rang for, what sweeps are due, who was refused, whose turn is first. No I/O."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import structlog

from worker.exchange import Claimed, ClaimRequest, Limit, Refusal
from worker.shares import Shares

SWEEP_MS: Final = 5_000.0
"""How often all queues are looked at, whatever the doorbell said; also how soon an expired or cancelled job at a resting head is settled."""

UNTRACKED_SWEEP_MS: Final = 100.0
"""The same where the server does not let us listen."""

_ENDED_A_SWEEP: Final = 100
"""How many heads that have ended one call may claim: they wait for no slot, and Redis must not be held up by thousands."""

_NOT_FREED_BY_AN_END: Final = frozenset({Limit.REQUESTS, Limit.CIRCUIT, Limit.PAUSED})
"""Limits that stay in the way when one of this worker's jobs has ended."""

log = structlog.get_logger()


@dataclass(slots=True)
class Lookout:
    """The queues of one worker. ``is_open`` says which models jobs may be claimed of; times are monotonic milliseconds."""

    is_open: Callable[[str], bool]
    is_told_of_pushes: Callable[[], bool]
    shares: Shares = field(default_factory=Shares)
    _models: list[str] = field(default_factory=list)
    _maybe_filled: set[str] = field(default_factory=set)
    _rings: Counter[str] = field(default_factory=Counter)
    _rings_at_request: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _unusable: frozenset[str] = frozenset()
    _sweep_at_ms: float = 0.0
    _retry_at_ms: float | None = None
    _refused: dict[str, Refusal] = field(default_factory=dict)
    _asked: frozenset[str] = frozenset()
    _rests_until_ms: dict[str, float] = field(default_factory=dict)
    """Models that were refused: until when there is no use in asking only for their sake."""

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

    def recall(self) -> None:
        """Learn that something else may have changed that was in the way of models: a turn, a circuit, a pause."""
        self._rests_until_ms.clear()

    def job_ended(self) -> None:
        """Learn that a job of this worker has ended or gone back, and so what it held."""
        for model, refusal in self._refused.items():
            if refusal.limit not in _NOT_FREED_BY_AN_END:
                self._rests_until_ms.pop(model, None)

    def rest(self, model: str, until_ms: float) -> None:
        """Ask for no job of a model for a while: one went back, since its tokens are not there."""
        # Its queue may have been found empty meanwhile, and nobody tells us of our own pushes.
        self.ring(frozenset({model}))
        self._refused[model] = Refusal(Limit.TOKENS, None)
        self._rests_until_ms[model] = until_ms

    def refusals(self) -> Mapping[str, Limit]:
        """Return what stood in the way at the last look, by model, where jobs may wait."""
        return {model: refusal.limit for model, refusal in self._refused.items()}

    def may_ask(self, now_ms: float) -> bool:
        """Tell whether there may be something to claim; ``request`` looks closer, and costs more."""
        return bool(self._maybe_filled) or now_ms >= self._sweep_at_ms or self._is_retry_due(now_ms)

    def request(
        self,
        now_ms: float,
        wanted: int,
        *,
        held: Counter[str] | None = None,
        one_runs_alone: bool = False,
        opening: frozenset[str] = frozenset(),
    ) -> ClaimRequest | None:
        """Return what to claim now that ``wanted`` slots are free, None where there is nothing to look for.

        ``held`` counts this worker's jobs by model; ``opening`` are models of which a job is being opened.
        """
        sweep = now_ms >= self._sweep_at_ms
        if sweep:
            self._maybe_filled.update(self._models)
        opened = [model for model in self._models if model in self._maybe_filled and self.is_open(model)]
        quotas = self.shares.quotas(opened, wanted, held or Counter(), now_ms)
        asks = any(quotas[model] and self._rests_until_ms.get(model, 0.0) <= now_ms for model in opened)
        if not (sweep or asks or self._is_retry_due(now_ms)):
            return None
        closed = [model for model in self._models if not self.is_open(model)] if sweep else []
        if sweep:
            self._sweep_at_ms = now_ms + (SWEEP_MS if self.is_told_of_pushes() else UNTRACKED_SWEEP_MS)
        self._end_turn(opened[:1])
        self._asked = frozenset(opened)
        self._rings_at_request = self._rings.copy()
        return ClaimRequest(
            number=next(self._numbers),
            wanted=wanted,
            open=tuple(opened),
            closed=tuple(closed),
            most_ended=_ENDED_A_SWEEP if sweep else 0,
            one_runs_alone=one_runs_alone,
            quotas=tuple(quotas[model] for model in opened),
            opening=opening,
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
        self._learn_refusals(claimed, now_ms)
        if claimed.unusable - self._unusable:
            log.error("queue.was_unusable", keys=sorted(claimed.unusable), reason="it is no list")
        self._unusable |= claimed.unusable
        self._retry_at_ms = None
        if claimed.next_due_ms is not None:
            self._retry_at_ms = now_ms + max(0, claimed.next_due_ms - claimed.now_ms)

    def next_look_ms(self) -> float:
        """Return when to look again though nothing rings."""
        rests = [until for model, until in self._rests_until_ms.items() if model in self._maybe_filled]
        at = min([self._sweep_at_ms, *rests])
        return at if self._retry_at_ms is None else min(at, self._retry_at_ms)

    def _is_retry_due(self, now_ms: float) -> bool:
        return self._retry_at_ms is not None and now_ms >= self._retry_at_ms

    def _learn_refusals(self, claimed: Claimed, now_ms: float) -> None:
        for model in self._asked | claimed.empty:
            if model in claimed.refused and model not in claimed.empty:
                refusal = claimed.refused[model]
                self._refused[model] = refusal
                again_ms = math.inf if refusal.ask_again_ms is None else now_ms + refusal.ask_again_ms
                self._rests_until_ms[model] = again_ms
            else:
                self._refused.pop(model, None)
                self._rests_until_ms.pop(model, None)

    def _end_turn(self, first: list[str]) -> None:
        """Let what came first now come last next time: of those that have something to do, each is first in its turn."""
        self._models = [model for model in self._models if model not in first] + first
