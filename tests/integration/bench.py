"""Two runs of a worker beside a real Redis, without the worker: ledgers, committers, and what they left in Redis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import redis

from tests.committer_contract import KEYS, RUN
from tests.jobs import MAX_JOB_BYTES, MODEL
from tests.redis_model import LEASE_MS, POOL, Seen, circuit_of, worker_of
from worker.clock import MonotonicClock, RedisClock
from worker.committer import Committer
from worker.doorbell import Doorbell
from worker.exchange import Exchange, ExchangeReply
from worker.ledger import SCRIPTS, Ledger
from worker.ledger_terms import LedgerTerms, ModelTerms, PoolTerms
from worker.redis_link import RedisLink, RedisUnavailable
from worker.scripts import Argument, Link, Scripts

NOW = "2026-11-30T10:00:00.000Z"


A_DAY, A_WEEK = 86_400, 604_800
LEASE_SCRIPTS: Final = ("enter_if_free", "renew_if_held", "leave_if_empty", "reap_if_stood_still")


class AnyModel(dict[str, ModelTerms]):
    """The terms of whatever model is asked for."""

    def __missing__(self, model: str) -> ModelTerms:
        return ModelTerms(circuit_of(model), 60_000, 3)


def terms(incarnation: str = RUN, **changes: Any) -> LedgerTerms:
    """Return what the scripts are told of a run's configuration, with these terms changed."""
    standard: dict[str, Any] = {
        "worker_id": worker_of(incarnation),
        "result_ttl_seconds": A_DAY,
        "settled_ttl_seconds": A_WEEK,
        "max_job_bytes": MAX_JOB_BYTES,
        "max_queue_ms": None,
        "crashes_to_run_alone": 2,
        "pool": PoolTerms(POOL, 1000),
        "models": AnyModel(),
    }
    return LedgerTerms(**{**standard, **changes})


def ledger_on(link: Link, incarnation: str = RUN, **changes: Any) -> Ledger:
    """Return the ledger of a run over a connection; the lease is another matter."""
    return Ledger(Scripts(link, SCRIPTS), KEYS, terms(incarnation, **changes), lambda: incarnation)


def enter(client: redis.Redis, incarnation: str = RUN) -> None:
    """Let a run hold its lease."""
    client.hset(KEYS.leases, worker_of(incarnation), f"{incarnation} 0 {LEASE_MS}")
    client.expire(KEYS.leases, A_DAY)


class Ledgers:
    """Makes ledgers with a connection each; their runs hold their leases."""

    def __init__(self) -> None:
        self._links: list[RedisLink] = []

    def __call__(self, url: str, incarnation: str = RUN, *, socket_timeout: float = 5.0, **changes: Any) -> Ledger:
        """Return a ledger whose terms are changed so."""
        self._enter(url, incarnation)
        return ledger_on(self.link(url, socket_timeout), incarnation, **changes)

    def committer(self, url: str, incarnation: str) -> Committer:
        """Return a committer whose doorbell is not connected."""
        link = self.link(url)
        doorbell = Doorbell(self.link(url), KEYS, never_ring)
        clock = RedisClock(MonotonicClock())
        ledger = ledger_on(link, incarnation)
        return Committer(link, ledger, doorbell, clock, lambda _: None, on_connected=lambda: None)

    def leases(self, url: str) -> "Leases":
        """Return the scripts about leases."""
        return Leases(Scripts(self.link(url), LEASE_SCRIPTS))

    def link(self, url: str, socket_timeout: float = 5.0) -> RedisLink:
        """Return a link that is closed with the others."""
        self._links.append(RedisLink(url, socket_timeout=socket_timeout))
        return self._links[-1]

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()

    @staticmethod
    def _enter(url: str, incarnation: str) -> None:
        with redis.Redis.from_url(url) as client:
            enter(client, incarnation)


