"""What a pool may grant, in plain Python: a limiter that is told what was granted and refused, and says what was wrong with it."""

import math
from collections import defaultdict
from dataclasses import dataclass, field

from worker.exchange import Limit

MINUTE_MS = 60_000
BURST_SHARE = 1 / 6
BORROWED_SHARE = 0.25
TOKENS_PER_BYTE = 0.25
LEARNED_SHARE = 0.2
JUST_REFILLED = 1.0
"""Tokens that come in while a call is on its way."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one job needs: bytes of its prompt, and its max_tokens."""

    model: str
    prompt_bytes: int
    max_tokens: int


@dataclass
class Limiter:
    """The reference. Times are ms on one clock; claims are named as in Redis."""

    max_concurrency: int
    requests_per_minute: int | None
    tokens_per_minute: int | None
    slot_ms: int
    slots: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Claim to its model, and to when its slot lapses."""
    grants: dict[str, float] = field(default_factory=dict)
    reserved: dict[str, tuple[Need, int]] = field(default_factory=dict)
    active: dict[str, float] = field(default_factory=dict)
    level: float = 0.0
    at_ms: float = -math.inf
    per_byte: dict[str, float] = field(default_factory=dict)

    @property
    def burst(self) -> float:
        """How many tokens may be taken at once."""
        return (self.tokens_per_minute or 0) * BURST_SHARE

    def used(self, now_ms: float) -> dict[str, int]:
        """Return how many slots are taken, by model."""
        used: defaultdict[str, int] = defaultdict(int)
        for model, lapse_ms in self.slots.values():
            if lapse_ms > now_ms:
                used[model] += 1
        return used

    def free_slots(self, now_ms: float) -> int:
        """Return how many slots are free."""
        return self.max_concurrency - sum(self.used(now_ms).values())

    def requests_left(self, now_ms: float) -> float:
        """Return how many requests may be granted now."""
        if self.requests_per_minute is None:
            return math.inf
        return self.requests_per_minute - sum(1 for at in self.grants.values() if at > now_ms - MINUTE_MS)

    def tokens(self, now_ms: float) -> float:
        """Return the level of the bucket."""
        if self.tokens_per_minute is None:
            return math.inf
        if self.level >= self.burst:
            return self.level
        return min(self.burst, self.level + (now_ms - self.at_ms) * self.tokens_per_minute / MINUTE_MS)

    def needed(self, need: Need) -> int:
        """Return how many tokens a job is granted."""
        if self.tokens_per_minute is None:
            return 0
        per_byte = self.per_byte.get(need.model, TOKENS_PER_BYTE)
        return math.ceil(need.prompt_bytes * per_byte) + need.max_tokens

    def kept_for_others(self, model: str, now_ms: float) -> int:
        """Return how many idle slots are kept for models that had work in the last minute."""
        used = self.used(now_ms)
        recent = [other for other, at_ms in self.active.items() if at_ms >= now_ms - MINUTE_MS and other != model]
        kept = sum(1 for other in recent if not used[other])
        return min(kept, math.floor(self.max_concurrency * (1 - BORROWED_SHARE)))

    def granted(self, claim: str, need: Need, now_ms: float) -> None:
        """Take what a job was granted; whatever was not there fails an assertion."""
        model, needed = need.model, self.needed(need)
        borrowed = self.used(now_ms)[model] >= 1
        assert self.free_slots(now_ms) > (self.kept_for_others(model, now_ms) if borrowed else 0), "no slot was free"
        assert self.requests_left(now_ms) > 0, "too many requests in a minute"
        if self.tokens_per_minute is not None:
            level = self.tokens(now_ms)
            assert needed <= self.tokens_per_minute, "it could never fit"
            assert level >= min(needed, self.burst) - JUST_REFILLED, "the tokens were not there"
            self.level, self.at_ms = level - needed, now_ms
        self.slots[claim] = (model, now_ms + self.slot_ms)
        self.grants[claim] = now_ms
        self.reserved[claim] = need, needed

    def ended(
        self, claim: str, now_ms: float, *, frees: bool, refunds: bool, spent: int = 0, prompt_tokens: int = 0
    ) -> None:
        """Learn how a claim ended: whether its slot is free, whether it cost nothing, and what it spent."""
        need, needed = self.reserved.pop(claim)
        if frees:
            self.slots.pop(claim, None)
        if refunds:
            self.grants.pop(claim, None)
        if self.tokens_per_minute is not None and needed:
            self.level, self.at_ms = self.tokens(now_ms) + needed - spent, now_ms
            if prompt_tokens and need.prompt_bytes:
                before, true = self.per_byte.get(need.model), prompt_tokens / need.prompt_bytes
                learned = true if before is None else before * (1 - LEARNED_SHARE) + true * LEARNED_SHARE
                self.per_byte[need.model] = learned

    def is_rightly_refused(self, need: Need, limit: Limit, now_ms: float, *, others_wait: bool) -> bool:
        """Tell whether a limit really stood in the way of a job."""
        borrows = self.used(now_ms)[need.model] >= 1
        kept = self.kept_for_others(need.model, now_ms) if borrows else 0
        match limit:
            case Limit.SLOTS:
                return self.free_slots(now_ms) <= kept
            case Limit.REQUESTS:
                return self.requests_left(now_ms) <= 0
            case Limit.TOKENS:
                # Or another model waits for tokens, and is first.
                return self.tokens(now_ms) < min(self.needed(need), self.burst) + JUST_REFILLED or others_wait
            case Limit.TURN:
                return others_wait
        return False
