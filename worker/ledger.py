"""The claims of this run of a worker, in Redis: one call settles, returns and claims as many jobs as there are.

Every step is a script guarded by the claim it is about (worker/lua), so a whole call may be repeated after a lost reply.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, Self, assert_never

from worker.exchange import (
    Amend,
    Bury,
    ClaimRequest,
    Commit,
    Drop,
    Exchange,
    ExchangeReply,
    Open,
    Retry,
    Return,
    Settle,
)
from worker.keys import PRIORITIES, Keys, lists_of
from worker.ledger_terms import LedgerTerms
from worker.replies import claimed_of, opened_of
from worker.scripts import Argument, Link, Scripts

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


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims of one incarnation, the one that ``incarnation`` names at the time of a call."""

    scripts: Scripts
    keys: Keys
    terms: LedgerTerms
    incarnation: Callable[[], str]
    _sendings: Iterator[int] = field(default_factory=lambda: count(1))
    _lists: dict[str, Sequence[str]] = field(default_factory=dict)
    """By model, made once: a claim may name hundreds."""

    @classmethod
    def on(cls, link: Link, keys: Keys, terms: LedgerTerms, incarnation: Callable[[], str]) -> Self:
        """Return the ledger over a connection of its own."""
        return cls(Scripts(link, SCRIPTS), keys, terms, incarnation)

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
        claimed = claimed_of(replies.pop(), asked.claim, self.keys) if asked.claim else None
        if claimed and calls.incarnation != self.incarnation():
            # The lease was lost while the reply was on its way: these jobs have gone back, and are not ours to run.
            claimed = replace(claimed, claims=())
        if asked.freed:
            replies.pop()
        opened = tuple(opened_of(reply) for reply in replies.pop()) if asked.opens else ()
        words = {
            commit.tag: word
            for group, reply in zip(groups, replies, strict=False)
            for commit, word in zip(group, reply, strict=True)
        }
        return ExchangeReply(tuple(words[commit.tag] for commit in asked.commits), opened, claimed)

    def lists_of(self, model: str) -> Sequence[str]:
        """Return the lists of a model's queue, in the order in which they are read."""
        found = self._lists.get(model)
        if found is None:
            found = self._lists[model] = lists_of(self.keys, model)
        return found


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
            -1 if terms.max_queue_ms is None else terms.max_queue_ms,
            terms.crashes_to_run_alone,
            int(one_runs_alone),
            terms.pool.name,
        ]
        arguments = [argument for one in opens for argument in self._opens(one)]
        own = [keys.claims(self.incarnation), keys.running, keys.waiting, keys.claimants]
        return self.ledger.scripts.command("open_if_claimed", own, [*head, *arguments])

    def _opens(self, one: Open) -> tuple[Argument, ...]:
        times = ("" if at_ms is None else at_ms for at_ms in (one.expires_ms, one.enqueued_ms))
        return (
            one.tag,
            one.job_id,
            one.fingerprint,
            *times,
            one.prompt_bytes,
            one.max_tokens,
            self.ledger.terms.models[one.model].circuit,
        )

    def free(self, slots: Sequence[str]) -> list[Argument]:
        keys, pool = self.ledger.keys, self.ledger.terms.pool.name
        own = [keys.pool_slots(pool), keys.pool_waiting(pool)]
        return self.ledger.scripts.command("free_if_lapsing", own, [keys.prefix, self.incarnation, pool, *slots])

    def call_who_waits(self) -> list[Argument]:
        keys, pool = self.ledger.keys, self.ledger.terms.pool.name
        own = [keys.pool_waiting(pool), keys.pool_thirsty(pool)]
        return self.ledger.scripts.command("call_if_room", own, [keys.prefix, self.incarnation, pool])

    def claim(self, claim: ClaimRequest) -> list[Argument]:
        keys, terms = self.ledger.keys, self.ledger.terms
        own = [keys.claims(self.incarnation), keys.waiting, keys.leases, keys.claimants, keys.running]
        own += [keys.calls(self.incarnation), keys.paused]
        lists = [name for model in (*claim.open, *claim.closed) for name in self.ledger.lists_of(model)]
        arguments: list[Argument] = [
            keys.prefix,
            claim.number,
            claim.wanted,
            terms.max_job_bytes,
            -1 if terms.max_queue_ms is None else terms.max_queue_ms,
            len(PRIORITIES),
            len(claim.open),
            claim.most_ended,
            terms.worker_id,
            self.incarnation,
            terms.crashes_to_run_alone,
            int(claim.one_runs_alone),
            self.sending,
            terms.pool.name,
            *terms.pool.limits,
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
