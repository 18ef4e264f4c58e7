"""Keeps the worker's slots filled and its outcomes committed, with one round trip for all that waits.

One greenlet talks to the ledger. While a call is under way, finished jobs gather; the next call commits them all and claims as many
jobs as there are free slots. It sleeps until the doorbell rings, a job finishes, a retry is due, or a sweep is.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog
from gevent.event import Event

from tasks.errors import JobError
from tasks.generate import Clock, DeadLetter, Delivery, Outcome
from tasks.reading import NotAJob
from worker.clock import RedisClock
from worker.envelope import Readable, read_envelope
from worker.exchange import Claim, Claimed, Commit, Exchange, ExchangeReply, Open, Opened, Retry, Return
from worker.keys import Keys
from worker.lookout import Lookout
from worker.outcomes import as_commit

_NOTHING_TO_DO_SECONDS: Final = 60.0

log = structlog.get_logger()


class Gate(Protocol):
    """Learns how inferences end."""

    def observe(self, model: str, error: JobError | None) -> None:
        """Learn how an inference ended."""
        ...


class Committer(Protocol):
    """Does an exchange with Redis, however long Redis is away."""

    def exchange(self, asked: Exchange) -> ExchangeReply:
        """Return the reply; does not return before there is one."""
        ...


class Journal(Protocol):
    """Learns what was committed, for counters and logs."""

    def committed(self, delivery: Delivery, outcome: Outcome | None, word: int) -> None:
        """Take one outcome, None for a job put back unstarted, with the script's word for it."""
        ...


@dataclass(slots=True)
class _Pending:
    delivery: Delivery
    outcome: Outcome | None
    commit: Commit


