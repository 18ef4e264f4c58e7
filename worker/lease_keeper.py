"""Keeps this run's lease, and ends runs that are dead: their jobs go back to their queues."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import gevent
import structlog
from redis.exceptions import ResponseError

from tasks.generate import Clock
from worker.keys import Keys
from worker.lease import Dead, Incarnation, Lease, LeaseWatch
from worker.redis_link import RedisLink, RedisUnavailable
from worker.scripts import Argument, Scripts

_SCRIPTS: Final = ("enter_if_free", "renew_if_held", "leave_if_empty", "reap_if_stood_still")
LEASES_KEPT_SECONDS: Final = 86_400
"""How long the leases outlive the last worker; claims without a lease are found all the same."""

_MOST_SECONDS_BETWEEN: Final = 0.5
_LOOKS_A_LEASE: Final = 6
_OUTAGE_SECONDS: Final = 0.1
_REFUSED_SECONDS: Final = 2.0

log = structlog.get_logger()


class WorkerIdTaken(Exception):
    """Another live process runs under this worker_id."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What the scripts need to know of the configuration; ledgers of jobs are kept ``ledger_seconds``."""

    worker_id: str
    lease_seconds: float
    ledger_seconds: int


@dataclass(frozen=True, slots=True)
class LeaseEvents:
    """Who is told what becomes of leases."""

    on_lost: Callable[[], None]
    """This run was declared dead, and has begun anew."""
    on_more: Callable[[], None]
    """There may be more to claim: a renewal came late, or what a dead run held went back, its slots and tokens too."""
    on_reaped: Callable[[int], None]
    """So many jobs of a dead run went back to their queues."""


class LeaseKeeper:
    """The lease of one worker."""

    def __init__(
        self,
        link: RedisLink,
        keys: Keys,
        incarnation: Incarnation,
        terms: LeaseTerms,
        clock: Clock,
        events: LeaseEvents,
    ) -> None:
        """Keep the parts; nothing is asked yet."""
        self._link = link
        self._scripts = Scripts(link, _SCRIPTS)
        self._keys = keys
        self._incarnation = incarnation
        self._terms = terms
        self._clock = clock
        self._events = events
        self._interval_seconds = min(_MOST_SECONDS_BETWEEN, terms.lease_seconds / _LOOKS_A_LEASE)
        self._watch = LeaseWatch(self._interval_seconds * 1000, terms.lease_seconds * 1000)

    def enter(self) -> None:
        """Take the lease, after a dead run under the same worker_id has been ended.

        Raises:
            WorkerIdTaken: that run is alive.
            RedisUnavailable: Redis did not answer.
        """
        before: str | None = None
        while in_the_way := self._asked_to_enter():
            if (
                before is not None
                and Lease(in_the_way).incarnation == Lease(before).incarnation
                and in_the_way != before
            ):
                raise WorkerIdTaken(self._terms.worker_id)
            if before is None:
                log.info("lease.was_awaited", incarnation=Lease(in_the_way).incarnation)
            before = in_the_way
            self.look()
            gevent.sleep(self._interval_seconds)

    def run(self) -> None:
        """Renew and look until killed."""
        while True:
            try:
                self.renew()
            except RedisUnavailable:
                self._watch.missed()
                gevent.sleep(_OUTAGE_SECONDS)
            except ResponseError as error:
                # Missing rights, or a key of another type: without a renewal nothing is claimed, until somebody mends it.
                log.error("lease.was_refused", reason=str(error)[:120])
                self._watch.missed()
                gevent.sleep(_REFUSED_SECONDS)
            else:
                gevent.sleep(self._interval_seconds)

    def renew(self) -> None:
        """Renew the lease once, and end who is dead.

        Raises:
            RedisUnavailable: Redis did not answer; the lease may or may not have been renewed.
            WorkerIdTaken: the lease was lost, and another process has taken the worker_id since.
        """
        asked_ms = self._clock.monotonic_ms()
        if self.look():
            was_trusted = self._incarnation.is_trusted()
            self._incarnation.renewed(asked_ms)
            if not was_trusted:
                self._events.on_more()
            return
        log.warning("lease.was_lost", incarnation=self._incarnation.name)
        self._incarnation.begin_anew()
        self._events.on_lost()
        self.enter()
        self._events.on_more()

    def look(self) -> bool:
        """Count up the lease and look at everyone's; False if it is not held."""
        keys = [self._keys.leases, self._keys.claimants]
        held, leases, claimants = self._run("renew_if_held", keys, self._own())
        texts = [text.decode() for text in leases]
        by_worker = dict(zip(texts[::2], texts[1::2], strict=True))
        holders = frozenset(name.decode() for name in claimants)
        for dead in self._watch.look(by_worker, holders, self._clock.monotonic_ms()):
            self._reap(dead)
        return bool(held)

    def leave(self) -> None:
        """Give the lease up, unless claims are left.

        Raises:
            RedisUnavailable: it stands still from now on, and another worker ends it.
        """
        keys = [self._keys.leases, self._keys.claims(self._incarnation.name)]
        self._run("leave_if_empty", keys, [self._terms.worker_id, self._incarnation.name])
        self._link.close()

    def _asked_to_enter(self) -> str:
        asked_ms = self._clock.monotonic_ms()
        in_the_way = self._run("enter_if_free", [self._keys.leases], self._own()).decode()
        if not in_the_way:
            self._incarnation.renewed(asked_ms)
        return str(in_the_way)

    def _reap(self, dead: Dead) -> None:
        if dead.incarnation == self._incarnation.name:
            return
        keys = [self._keys.leases, self._keys.claims(dead.incarnation), self._keys.claimants, self._keys.running]
        dead_one = [dead.worker_id, dead.incarnation, dead.stood or ""]
        arguments: list[Argument] = [self._keys.prefix, *dead_one, self._terms.ledger_seconds]
        jobs = self._run("reap_if_stood_still", keys, arguments)
        if jobs >= 0:
            log.warning("worker.declared_dead", incarnation=dead.incarnation, jobs=jobs)
            self._events.on_reaped(jobs)
            self._events.on_more()

    def _own(self) -> list[Argument]:
        lease_ms = round(self._terms.lease_seconds * 1000)
        return [self._terms.worker_id, self._incarnation.name, lease_ms, LEASES_KEPT_SECONDS]

    def _run(self, name: str, keys: list[str], arguments: list[Argument]) -> Any:
        (reply,) = self._scripts.run([self._scripts.command(name, keys, arguments)])
        return reply
