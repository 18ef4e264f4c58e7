"""The claims of this run of a worker, in Redis: one call settles, returns and claims as many jobs as there are.

Every step is a script guarded by the claim it is about (worker/lua), so a whole call may be repeated after a lost reply.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, assert_never

import structlog
from pydantic import ValidationError

from tasks.delivery import Standing
from tasks.result import Attempt
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
    Limit,
    Open,
    Postponed,
    Refusal,
    Retry,
    Return,
    Settle,
)
from worker.keys import PRIORITIES, Keys
from worker.scripts import Argument, Scripts

SCRIPTS: Final = (
    "settle_if_claimed",
    "retry_if_claimed",
    "return_if_claimed",
    "bury_if_claimed",
    "drop_if_claimed",
    "amend_if_lost",
    "open_if_claimed",
    "claim_from_queues",
    "call_if_room",
    "free_if_lapsing",
)

_STILL_CLAIMED: Final = 1
_WAITS_FOR_TOKENS: Final = 3

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """A pool as this worker's configuration has it; None is no limit. ``kept_slots`` is by public name, 1 for all others."""

    name: str
    max_concurrency: int
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    kept_slots: Mapping[str, int] = field(default_factory=dict)

    def limits(self) -> tuple[Argument, ...]:
        """Return what the scripts take where the pool has no limits yet."""
        kept = json.dumps(dict(self.kept_slots), separators=(",", ":"))
        return self.max_concurrency, _or(self.requests_per_minute, ""), _or(self.tokens_per_minute, ""), kept


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """What a model's claims depend on: ``slot_ms`` bounds how long its slot is taken, from the grant to its timeout's end."""

    circuit: str
    slot_ms: int
    half_open_calls: int


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """What the scripts need to know of the configuration. A job with ``crashes_to_run_alone`` behind it runs alone among such."""

    worker_id: str
    result_ttl_seconds: int
    settled_ttl_seconds: int
    max_job_bytes: int
    max_queue_ms: int | None
    crashes_to_run_alone: int
    pool: PoolTerms
    models: Mapping[str, ModelTerms]
    """By public name."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims of one incarnation, the one that ``incarnation`` names at the time of a call."""

    scripts: Scripts
    keys: Keys
    terms: LedgerTerms
    incarnation: Callable[[], str]
    _sendings: Iterator[int] = field(default_factory=lambda: count(1))

    def exchange(self, asked: Exchange, now: str) -> ExchangeReply:
        """Do all that is asked in one round trip; ``now`` is Redis' time as RFC 3339, for dead letters.

        Raises:
            RedisUnavailable: nothing is known of what was done; the same call may be repeated.
        """
        calls = _Calls(self, self.incarnation(), now, next(self._sendings))
        groups = [group for group in _groups(asked.commits) if group]
        commands = [calls.commits(group) for group in groups]
        commands += [calls.amends(asked.amends)] if asked.amends else []
        commands += [calls.opens(asked.opens, asked.one_runs_alone)] if asked.opens else []
        commands += [calls.free(asked.freed)] if asked.freed else []
        # Whoever claims calls those who wait as well.
        commands += [calls.claim(asked.claim)] if asked.claim else [calls.call_who_waits()] if asked.commits else []
        replies = self.scripts.run(commands)
        if asked.commits and not asked.claim:
            replies.pop()
        claimed = _claimed(replies.pop(), asked.claim, self.keys) if asked.claim else None
        if claimed and calls.incarnation != self.incarnation():
            # The lease was lost while the reply was on its way: these jobs have gone back, and are not ours to run.
            claimed = replace(claimed, claims=())
        if asked.freed:
            replies.pop()
        opened = tuple(_opened(reply) for reply in replies.pop()) if asked.opens else ()
        words = {
            commit.tag: word
            for group, reply in zip(groups, replies, strict=False)
            for commit, word in zip(group, reply, strict=True)
        }
        return ExchangeReply(tuple(words[commit.tag] for commit in asked.commits), opened, claimed)


