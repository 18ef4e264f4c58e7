"""What the scripts of worker/lua promise, in plain Python: the fake of unit tests, and what the real ones are held against.

Both pass the same tests (tests/committer_contract.py), and a random walk compares every reply (test_ledger_walk.py).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import pydantic_core

from tasks import rfc3339
from tasks.result import Attempt
from tests.jobs import CLAIMED_AT_MS, MAX_JOB_BYTES
from worker.exchange import (
    Bury,
    Claim,
    Claimed,
    ClaimRequest,
    Commit,
    Exchange,
    ExchangeReply,
    Open,
    Opened,
    Retry,
    Return,
    Settle,
)
from worker.keys import PRIORITIES, Keys

_ID = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")


@dataclass(frozen=True, slots=True)
class Marker:
    """What is remembered of a job that has ended; ``claim`` is (incarnation, tag)."""

    claim: tuple[str, str]
    fingerprint: str
    status: str


@dataclass
class RedisModel:
    """The state that the scripts keep. The end of a list is what is claimed next."""

    keys: Keys = field(default_factory=lambda: Keys("speedinfer"))
    now_ms: int = CLAIMED_AT_MS
    max_job_bytes: int = MAX_JOB_BYTES
    max_queue_ms: int | None = None
    lists: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    claims: defaultdict[str, dict[str, tuple[str, bytes]]] = field(default_factory=lambda: defaultdict(dict))
    waiting: dict[tuple[str, str, str, bytes], int] = field(default_factory=dict)
    """(incarnation, tag, list, raw) to due time."""
    attempts: defaultdict[str, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    markers: dict[str, Marker] = field(default_factory=dict)
    settlements: list[tuple[str, bytes]] = field(default_factory=list)
    """(job_id, the bytes that were settled)."""
    duplicates: list[bytes] = field(default_factory=list)
    dead_letters: list[tuple[str, str, bytes]] = field(default_factory=list)
    """(queue, reason, raw)."""
    latest: dict[str, int] = field(default_factory=dict)
    """Incarnation to the number of its last call."""

    def push(self, queue: str, raw: bytes) -> None:
        """Do what a gateway's LPUSH does."""
        self.lists[queue].insert(0, raw)

    def exchange(self, incarnation: str, asked: Exchange) -> ExchangeReply:
        """Do what one call of the ledger does: settle, retry, return, bury, open and claim, in this order."""
        outcomes = {}
        for commit in _in_order(asked.commits):
            outcomes[commit.tag] = self._commit(incarnation, commit)
        return ExchangeReply(
            tuple(outcomes[commit.tag] for commit in asked.commits),
            tuple(self._open(incarnation, one) for one in asked.opens),
            self._claimed(incarnation, asked.claim) if asked.claim else None,
        )

    def _commit(self, incarnation: str, commit: Commit) -> int:
        held = self.claims[incarnation].pop(commit.tag, None)
        if isinstance(commit, Settle):
            return self._settle(incarnation, commit, held)
        if held is None:
            return 0
        queue, raw = held
        match commit:
            case Retry(tag, job_id, delay_ms, attempt):
                self.waiting[incarnation, tag, queue, raw] = self.now_ms + delay_ms
                self.attempts[job_id].append(Attempt.model_validate_json(attempt))
            case Return():
                self.lists[queue].append(raw)
            case Bury(_, reason):
                self.dead_letters.append((queue, reason, raw))
            case _:
                assert_never(commit)
        return 1

    def _settle(self, incarnation: str, commit: Settle, held: tuple[str, bytes] | None) -> int:
        marker = self.markers.get(commit.job_id)
        if held is None:
            return 1 if marker and marker.claim == (incarnation, commit.tag) else -1
        if marker:
            self.duplicates.append(held[1])
            return 0
        self.markers[commit.job_id] = Marker((incarnation, commit.tag), commit.fingerprint, commit.status)
        self.settlements.append((commit.job_id, held[1]))
        self.attempts.pop(commit.job_id, None)
        return 1

    def _open(self, incarnation: str, one: Open) -> Opened:
        expired = self._expired(one.expires_ms, one.enqueued_ms)
        return Opened(one.tag in self.claims[incarnation], expired, tuple(self.attempts[one.job_id]))

    def _claimed(self, incarnation: str, asked: ClaimRequest) -> Claimed:
        again = self._claims_of_an_earlier_try(incarnation, asked.number)
        if again:
            return Claimed(self.now_ms, self._next_due(), frozenset(), frozenset(), again)
        if self.latest.get(incarnation, 0) > asked.number:
            return Claimed(self.now_ms, self._next_due(), frozenset(), frozenset(), ())
        self.latest[incarnation] = asked.number
        returned = self._return_due_retries()
        taking = _Taking(self, incarnation, asked.number)
        taking.in_turn(asked.open, asked.wanted)
        heads = (*asked.open, *asked.closed) if len(taking.found) >= asked.wanted else asked.closed
        taking.expired_heads(heads, asked.most_expired)
        empty = {
            model for model in (*asked.open, *asked.closed) if not any(self.lists[name] for name in self.of(model))
        }
        return Claimed(self.now_ms, self._next_due(), frozenset(empty), returned, tuple(taking.found))

    def of(self, model: str) -> list[str]:
        """Return a model's lists in the order in which they are read."""
        return [self.keys.jobs(model) + priority for priority in PRIORITIES]

    def described(self, tag: str, queue: str, raw: bytes) -> Claim:
        """Return a claim as the script tells of it."""
        job_id, expired = self.read(raw)
        attempts = tuple(self.attempts[job_id]) if job_id else ()
        return Claim(tag, queue, raw, job_id, expired, attempts)

    def read(self, raw: bytes) -> tuple[str | None, bool]:
        """Return a bare job's id, and whether it has expired."""
        content = _content(raw) if len(raw) <= self.max_job_bytes else None
        if not isinstance(content, dict):
            return None, False
        job_id = content.get("job_id")
        if not isinstance(job_id, str) or not 0 < len(job_id) <= 128 or not set(job_id) <= _ID:
            return None, False
        return job_id, self._expired(_unix_ms(content.get("expires_at")), _unix_ms(content.get("enqueued_at")))

    def _expired(self, expires_ms: int | None, enqueued_ms: int | None) -> bool:
        if expires_ms is not None and self.now_ms > expires_ms:
            return True
        return (
            self.max_queue_ms is not None and enqueued_ms is not None and self.now_ms - enqueued_ms > self.max_queue_ms
        )

    def _claims_of_an_earlier_try(self, incarnation: str, number: int) -> tuple[Claim, ...]:
        held, found = self.claims[incarnation], list[Claim]()
        while f"{number}.{len(found) + 1}" in held:
            tag = f"{number}.{len(found) + 1}"
            found.append(self.described(tag, *held[tag]))
        return tuple(found)

    def _return_due_retries(self) -> frozenset[str]:
        due = sorted((at, _member(record), record) for record, at in self.waiting.items() if at <= self.now_ms)
        for _, _, record in due:
            del self.waiting[record]
            self.lists[record[2]].append(record[3])
        return frozenset(self.keys.model_of(record[2]) for _, _, record in due)

    def _next_due(self) -> int | None:
        return min(self.waiting.values(), default=None)


