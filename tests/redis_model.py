"""What the scripts of worker/lua promise, in plain Python: the fake of unit tests, and what the real ones are held against.

Both pass the same tests (tests/committer_contract.py), and a random walk compares every reply (test_ledger_walk.py).
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, assert_never

import pydantic_core

from tasks import rfc3339
from tasks.delivery import Standing
from tasks.errors import ErrorCode
from tasks.result import Attempt, AttemptCode
from tests.jobs import CLAIMED_AT_MS, MAX_JOB_BYTES
from worker.exchange import (
    Amend,
    Bury,
    Claim,
    Claimed,
    ClaimRequest,
    Commit,
    Drop,
    Exchange,
    ExchangeReply,
    Known,
    Open,
    Retry,
    Return,
    Run,
    Settle,
)
from worker.keys import Keys, lists_of

ASIDE_MS = 1000
LEASE_MS = 10_000
POOL = "triton:8000"
_ID = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")
_NOT_ITS_TURN = (Standing.SETTLED, Standing.HELD, Standing.PRECEDED)
_CRASHES = (AttemptCode.WORKER_LOST, ErrorCode.RUNTIME_MODEL_CRASHED)


class Place(NamedTuple):
    """A claim: whose it is, and its tag."""

    incarnation: str
    tag: str


class Waits(NamedTuple):
    """What waits: under a name of its own, to go back to a list."""

    name: str
    queue: str
    raw: bytes

    @property
    def member(self) -> bytes:
        """Return it as it stands in the sorted set."""
        return f"{self.name}\n{self.queue}\n".encode() + self.raw


@dataclass(frozen=True, slots=True)
class Held:
    """A claim's record."""

    queue: str
    job_id: str | None
    claimed_ms: int
    raw: bytes
    holds: str = ""

    @property
    def model(self) -> str:
        """The public model that it was granted a slot of."""
        return self.holds.split(" ")[1]

    @property
    def alone_at(self) -> str:
        """The circuit beside which it runs as the only one of its like, or '-'."""
        return self.holds.split(" ")[-1]


class Tried(NamedTuple):
    """Which job the attempts of a job_id are of, once it has waited for a retry."""

    fingerprint: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Marker:
    """What is remembered of a job that has ended."""

    claim: Place
    fingerprint: str
    status: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a renewal tells: whether the lease is held, everyone's lease, and who holds claims."""

    held: bool
    leases: dict[str, str]
    claimants: frozenset[str]


def circuit_of(model: str) -> str:
    """Return the circuit of a model."""
    return f"{POOL}:{model}"


def worker_of(incarnation: str) -> str:
    """Return the worker_id of a run."""
    return incarnation.rpartition(":")[0]


