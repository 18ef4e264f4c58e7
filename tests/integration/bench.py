"""Two runs of a worker beside a real Redis, without the worker: ledgers, committers, and what they left in Redis."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis

from tests.committer_contract import KEYS
from tests.jobs import MAX_JOB_BYTES, MODEL
from worker.clock import MonotonicClock, RedisClock
from worker.committer import Committer
from worker.doorbell import Doorbell
from worker.exchange import Exchange, ExchangeReply
from worker.ledger import Ledger, LedgerTerms
from worker.redis_link import RedisLink

NOW = "2026-11-30T10:00:00.000Z"


def terms(incarnation: str = "triton-01:a", **changes: Any) -> LedgerTerms:
    """Return what the scripts are told, with these terms changed."""
    standard: dict[str, Any] = {
        "worker_id": "triton-01",
        "incarnation": incarnation,
        "result_ttl_seconds": 86_400,
        "settled_ttl_seconds": 604_800,
        "max_job_bytes": MAX_JOB_BYTES,
        "max_queue_ms": None,
    }
    return LedgerTerms(**{**standard, **changes})


class Ledgers:
    """Makes ledgers with a connection each."""

    def __init__(self) -> None:
        self._links: list[RedisLink] = []

    def __call__(
        self, url: str, incarnation: str = "triton-01:a", *, socket_timeout: float = 5.0, **changes: Any
    ) -> Ledger:
        """Return a ledger whose terms are changed so."""
        return Ledger(self.link(url, socket_timeout), KEYS, terms(incarnation, **changes))

    def committer(self, url: str, incarnation: str) -> Committer:
        """Return a committer whose doorbell is not connected."""
        link = self.link(url)
        doorbell = Doorbell(self.link(url), KEYS, never_ring)
        clock = RedisClock(MonotonicClock())
        ledger = Ledger(link, KEYS, terms(incarnation))
        return Committer(link, ledger, doorbell, clock, lambda _: None, on_connected=lambda: None)

    def link(self, url: str, socket_timeout: float = 5.0) -> RedisLink:
        """Return a link that is closed with the others."""
        self._links.append(RedisLink(url, socket_timeout=socket_timeout))
        return self._links[-1]

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()


def never_ring(_: frozenset[str] | None) -> None:
    """Take a ring nobody waits for."""


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
    """A bench of what carries exchanges out: ``make`` makes one for each incarnation that is named."""

    client: redis.Redis
    make: Callable[[str], Exchanging]
    made: dict[str, Exchanging] = field(default_factory=dict)

    def push(self, *raws: bytes, queue: str = KEYS.jobs(MODEL)) -> None:
        """Enqueue as a gateway does."""
        for raw in raws:
            self.client.lpush(queue, raw)

    def exchange(self, asked: Exchange, incarnation: str = "triton-01:a") -> ExchangeReply:
        """Carry out an exchange."""
        if incarnation not in self.made:
            self.made[incarnation] = self.make(incarnation)
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

    def claimed_tags(self, incarnation: str = "triton-01:a") -> set[str]:
        """Return the tags of what a run of a worker has claimed."""
        return {tag.decode() for tag in _listed(self.client.hkeys(KEYS.claims(incarnation)))}


def entries(client: redis.Redis, stream: str) -> list[dict[bytes, bytes]]:
    """Return the fields of each entry of a stream."""
    return [fields for _, fields in _listed(client.xrange(stream))]


def state(client: redis.Redis) -> dict[bytes, Any]:
    """Return all there is in Redis, as it would be dumped, but for what passes by itself."""
    return {key: client.dump(key) for key in sorted(client.scan_iter(count=1000))}


def _listed(reply: Any) -> list[Any]:
    return list(reply)