@dataclass
class _Taking:
    """One claim under way."""

    redis: RedisModel
    incarnation: str
    number: int
    found: list[Claim] = field(default_factory=list)

    def in_turn(self, models: Sequence[str], wanted: int) -> None:
        full = True
        while full and len(self.found) < wanted:
            full = False
            for model in models:
                if len(self.found) < wanted and self._take_head(model):
                    full = True

    def expired_heads(self, models: Sequence[str], most: int) -> None:
        last = len(self.found) + most
        for model in models:
            while len(self.found) < last and self._take_head(model, lambda raw: self.redis.read(raw)[1]):
                pass

    def _take_head(self, model: str, fits: Callable[[bytes], bool] = lambda _: True) -> bool:
        for name in self.redis.of(model):
            if self.redis.lists[name]:
                if not fits(self.redis.lists[name][-1]):
                    return False
                self._take(name)
                return True
        return False

    def _take(self, name: str) -> None:
        raw = self.redis.lists[name].pop()
        tag = f"{self.number}.{len(self.found) + 1}"
        self.redis.claims[self.incarnation][tag] = (name, raw)
        self.found.append(self.redis.described(tag, name, raw))


def _in_order(commits: Sequence[Commit]) -> list[Commit]:
    kinds = (Settle, Retry, Return, Bury)
    returns_last_claimed_first = sorted(
        (one for one in commits if isinstance(one, Return)), key=lambda one: one.place, reverse=True
    )
    others = [one for one in commits if not isinstance(one, Return)]
    return sorted([*returns_last_claimed_first, *others], key=lambda one: kinds.index(type(one)))


def _member(record: tuple[str, str, str, bytes]) -> bytes:
    incarnation, tag, queue, raw = record
    return f"{incarnation}/{tag}\n{queue}\n".encode() + raw


def _content(raw: bytes) -> Any:
    try:
        return pydantic_core.from_json(raw)
    except ValueError:
        return None


def _unix_ms(text: object) -> int | None:
    try:
        return rfc3339.to_ms(rfc3339.parse(text)) if isinstance(text, str) else None
    except ValueError:
        return None


@dataclass
class FakeCommitter:
    """The intake's port to Redis, with a RedisModel behind it; ``meanwhile`` is called while a call is under way."""

    redis: RedisModel = field(default_factory=RedisModel)
    incarnation: str = "triton-01:a"
    asked: list[Exchange] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def exchange(self, asked: Exchange) -> ExchangeReply:
        """Return the reply."""
        self.asked.append(asked)
        reply = self.redis.exchange(self.incarnation, asked)
        self.meanwhile()
        return reply