@dataclass
class RedisModel:
    """The state that the scripts keep, with a pool that has room for all. The end of a list is what is claimed next."""

    keys: Keys = field(default_factory=lambda: Keys("speedinfer"))
    now_ms: int = CLAIMED_AT_MS
    max_job_bytes: int = MAX_JOB_BYTES
    max_queue_ms: int | None = None
    crashes_to_run_alone: int = 2
    lists: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    leases: dict[str, str] = field(default_factory=dict)
    claims: defaultdict[str, dict[str, Held]] = field(default_factory=lambda: defaultdict(dict))
    running: dict[str, Place] = field(default_factory=dict)
    waiting: dict[Waits, int] = field(default_factory=dict)
    """To due time."""
    attempts: defaultdict[str, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    retried: dict[str, Tried] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    markers: dict[str, Marker] = field(default_factory=dict)
    settlements: list[tuple[str, bytes]] = field(default_factory=list)
    """(job_id, the bytes that were settled)."""
    results: dict[str, str] = field(default_factory=dict)
    duplicates: list[bytes] = field(default_factory=list)
    slots: set[str] = field(default_factory=set)
    """What is taken of the pool: model and claim."""
    alone: dict[str, Place] = field(default_factory=dict)
    """Circuit to the only claim there whose model died under it before."""
    dead_letters: list[tuple[str, str, bytes]] = field(default_factory=list)
    """(queue, reason, raw)."""
    sendings: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Incarnation to how often it sent anything."""
    latest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Incarnation to the number of its last call, and of the sending that was done last."""

    def push(self, queue: str, raw: bytes) -> None:
        """Do what a gateway's LPUSH does."""
        self.lists[queue].insert(0, raw)

    # Leases.

    def enter(self, incarnation: str) -> str:
        """Take the lease of a worker_id; returns the one that is in the way, or ''."""
        lease = self.leases.get(worker_of(incarnation))
        if lease is not None and lease.split()[0] != incarnation:
            return lease
        self.leases.setdefault(worker_of(incarnation), f"{incarnation} 0 {LEASE_MS}")
        return ""

    def holds_lease(self, incarnation: str) -> bool:
        """Tell whether a run holds its lease."""
        return self.leases.get(worker_of(incarnation), " ").split(" ")[0] == incarnation

    def renew(self, incarnation: str) -> Seen:
        """Count the lease up, and look at all."""
        held = self.holds_lease(incarnation)
        if held:
            counter = int(self.leases[worker_of(incarnation)].split()[1])
            self.leases[worker_of(incarnation)] = f"{incarnation} {counter + 1} {LEASE_MS}"
        return Seen(held, dict(self.leases), self.claimants)

    def leave(self, incarnation: str) -> bool:
        """Give the lease up; False if there are claims."""
        if self.claims[incarnation]:
            return False
        if self.holds_lease(incarnation):
            del self.leases[worker_of(incarnation)]
        return True

    def reap(self, incarnation: str, stood: str) -> int:
        """End a run whose lease stood still so, '' where it had none; returns how many jobs went back, -1 for none."""
        if stood and self.leases.get(worker_of(incarnation)) != stood:
            return -1
        if stood:
            del self.leases[worker_of(incarnation)]
        elif self.holds_lease(incarnation) or not self.claims[incarnation]:
            return -1
        claims = self.claims.pop(incarnation, {})
        for tag in sorted(claims, key=lambda tag: Return(tag).place, reverse=True):
            self._lose(Place(incarnation, tag), claims[tag])
        return len(claims)

    def _lose(self, place: Place, held: Held) -> None:
        self.lists[held.queue].append(held.raw)
        if held.job_id is None or self.running.get(held.job_id) == place:
            lost = Attempt(
                worker_id=worker_of(place.incarnation),
                started_at=rfc3339.from_ms(held.claimed_ms),
                code=AttemptCode.WORKER_LOST,
                inference_ms=None,
                usage=None,
            )
            self.attempts[ledger_of(held.job_id, held.raw)].append(lost)
        self._stop_running(held.job_id, place)
        self._let_go(place, held.holds, Run.UNSTARTED if held.job_id is None else Run.ON)

    @property
    def claimants(self) -> frozenset[str]:
        """The runs that hold claims."""
        return frozenset(incarnation for incarnation, held in self.claims.items() if held)

    # Exchanges.

    def next_sending(self, incarnation: str) -> int:
        """Return the number of a run's next sending: it arrives now, late or never."""
        self.sendings[incarnation] += 1
        return self.sendings[incarnation]

    def exchange(self, incarnation: str, asked: Exchange, sending: int | None = None) -> ExchangeReply:
        """Do what one call of the ledger does: settle, retry, return, bury, drop, amend, open and claim, in this order.

        ``sending`` is the number of one that was held up.
        """
        sending = self.next_sending(incarnation) if sending is None else sending
        outcomes = {}
        for commit in _in_order(asked.commits):
            outcomes[commit.tag] = self._commit(Place(incarnation, commit.tag), commit)
        for amend in asked.amends:
            self._amend(amend)
        return ExchangeReply(
            tuple(outcomes[commit.tag] for commit in asked.commits),
            self._opened(incarnation, asked),
            self._claimed(incarnation, asked.claim, sending) if asked.claim else None,
        )

    def _commit(self, place: Place, commit: Commit) -> int:
        held = self.claims[place.incarnation].get(place.tag)
        if isinstance(commit, Settle):
            return self._settle(place, commit, held)
        if held is None:
            return int(isinstance(commit, Retry) and self._was_added(commit))
        if isinstance(commit, Drop) and self._among_others(place, commit.job_id)[0] is Standing.TO_RUN:
            return 2
        run = Run.UNSTARTED
        match commit:
            case Retry(_, job_id, fingerprint, delay_ms, attempt):
                run = commit.run
                self.waiting[Waits("/".join(place), held.queue, held.raw)] = self.now_ms + delay_ms
                self.attempts[job_id].append(Attempt.model_validate_json(attempt))
                self.retried[job_id] = Tried(fingerprint, held.raw)
            case Return(_, attempt):
                run = Run.ON if attempt else Run.UNSTARTED
                self.lists[held.queue].append(held.raw)
                if attempt and held.job_id is not None:
                    self.attempts[held.job_id].append(Attempt.model_validate_json(attempt))
            case Bury(_, reason):
                self.dead_letters.append((held.queue, reason, held.raw))
                if held.job_id is None:
                    self.attempts.pop(ledger_of(None, held.raw), None)
            case Drop():
                self.duplicates.append(held.raw)
            case _:
                assert_never(commit)
        self._release(place, held.job_id, held.holds, run)
        return 1

    def _was_added(self, retry: Retry) -> bool:
        """Tell whether a retry was done before: its attempt is in the ledger."""
        return Attempt.model_validate_json(retry.attempt) in self.attempts[retry.job_id]

    def _settle(self, place: Place, commit: Settle, held: Held | None) -> int:
        marker = self.markers.get(commit.job_id)
        if held is None:
            return 1 if marker and marker.claim == place else -1
        if marker:
            self.duplicates.append(held.raw)
            self._release(place, commit.job_id, commit.holds, commit.run)
            return 0
        if commit.heed_cancel and commit.job_id in self.cancelled:
            return 2
        self.markers[commit.job_id] = Marker(place, commit.fingerprint, commit.status)
        self.settlements.append((commit.job_id, held.raw))
        self.results[commit.job_id] = self._with_late_attempts(commit.job_id, commit.result)
        self.attempts.pop(commit.job_id, None)
        self.retried.pop(commit.job_id, None)
        self._release(place, commit.job_id, commit.holds, commit.run)
        return 1

    def _with_late_attempts(self, job_id: str, result: str) -> str:
        content = json.loads(result)
        for late in self.attempts[job_id]:
            if late.code is not AttemptCode.LEASE_LOST:
                continue
            for n, told in enumerate(content.get("attempts", ())):
                if told == _as_lost(late).model_dump(mode="json"):
                    content["attempts"][n] = late.model_dump(mode="json")
                    break
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False)

    def _amend(self, amend: Amend) -> None:
        lost, ledger = Attempt.model_validate_json(amend.lost), self.attempts[amend.job_id]
        if lost in ledger:
            ledger[ledger.index(lost)] = Attempt.model_validate_json(amend.was)

    def _release(self, place: Place, job_id: str | None, holds: str, run: Run) -> None:
        del self.claims[place.incarnation][place.tag]
        self._stop_running(job_id, place)
        self._let_go(place, holds, run)

    def _let_go(self, place: Place, holds: str, run: Run) -> None:
        if not holds:
            return
        _, model, *_, alone_at = holds.split(" ")
        if run is not Run.ON:
            self.slots.discard(slot_of(model, place))
        if self.alone.get(alone_at) == place:
            del self.alone[alone_at]

    def grant(self, place: Place, model: str, attempts: Sequence[Attempt]) -> str:
        """Take a slot for a claim; returns what it holds."""
        alone_at = circuit_of(model) if self._is_suspect(attempts) and has_crashed_its_model(attempts) else "-"
        if alone_at != "-":
            self.alone[alone_at] = place
        self.slots.add(slot_of(model, place))
        return f"{POOL} {model} 0 0 - {alone_at}"

    def another_is_alone(self, model: str, place: Place, attempts: Sequence[Attempt]) -> bool:
        """Tell whether a job whose model died under it has to wait for another such, in any worker."""
        holder = self.alone.get(circuit_of(model))
        return has_crashed_its_model(attempts) and holder is not None and holder != place

    def _stop_running(self, job_id: str | None, place: Place) -> None:
        if job_id is not None and self.running.get(job_id) == place:
            del self.running[job_id]

    def _opened(self, incarnation: str, asked: Exchange) -> tuple[Known | None, ...]:
        one_runs_alone, opened = asked.one_runs_alone, list[Known | None]()
        for one in asked.opens:
            known = self._open(Place(incarnation, one.tag), one, one_runs_alone=one_runs_alone)
            opened.append(known)
            one_runs_alone = one_runs_alone or (known is not None and runs_alone(known) and known.holds != "")
        return tuple(opened)

    def _open(self, place: Place, one: Open, *, one_runs_alone: bool) -> Known | None:
        held = self.claims[place.incarnation].get(place.tag)
        if held is None:
            return None
        expired = self._expired(one.expires_ms, one.enqueued_ms)
        known = self._known(place, one.job_id, held.raw, expired=expired, fingerprint=one.fingerprint)
        model = self.keys.model_of(held.queue)
        has_to_wait = one_runs_alone or self.another_is_alone(model, place, known.attempts)
        if runs_alone(known) and held.holds and has_to_wait:
            self.set_aside(f"opened/{place.tag}", place.incarnation, held.queue, held.raw)
            self._release(place, one.job_id, held.holds, Run.UNSTARTED)
            return None
        holds = held.holds
        if known.standing is not Standing.TO_RUN:
            self._let_go(place, holds, Run.UNSTARTED)
            holds = ""
        elif holds:
            holds = self.grant(place, model, known.attempts)
        self.claims[place.incarnation][place.tag] = replace(held, job_id=one.job_id, holds=holds)
        self._start_running(known, one.job_id, place)
        return replace(known, holds=holds)

    # How a job stands.

    def _known(
        self, place: Place, job_id: str | None, raw: bytes, *, expired: bool, fingerprint: str | None = None
    ) -> Known:
        attempts = tuple(self.attempts[ledger_of(job_id, raw)])
        standing, rival = (Standing.TO_RUN, b"") if job_id is None else self._among_others(place, job_id)
        tried = self.retried.get(job_id) if job_id is not None and fingerprint is not None else None
        if standing is Standing.TO_RUN and tried and tried.fingerprint != fingerprint:
            standing, rival = Standing.PRECEDED, tried.fingerprint.encode()
        if standing is Standing.TO_RUN and job_id in self.cancelled:
            standing = Standing.CANCELLED
        elif standing is Standing.TO_RUN and expired:
            standing = Standing.EXPIRED
        return Known(standing, rival, self._is_suspect(attempts), attempts)

    def _among_others(self, place: Place, job_id: str) -> tuple[Standing, bytes]:
        if job_id in self.markers:
            return Standing.SETTLED, self.markers[job_id].fingerprint.encode()
        holder = self.running.get(job_id)
        if holder is None or holder == place:
            return Standing.TO_RUN, b""
        return Standing.HELD, self.claims[holder.incarnation][holder.tag].raw

    def _is_suspect(self, attempts: Iterable[Attempt]) -> bool:
        return sum(attempt.code in _CRASHES for attempt in attempts) >= self.crashes_to_run_alone

    def _start_running(self, known: Known, job_id: str | None, place: Place) -> None:
        if job_id is not None and known.standing not in _NOT_ITS_TURN:
            self.running[job_id] = place

    # Claiming.

    def _claimed(self, incarnation: str, asked: ClaimRequest, sending: int) -> Claimed:
        nothing = Claimed(self.now_ms, self._next_due(), frozenset(), frozenset(), ())
        if not self.holds_lease(incarnation):
            return replace(nothing, next_due_ms=None, held_lease=False)
        if self.latest.get(incarnation, (0, 0)) > (asked.number, sending):
            return nothing
        self.latest[incarnation] = asked.number, sending
        if again := self._claims_of_an_earlier_try(incarnation, asked.number):
            return replace(nothing, claims=again)
        returned = self._return_due_retries()
        taking = _Taking(self, incarnation, asked.number, asked.one_runs_alone)
        taking.in_turn(asked.open, asked.wanted)
        heads = (*asked.open, *asked.closed) if len(taking.found) >= asked.wanted else asked.closed
        taking.ended_heads(heads, asked.most_ended)
        empty = {
            model
            for model in (*asked.open, *asked.closed)
            if not any(self.lists[name] for name in lists_of(self.keys, model))
        }
        return Claimed(self.now_ms, self._next_due(), frozenset(empty), returned, tuple(taking.found))

    def described(self, place: Place, queue: str, raw: bytes, claimed_ms: int) -> Claim:
        """Return a claim as the script tells of it, before anything is granted."""
        job_id, expired = self.read(raw)
        held = self.claims[place.incarnation].get(place.tag)
        if (held and held.job_id is None) or (job_id is not None and self._may_be_another(place, job_id, raw)):
            job_id, expired = None, False
        return Claim(place.tag, queue, raw, job_id, claimed_ms, self._known(place, job_id, raw, expired=expired))

    def _may_be_another(self, place: Place, job_id: str, raw: bytes) -> bool:
        """Tell whether a job has to be compared with the one that was tried under its job_id: the bytes differ."""
        tried = self.retried.get(job_id)
        return tried is not None and tried.raw != raw and self._among_others(place, job_id)[0] is Standing.TO_RUN

    def hold(self, place: Place, claim: Claim) -> None:
        """Take what was described into the claims."""
        self.claims[place.incarnation][place.tag] = Held(
            claim.queue, claim.job_id, claim.claimed_ms, claim.raw, claim.known.holds
        )
        self._start_running(claim.known, claim.job_id, place)

    def set_aside(self, name: str, incarnation: str, queue: str, raw: bytes) -> None:
        """Let a job wait for a moment, since another one runs alone."""
        name, n = f"{incarnation}/{name}", 1
        while Waits(f"{name}.{n}", queue, raw) in self.waiting:
            n += 1
        self.waiting[Waits(f"{name}.{n}", queue, raw)] = self.now_ms + ASIDE_MS

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
        claims, found = self.claims[incarnation], list[Claim]()
        while (tag := f"{number}.{len(found) + 1}") in claims:
            held = claims[tag]
            place = Place(incarnation, tag)
            claim = self.described(place, held.queue, held.raw, held.claimed_ms)
            known = replace(claim.known, holds=held.holds)
            if known.standing is Standing.TO_RUN and not held.holds and claim.job_id is not None:
                # Whoever held it at the first try has let go since; but nothing was granted for this one.
                known = replace(known, standing=Standing.HELD, rival=held.raw)
            found.append(replace(claim, known=known))
            self._start_running(known, claim.job_id, place)
        return tuple(found)

    def _return_due_retries(self) -> frozenset[str]:
        due = sorted((at, waits.member, waits) for waits, at in self.waiting.items() if at <= self.now_ms)
        for _, _, waits in due:
            del self.waiting[waits]
            self.lists[waits.queue].append(waits.raw)
        return frozenset(self.keys.model_of(waits.queue) for _, _, waits in due)

    def _next_due(self) -> int | None:
        return min(self.waiting.values(), default=None)


