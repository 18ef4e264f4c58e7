"""The claims of this run of a worker, in Redis: one call settles, returns and claims as many jobs as there are.

Every step is a script guarded by the claim it is about (worker/lua), so a whole call may be repeated after a lost reply.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Protocol, assert_never

from redis.exceptions import NoScriptError

from tasks.result import Attempt
from worker import lua
from worker.exchange import (
    Argument,
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

_SCRIPTS: Final = (
    "settle_if_claimed",
    "retry_if_claimed",
    "return_if_claimed",
    "bury_if_claimed",
    "open_if_claimed",
    "claim_from_queues",
)


class Link(Protocol):
    """What the ledger needs of a connection to Redis."""

    def call(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send commands in one round trip and return their replies."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """What the scripts need to know of the configuration."""

    worker_id: str
    incarnation: str
    result_ttl_seconds: int
    settled_ttl_seconds: int
    max_job_bytes: int
    max_queue_ms: int | None


@dataclass(slots=True)
class Ledger:
    """The claims of one incarnation."""

    link: Link
    keys: Keys
    terms: LedgerTerms
    _sources: dict[str, str] = field(default_factory=lambda: {name: lua.load(name) for name in _SCRIPTS})
    _shas: dict[str, str] = field(init=False)
    _sendings: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        """Name the scripts as Redis does."""
        self._shas = {
            name: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            for name, source in self._sources.items()
        }

    def exchange(self, asked: Exchange, now: str) -> ExchangeReply:
        """Do all that is asked in one round trip; ``now`` is Redis' time as RFC 3339, for dead letters.

        Raises:
            RedisUnavailable: nothing is known of what was done; the same call may be repeated.
        """
        groups = [group for group in self._groups(asked.commits) if group]
        commands = [self._commit_command(group, now) for group in groups]
        if asked.opens:
            commands.append(self._open_command(asked.opens))
        if asked.claim:
            commands.append(self._claim_command(asked.claim))
        replies = self._call(commands)
        claimed = _claimed(replies.pop(), asked.claim, self.keys) if asked.claim else None
        opened = tuple(_opened(reply) for reply in replies.pop()) if asked.opens else ()
        outcome_of = {
            commit.tag: outcome
            for group, reply in zip(groups, replies, strict=True)
            for commit, outcome in zip(group, reply, strict=True)
        }
        return ExchangeReply(tuple(outcome_of[commit.tag] for commit in asked.commits), opened, claimed)

    def _call(self, commands: list[list[Argument]]) -> list[Any]:
        replies = self.link.call(commands)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # The server was restarted or its scripts were flushed. What was done already is safe to repeat.
            self.link.call([["SCRIPT", "LOAD", source] for source in self._sources.values()])
            replies = self.link.call(commands)
        for reply in replies:
            if isinstance(reply, NoScriptError):
                raise reply
        return replies

    @staticmethod
    def _groups(commits: tuple[Commit, ...]) -> tuple[list[Commit], ...]:
        returns = [commit for commit in commits if isinstance(commit, Return)]
        return (
            [commit for commit in commits if isinstance(commit, Settle)],
            [commit for commit in commits if isinstance(commit, Retry)],
            # The last job returned is next in line: the one claimed first must be returned last.
            [*sorted(returns, key=lambda commit: commit.place, reverse=True)],
            [commit for commit in commits if isinstance(commit, Bury)],
        )

    def _commit_command(self, group: list[Commit], now: str) -> list[Argument]:
        claims, terms, prefix = self.keys.claims(self.terms.incarnation), self.terms, self.keys.prefix
        keys, head = [claims], list[Argument]()
        match group[0]:
            case Settle():
                name, keys = "settle_if_claimed", [claims, self.keys.settlements]
                head = [prefix, terms.incarnation, terms.result_ttl_seconds, terms.settled_ttl_seconds]
            case Retry():
                name, keys = "retry_if_claimed", [claims, self.keys.waiting]
                head = [prefix, terms.incarnation, terms.settled_ttl_seconds]
            case Return():
                name = "return_if_claimed"
            case Bury():
                name, keys, head = "bury_if_claimed", [claims, self.keys.dead_letters], [terms.worker_id, now]
            case _:
                assert_never(group[0])
        for commit in group:
            head += commit.arguments()
        return self._script(name, keys, head)

    def _open_command(self, opens: tuple[Open, ...]) -> list[Argument]:
        arguments: list[Argument] = [self.keys.prefix, _or(self.terms.max_queue_ms, -1)]
        for one in opens:
            arguments += [one.tag, one.job_id, _or(one.expires_ms, ""), _or(one.enqueued_ms, "")]
        return self._script("open_if_claimed", [self.keys.claims(self.terms.incarnation)], arguments)

    def _claim_command(self, claim: ClaimRequest) -> list[Argument]:
        incarnation = self.terms.incarnation
        keys = [self.keys.claims(incarnation), self.keys.waiting, self.keys.calls(incarnation)]
        keys += [self.keys.jobs(model) + priority for model in (*claim.open, *claim.closed) for priority in PRIORITIES]
        return self._script(
            "claim_from_queues",
            keys,
            [
                self.keys.prefix,
                claim.number,
                claim.wanted,
                self.terms.max_job_bytes,
                _or(self.terms.max_queue_ms, -1),
                len(PRIORITIES),
                len(claim.open),
                claim.most_expired,
                next(self._sendings),
            ],
        )

    def _script(self, name: str, keys: list[str], arguments: Sequence[Argument]) -> list[Argument]:
        return ["EVALSHA", self._shas[name], len(keys), *keys, *arguments]


def _or(value: int | None, otherwise: int | str) -> int | str:
    return otherwise if value is None else value


def _attempts(items: Sequence[bytes]) -> tuple[Attempt, ...]:
    return tuple(Attempt.model_validate_json(item) for item in items)


def _opened(reply: list[Any]) -> Opened:
    held, expired, *attempts = reply
    return Opened(bool(held), bool(expired), _attempts(attempts))


def _claimed(reply: list[Any], asked: ClaimRequest, keys: Keys) -> Claimed:
    now_ms, next_due_ms, empty, returned, claims = reply
    models = (*asked.open, *asked.closed)
    return Claimed(
        now_ms,
        next_due_ms if next_due_ms >= 0 else None,
        frozenset(models[index - 1] for index in empty),
        frozenset(keys.model_of(queue.decode()) for queue in returned),
        tuple(_claim(claim) for claim in claims),
    )


def _claim(reply: list[Any]) -> Claim:
    tag, queue, raw, job_id, expired, *attempts = reply
    return Claim(tag.decode(), queue.decode(), raw, job_id.decode() or None, bool(expired), _attempts(attempts))