@dataclass(frozen=True)
class Leases:
    """The scripts about leases, each asked once."""

    scripts: Scripts

    def enter(self, incarnation: str) -> str:
        """Ask for the lease; returns the one that is in the way, or ''."""
        return str(self._run("enter_if_free", [KEYS.leases], self._own(incarnation)).decode())

    def renew(self, incarnation: str) -> Seen:
        """Count the lease up, and look at everyone's."""
        held, leases, claimants = self._run("renew_if_held", [KEYS.leases, KEYS.claimants], self._own(incarnation))
        texts = [text.decode() for text in leases]
        return Seen(
            bool(held), dict(zip(texts[::2], texts[1::2], strict=True)), frozenset(name.decode() for name in claimants)
        )

    def leave(self, incarnation: str) -> bool:
        """Give the lease up; False if claims are left."""
        keys = [KEYS.leases, KEYS.claims(incarnation)]
        return bool(self._run("leave_if_empty", keys, [worker_of(incarnation), incarnation]))

    def reap(self, incarnation: str, stood: str) -> int:
        """End a run; returns how many jobs went back, or -1."""
        keys = [KEYS.leases, KEYS.claims(incarnation), KEYS.claimants, KEYS.running]
        arguments: list[Argument] = [KEYS.prefix, worker_of(incarnation), incarnation, stood, A_WEEK]
        return int(self._run("reap_if_stood_still", keys, arguments))

    @staticmethod
    def _own(incarnation: str) -> list[Argument]:
        return [worker_of(incarnation), incarnation, LEASE_MS, A_DAY]

    def _run(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        (reply,) = self.scripts.run([self.scripts.command(name, keys, arguments)])
        return reply


def never_ring(_: frozenset[str] | None) -> None:
    """Take a ring nobody waits for."""


class HeldUp:
    """A link that can give up on a call whose commands arrive later all the same."""

    def __init__(self, link: RedisLink) -> None:
        self.link = link
        self.gives_up = False
        self._under_way: list[Sequence[Sequence[Argument]]] = []

    def call(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send commands, or keep them under way."""
        if self.gives_up:
            self._under_way.append(commands)
            raise RedisUnavailable
        return self.link.call(commands)

    def let_one_arrive(self) -> list[Any]:
        """Let the first of what is under way arrive; returns the answers, which no caller hears."""
        return self.link.call(self._under_way.pop(0))

    def let_arrive(self) -> None:
        """Let all that is under way arrive."""
        while self._under_way:
            self.let_one_arrive()

    def forget(self) -> None:
        """Let what is under way be lost."""
        self._under_way.clear()


class Exchanging(Protocol):
    """What carries exchanges out."""

    def exchange(self, asked: Exchange, /) -> ExchangeReply:
        """Return the reply."""
        ...


class BareLedger:
    """A ledger that is asked once: it does not wait for a Redis that is away."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def exchange(self, asked: Exchange) -> ExchangeReply:
        """Return the reply."""
        return self.ledger.exchange(asked, NOW)


@dataclass
class RedisBench:
    """A bench of what carries exchanges out: ``make`` makes one for each incarnation that is named, which then enters."""

    client: redis.Redis
    make: Callable[[str], Exchanging]
    leases: Leases
    made: dict[str, Exchanging] = field(default_factory=dict)

    def push(self, *raws: bytes, queue: str = KEYS.jobs(MODEL)) -> None:
        """Enqueue as a gateway does."""
        for raw in raws:
            self.client.lpush(queue, raw)

    def exchange(self, asked: Exchange, incarnation: str = RUN) -> ExchangeReply:
        """Carry out an exchange."""
        if incarnation not in self.made:
            self.made[incarnation] = self.make(incarnation)
            self.leases.enter(incarnation)
        return self.made[incarnation].exchange(asked)

    def queued(self, queue: str = KEYS.jobs(MODEL)) -> list[bytes]:
        """Return what is in a list, next in line first."""
        return _listed(self.client.lrange(queue, 0, -1))[::-1]

    def settled(self) -> list[str]:
        """Return the job_ids in the settlement queue."""
        return [fields[b"job_id"].decode() for fields in entries(self.client, KEYS.settlements)]

    def buried(self) -> list[tuple[str, str, bytes]]:
        """Return the dead letters."""
        found = entries(self.client, KEYS.dead_letters)
        return [(fields[b"queue"].decode(), fields[b"reason"].decode(), fields[b"raw"]) for fields in found]

    def claimed_tags(self, incarnation: str = RUN) -> set[str]:
        """Return the tags of what a run of a worker has claimed."""
        return {tag.decode() for tag in _listed(self.client.hkeys(KEYS.claims(incarnation)))}

    def running(self) -> dict[str, str]:
        """Return which claim runs each job that is claimed."""
        found: Any = self.client.hgetall(KEYS.running)
        return {job_id.decode(): claim.decode() for job_id, claim in found.items()}

    def cancel(self, job_id: str) -> None:
        """Cancel a job as a gateway does."""
        self.client.set(KEYS.cancel(job_id), "1", ex=691_200)

    def enter(self, incarnation: str = RUN) -> str:
        """Ask for the lease."""
        return self.leases.enter(incarnation)

    def renew(self, incarnation: str = RUN) -> Seen:
        """Count the lease up, and look at everyone's."""
        return self.leases.renew(incarnation)

    def leave(self, incarnation: str = RUN) -> bool:
        """Give the lease up."""
        return self.leases.leave(incarnation)

    def reap(self, incarnation: str, stood: str) -> int:
        """End a run."""
        return self.leases.reap(incarnation, stood)


def entries(client: redis.Redis, stream: str) -> list[dict[bytes, bytes]]:
    """Return the fields of each entry of a stream."""
    return [fields for _, fields in _listed(client.xrange(stream))]


def state(client: redis.Redis) -> dict[bytes, Any]:
    """Return all there is in Redis, as it would be dumped, but for what passes by itself."""
    return {key: client.dump(key) for key in sorted(client.scan_iter(count=1000))}


def _listed(reply: Any) -> list[Any]:
    return list(reply)