@dataclass
class _Taking:
    """One claim under way."""

    redis: RedisModel
    incarnation: str
    number: int
    one_runs_alone: bool
    found: list[Claim] = field(default_factory=list)

    def in_turn(self, models: Sequence[str], wanted: int) -> None:
        full = True
        while full and len(self.found) < wanted:
            full = False
            for model in models:
                if len(self.found) < wanted and self._take_one(model):
                    full = True

    def ended_heads(self, models: Sequence[str], most: int) -> None:
        last = len(self.found) + most
        for model in models:
            while len(self.found) < last and (name := self._list_of_head(model)):
                job_id, expired = self.redis.read(self.redis.lists[name][-1])
                if job_id is not None and not expired and job_id not in self.redis.cancelled:
                    break
                if self._claim_for_nothing(name) is None:
                    break

    def _list_of_head(self, model: str) -> str | None:
        return next((name for name in lists_of(self.redis.keys, model) if self.redis.lists[name]), None)

    def _take_one(self, model: str) -> bool:
        while name := self._list_of_head(model):
            if self._take(name):
                return True
        return False

    def _take(self, name: str) -> bool:
        raw = self.redis.lists[name].pop()
        place = Place(self.incarnation, f"{self.number}.{len(self.found) + 1}")
        claim = self.redis.described(place, name, raw, self.redis.now_ms)
        model = self.redis.keys.model_of(name)
        if runs_alone(claim.known):
            if self.one_runs_alone or self.redis.another_is_alone(model, place, claim.known.attempts):
                self.redis.set_aside(f"aside/{place.tag}", self.incarnation, name, raw)
                return False
            self.one_runs_alone = True
        if claim.known.standing is Standing.TO_RUN:
            holds = self.redis.grant(place, model, claim.known.attempts)
            claim = replace(claim, known=replace(claim.known, holds=holds))
        self.redis.hold(place, claim)
        self.found.append(claim)
        return True

    def _claim_for_nothing(self, name: str) -> str | None:
        raw = self.redis.lists[name].pop()
        place = Place(self.incarnation, f"{self.number}.{len(self.found) + 1}")
        self.found.append(self.redis.described(place, name, raw, self.redis.now_ms))
        self.redis.hold(place, self.found[-1])
        return self.found[-1].job_id