@dataclass(frozen=True, slots=True)
class _Calls:
    """The commands of one exchange."""

    ledger: Ledger
    incarnation: str
    now: str
    sending: int

    def commits(self, group: Sequence[Commit]) -> list[Argument]:
        keys, terms = self.ledger.keys, self.ledger.terms
        head: list[Argument] = [keys.prefix, self.incarnation]
        match group[0]:
            case Settle():
                name, more_keys = "settle_if_claimed", [keys.settlements]
                head += [terms.result_ttl_seconds, terms.settled_ttl_seconds]
            case Retry():
                name, more_keys = "retry_if_claimed", [keys.waiting]
                head += [terms.settled_ttl_seconds]
            case Return():
                name, more_keys = "return_if_claimed", []
                head += [terms.settled_ttl_seconds]
            case Bury():
                name, more_keys = "bury_if_claimed", [keys.dead_letters]
                head += [terms.worker_id, self.now]
            case Drop():
                name, more_keys = "drop_if_claimed", []
            case _:
                assert_never(group[0])
        arguments = [argument for commit in group for argument in commit.arguments()]
        all_keys = [keys.claims(self.incarnation), *more_keys, keys.claimants, keys.running]
        return self.ledger.scripts.command(name, all_keys, [*head, *arguments])

    def amends(self, amends: Sequence[Amend]) -> list[Argument]:
        keys = [self.ledger.keys.attempts(one.job_id) for one in amends]
        return self.ledger.scripts.command(
            "amend_if_lost", keys, [text for one in amends for text in (one.lost, one.was)]
        )

    def opens(self, opens: Sequence[Open], one_runs_alone: bool) -> list[Argument]:  # noqa: FBT001 - as the script takes it
        keys, terms = self.ledger.keys, self.ledger.terms
        head: list[Argument] = [
            keys.prefix,
            self.incarnation,
            _or(terms.max_queue_ms, -1),
            terms.crashes_to_run_alone,
            int(one_runs_alone),
            terms.pool.name,
        ]
        arguments = [argument for one in opens for argument in self._opens(one)]
        own = [keys.claims(self.incarnation), keys.running, keys.waiting, keys.claimants]
        return self.ledger.scripts.command("open_if_claimed", own, [*head, *arguments])

    def _opens(self, one: Open) -> tuple[Argument, ...]:
        job = (one.tag, one.job_id, _or(one.expires_ms, ""), _or(one.enqueued_ms, ""))
        return *job, one.prompt_bytes, one.max_tokens, self.ledger.terms.models[one.model].circuit

    def free(self, slots: Sequence[str]) -> list[Argument]:
        keys, pool = self.ledger.keys, self.ledger.terms.pool.name
        own = [keys.pool_slots(pool), keys.pool_waiting(pool)]
        return self.ledger.scripts.command("free_if_lapsing", own, [keys.prefix, self.incarnation, pool, *slots])

    def call_who_waits(self) -> list[Argument]:
        keys, pool = self.ledger.keys, self.ledger.terms.pool.name
        own = [keys.pool_waiting(pool)]
        return self.ledger.scripts.command("call_if_room", own, [keys.prefix, self.incarnation, pool])

    def claim(self, claim: ClaimRequest) -> list[Argument]:
        keys, terms = self.ledger.keys, self.ledger.terms
        own = [keys.claims(self.incarnation), keys.waiting, keys.leases, keys.claimants, keys.running]
        own += [keys.calls(self.incarnation), keys.paused]
        lists = [keys.jobs(model) + priority for model in (*claim.open, *claim.closed) for priority in PRIORITIES]
        arguments: list[Argument] = [
            keys.prefix,
            claim.number,
            claim.wanted,
            terms.max_job_bytes,
            _or(terms.max_queue_ms, -1),
            len(PRIORITIES),
            len(claim.open),
            claim.most_ended,
            terms.worker_id,
            self.incarnation,
            terms.crashes_to_run_alone,
            int(claim.one_runs_alone),
            self.sending,
            terms.pool.name,
            *terms.pool.limits(),
        ]
        quotas = claim.quotas or (claim.wanted,) * len(claim.open)
        for model, quota in zip(claim.open, quotas, strict=True):
            of = terms.models[model]
            arguments += [model, quota, of.circuit, of.slot_ms, of.half_open_calls, int(model in claim.opening)]
        return self.ledger.scripts.command("claim_from_queues", own + lists, arguments)


def _groups(commits: Sequence[Commit]) -> Sequence[Sequence[Commit]]:
    returns = [commit for commit in commits if isinstance(commit, Return)]
    return (
        [commit for commit in commits if isinstance(commit, Settle)],
        [commit for commit in commits if isinstance(commit, Retry)],
        # The last job returned is next in line: the one claimed first must be returned last.
        sorted(returns, key=lambda commit: commit.place, reverse=True),
        [commit for commit in commits if isinstance(commit, Bury)],
        [commit for commit in commits if isinstance(commit, Drop)],
    )


def _or(value: int | None, otherwise: int | str) -> int | str:
    return otherwise if value is None else value


def _known(holds: bytes, standing: bytes, rival: bytes, alone: int, attempts: Sequence[bytes]) -> Known:
    return Known(Standing(standing.decode()), rival, bool(alone), tuple(_readable(attempts)), holds.decode())


def _readable(items: Sequence[bytes]) -> list[Attempt]:
    attempts = []
    for item in items:
        try:
            attempts.append(Attempt.model_validate_json(item))
        except ValidationError:
            # Somebody else wrote there. A ledger with a gap is worse than none, but no reason to stop for.
            log.error("attempt.was_unreadable", bytes=len(item))
    return attempts


def _opened(reply: list[Any]) -> Known | Postponed | None:
    word, again_ms, holds, standing, rival, alone, *attempts = reply
    if word == _WAITS_FOR_TOKENS:
        return Postponed(again_ms)
    return _known(holds, standing, rival, alone, attempts) if word == _STILL_CLAIMED else None


def _claimed(reply: list[Any], asked: ClaimRequest, keys: Keys) -> Claimed:
    now_ms, next_due_ms, empty, returned, claims, held_lease, unusable, refused = reply
    models = (*asked.open, *asked.closed)
    return Claimed(
        now_ms,
        next_due_ms if next_due_ms >= 0 else None,
        frozenset(models[index - 1] for index in empty),
        frozenset(keys.model_of(queue.decode()) for queue in returned),
        tuple(_claim(claim) for claim in claims),
        bool(held_lease),
        frozenset(name.decode() for name in unusable),
        {models[index - 1]: _refusal(limit, again_ms) for index, limit, again_ms in refused},
    )


def _refusal(limit: bytes, again_ms: int) -> Refusal:
    return Refusal(Limit(limit.decode()), again_ms if again_ms >= 0 else None)


def _claim(reply: list[Any]) -> Claim:
    tag, queue, raw, job_id, claimed_ms, *known = reply
    holds, standing, rival, alone, *attempts = known
    return Claim(
        tag.decode(),
        queue.decode(),
        raw,
        job_id.decode() or None,
        claimed_ms,
        _known(holds, standing, rival, alone, attempts),
    )