@dataclass(slots=True)
class Intake:
    """The jobs in this process' hands. ``slots`` is how many there may be."""

    committer: Committer
    lookout: Lookout
    gate: Gate
    journal: Journal
    clock: Clock
    redis_clock: RedisClock
    keys: Keys
    max_job_bytes: int
    end_unstarted: Callable[[Delivery], Outcome]
    """Gives the outcome of an expired job; it needs no slot."""
    slots: int = 0
    claiming: bool = True
    ready: Event = field(default_factory=Event)
    """Set while there are deliveries for ``take``."""

    _held: dict[str, Delivery] = field(default_factory=dict)
    _opening: dict[str, tuple[Delivery, Readable]] = field(default_factory=dict)
    _deliveries: deque[Delivery] = field(default_factory=deque)
    _pending: list[_Pending] = field(default_factory=list)
    _wake: Event = field(default_factory=Event)
    _settled_down: Event = field(default_factory=Event)

    @property
    def in_flight(self) -> int:
        """Return how many jobs are claimed and have no outcome yet."""
        return len(self._held)

    def open_queue(self, queue: str) -> None:
        """Claim from a queue from now on."""
        self.lookout.open(self.keys.model_of(queue))
        self._wake.set()

    def close_queue(self, queue: str) -> None:
        """Claim from a queue no more; what was claimed is delivered when it is open again."""
        self.lookout.close(self.keys.model_of(queue))

    def ring(self, models: frozenset[str] | None) -> None:
        """Learn that something may have come in: for these models, or for any."""
        self.lookout.ring(models)
        self._wake.set()

    def wake(self) -> None:
        """Look again at what can be done."""
        self._wake.set()

    def take(self) -> Iterable[Delivery]:
        """Give out the deliveries that wait, oldest first."""
        # When claiming has ended it stays set: Celery's loop goes round once more before it stops, and must not wait there.
        if self.claiming:
            self.ready.clear()
        while self._deliveries:
            delivery = self._deliveries.popleft()
            if delivery.tag in self._held:
                yield delivery

    def finish(self, delivery: Delivery, outcome: Outcome) -> None:
        """Take a delivery's outcome; it is committed with all that wait. The slot is free from here on."""
        if self._held.pop(delivery.tag, None) is None:
            log.info("job.outcome_dropped", tag=delivery.tag, model=delivery.queue_model)
            return
        if not isinstance(outcome, DeadLetter):
            self.gate.observe(delivery.queue_model, outcome.error)
        self._put_down(_Pending(delivery, outcome, as_commit(delivery, outcome)))

    def give_back(self, delivery: Delivery) -> None:
        """Put a job that has no outcome back to the front of its queue, uncounted."""
        if self._held.pop(delivery.tag, None) is not None:
            self._put_down(_Pending(delivery, None, Return(delivery.tag)))

    def stop_claiming(self) -> None:
        """Take nothing more; what nobody has taken yet, or is claimed by a call under way, goes back."""
        self.claiming = False
        for delivery in self.take():
            self.give_back(delivery)
        self._wake.set()
        self.ready.set()  # Whoever waits for deliveries has something else to do now.

    def held(self) -> list[Delivery]:
        """Return the claimed jobs without an outcome."""
        return list(self._held.values())

    def idle(self) -> Event:
        """Return an event that is set as soon as nothing is held and all is committed."""
        self._settled_down.clear()
        self._wake.set()
        return self._settled_down

    def run(self) -> None:
        """Work until killed."""
        while True:
            self._wake.clear()
            if not self.run_once():
                self._wake.wait(self._rest_seconds())

    def run_once(self) -> bool:
        """Do one exchange; False if there was nothing to do."""
        pending, self._pending = self._pending, []
        opening = dict(self._opening)
        wanted = max(0, self.slots - len(self._held))
        claim = self.lookout.request(self.clock.monotonic_ms(), wanted) if self.claiming else None
        if not (pending or opening or claim):
            if not self._held:
                self._settled_down.set()
            return False
        opens = tuple(Open(tag, job.job_id, job.expires_ms, job.enqueued_ms) for tag, (_, job) in opening.items())
        reply = self.committer.exchange(Exchange(tuple(one.commit for one in pending), opens, claim))
        for one, word in zip(pending, reply.outcomes, strict=True):
            self._committed(one, word)
        for tag, opened in zip(opening, reply.opened, strict=True):
            self._deliver_opened(self._opening.pop(tag)[0], opened)
        if reply.claimed:
            self._take_in(reply.claimed)
        return True

    def _put_down(self, done: _Pending) -> None:
        if isinstance(done.commit, Return):
            # Redis tells a connection nothing of its own pushes.
            self.lookout.ring(frozenset({done.delivery.queue_model}))
        self._pending.append(done)
        self._wake.set()

    def _committed(self, done: _Pending, word: int) -> None:
        if isinstance(done.commit, Retry):
            self.lookout.expect_retry(self.clock.monotonic_ms() + done.commit.delay_ms)
        self.journal.committed(done.delivery, done.outcome, word)

    def _rest_seconds(self) -> float:
        """Return how long nothing needs to be done, unless something wakes us."""
        if not self.claiming:
            return _NOTHING_TO_DO_SECONDS
        return max(0.001, (self.lookout.next_look_ms() - self.clock.monotonic_ms()) / 1000)

    def _take_in(self, claimed: Claimed) -> None:
        self.redis_clock.heard(claimed.now_ms)
        self.lookout.learn(claimed, self.clock.monotonic_ms())
        for claim in claimed.claims:
            self._receive(claim, claimed.now_ms)

    def _receive(self, claim: Claim, now_ms: int) -> None:
        delivery = self._delivery(claim, now_ms)
        self._held[claim.tag] = delivery
        if claim.job_id is not None:
            self._deliver(delivery)
            return
        match read_envelope(claim.raw, self.max_job_bytes):
            case Readable() as job:
                self._opening[claim.tag] = (replace(delivery, raw=job.raw), job)
            case NotAJob(reason):
                self.finish(delivery, DeadLetter(reason))
            case None:
                self._deliver(delivery)

    def _deliver_opened(self, delivery: Delivery, opened: Opened) -> None:
        if opened.held:
            self._deliver(replace(delivery, expired=opened.expired, attempts=opened.attempts))
        else:
            self._held.pop(delivery.tag, None)

    def _delivery(self, claim: Claim, now_ms: int) -> Delivery:
        return Delivery(
            tag=claim.tag,
            queue_model=self.keys.model_of(claim.queue),
            raw=claim.raw,
            claimed_at_ms=now_ms,
            received_ms=self.clock.monotonic_ms(),
            expired=claim.expired,
            attempts=claim.attempts,
        )

    def _deliver(self, delivery: Delivery) -> None:
        if delivery.tag not in self._held:
            return  # It was given back while it was opened.
        self._held[delivery.tag] = delivery
        if not self.claiming:
            self.give_back(delivery)
        elif delivery.expired:
            self.finish(delivery, self.end_unstarted(delivery))
        else:
            self._deliveries.append(delivery)
            self.ready.set()