def slot_of(model: str, place: Place) -> str:
    """Return a claim's slot as it stands in the sorted set."""
    return f"{model}\n{place.incarnation}/{place.tag}"


def has_crashed_its_model(attempts: Iterable[Attempt]) -> bool:
    """Tell whether a job's model died under it."""
    return any(attempt.code is ErrorCode.RUNTIME_MODEL_CRASHED for attempt in attempts)


def runs_alone(known: Known) -> bool:
    """Tell whether a job is about to run, and as the only one of its like."""
    return known.alone and known.standing is Standing.TO_RUN


def ledger_of(job_id: str | None, raw: bytes) -> str:
    """Return what a ledger is called: after its job, or after bytes that nobody could read."""
    return job_id if job_id is not None else "#" + hashlib.sha1(raw, usedforsecurity=False).hexdigest()


def _as_lost(attempt: Attempt) -> Attempt:
    return attempt.model_copy(update={"code": AttemptCode.WORKER_LOST, "inference_ms": None, "usage": None})


def _in_order(commits: Sequence[Commit]) -> list[Commit]:
    kinds = (Settle, Retry, Return, Bury, Drop)
    returns_last_claimed_first = sorted(
        (one for one in commits if isinstance(one, Return)), key=lambda one: one.place, reverse=True
    )
    others = [one for one in commits if not isinstance(one, Return)]
    return sorted([*returns_last_claimed_first, *others], key=lambda one: kinds.index(type(one)))


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

    def __post_init__(self) -> None:
        self.redis.enter(self.incarnation)

    def exchange(self, asked: Exchange) -> ExchangeReply:
        """Return the reply."""
        self.asked.append(asked)
        reply = self.redis.exchange(self.incarnation, asked)
        self.meanwhile()
        return reply
