"""Keeps the worker's slots filled and its outcomes committed, with one round trip for all that waits.

One greenlet talks to the ledger. While a call is under way, finished jobs gather; the next call commits them all and claims as many
jobs as there are free slots. It sleeps until the doorbell rings, a job finishes, a retry is due, or a sweep is.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from gevent.event import Event

from tasks.delivery import Delivery, Outcome
from tasks.generate import Clock
from tasks.result import Attempt
from worker.clock import RedisClock
from worker.exchange import Amend, Claimed, Exchange, Known, Open, Postponed, Retry, Return
from worker.intake_ports import Committer, Gate, Journal
from worker.keys import Keys
from worker.leftovers import Leftovers
from worker.lookout import Lookout
from worker.outcomes import Done, as_commit, follow_up, is_lost
from worker.reception import Received, Reception

ASIDE_MS: Final = 1000.0  # How long the scripts set a job aside that is to run alone.
_NOTHING_TO_DO_SECONDS: Final = 60.0

log = structlog.get_logger()


@dataclass(slots=True)
class Intake:
    """The jobs in this process' hands. ``slots`` is how many there may be, ``exchanged_ms`` when Redis last answered (monotonic)."""

    committer: Committer
    lookout: Lookout
    reception: Reception
    gate: Gate
    journal: Journal
    clock: Clock
    redis_clock: RedisClock
    keys: Keys
    worker_id: str
    is_trusted: Callable[[], bool] = lambda: True
    """Tells whether this run's lease is certainly held, and so whether what is claimed now may be run."""
    slots: int = 0
    claiming: bool = True
    ready: Event = field(default_factory=Event)
    """Set while there are deliveries for ``take``."""

    exchanged_ms: float = 0.0
    """When Redis last answered, on the monotonic clock."""
    leftovers: Leftovers = field(default_factory=Leftovers)
    _held: dict[str, Delivery] = field(default_factory=dict)
    _lost: dict[str, Delivery] = field(default_factory=dict)
    _opening: dict[str, tuple[Delivery, Open]] = field(default_factory=dict)
    _deliveries: deque[Delivery] = field(default_factory=deque)
    _done: list[Done] = field(default_factory=list)
    _amends: list[Amend] = field(default_factory=list)
    _wake: Event = field(default_factory=Event)
    _settled_down: Event = field(default_factory=Event)

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
        """Look again at what can be done: something has changed that jobs may have waited for."""
        self.lookout.recall()
        self._wake.set()

    def take(self) -> Iterable[Delivery]:
        """Give out the deliveries that wait, oldest first."""
        # When claiming has ended it stays set: Celery's loop goes round once more before it stops, and must not wait there.
        if self.claiming:
            self.ready.clear()
        while self._deliveries:
            if (delivery := self._deliveries.popleft()).tag in self._held:
                yield delivery

    def finish(self, delivery: Delivery, outcome: Outcome) -> None:
        """Take a delivery's outcome; it is committed with all that wait. The slot is free from here on."""
        was_lost = self._lost.pop(delivery.tag, None) is not None
        if self._held.pop(delivery.tag, None) is None and not was_lost:
            log.info("job.outcome_dropped", tag=delivery.tag, model=delivery.queue_model)
            return
        # What was lost is committed all the same: the ledger refuses it, and then learns what was spent.
        self.gate.observe(delivery, outcome)
        done = Done(delivery, outcome, as_commit(delivery, outcome))
        self.leftovers.note(delivery, outcome)
        self._put_down(done)

    def give_back(self, delivery: Delivery, attempt: Attempt | None = None) -> None:
        """Put a job that has no outcome back to the front of its queue, uncounted; ``attempt`` is one that was broken off."""
        if self._held.pop(delivery.tag, None) is not None:
            text = "" if attempt is None else attempt.model_dump_json()
            self._put_down(Done(delivery, None, Return(delivery.tag, text)))

    def forget(self) -> None:
        """Let go of everything that is claimed: this run was declared dead, and its jobs are others' now."""
        self._lost, self._held = self._held, {}
        self.leftovers.lose(self._lost.values())
        self._opening.clear()
        self._deliveries.clear()
        self._wake.set()

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
        asked, done, opening = self._asked()
        if asked == Exchange():
            if not self._held:
                self._settled_down.set()
            return False
        reply = self.committer.exchange(asked)
        self.exchanged_ms = self.clock.monotonic_ms()
        for one, word in zip(done, reply.outcomes, strict=True):
            self._committed(one, word)
        for tag, known in zip(opening, reply.opened, strict=True):
            delivery, _ = self._opening.pop(tag, opening[tag])
            self._opened(delivery, known)
        if reply.claimed:
            self._take_in(reply.claimed)
        return True

    def _opened(self, delivery: Delivery, known: Known | Postponed | None) -> None:
        self.lookout.job_ended()  # Another one of its model may be opened now.
        match known:
            case Known():
                self._deliver(self.reception.opened(delivery, known))
                return
            case Postponed(ask_again_ms):
                self.lookout.rest(delivery.queue_model, self.clock.monotonic_ms() + ask_again_ms)
            case None:
                self.lookout.expect_retry(self.clock.monotonic_ms() + ASIDE_MS)  # It may have been set aside.
        self._held.pop(delivery.tag, None)

    def _asked(self) -> tuple[Exchange, list[Done], dict[str, tuple[Delivery, Open]]]:
        done, self._done = self._done, []
        amends, self._amends = self._amends, []
        opening = dict(self._opening)
        alone = any(one.alone for tag, one in self._held.items() if tag not in opening)  # None waits for itself.
        if done:
            self.lookout.job_ended()
        claim, now_ms = None, self.clock.monotonic_ms()
        if self.claiming and self.lookout.may_ask(now_ms) and self.is_trusted():
            claim = self.lookout.request(
                now_ms,
                max(0, self.slots - len(self._held)),
                held=Counter(one.queue_model for one in self._held.values()),
                one_runs_alone=alone or bool(opening),
                opening=frozenset(one.queue_model for one, _ in opening.values()),
            )
        opens = tuple(opens for _, opens in opening.values())
        commits, freed = tuple(one.commit for one in done), self.leftovers.freed()
        return Exchange(commits, tuple(amends), opens, claim, alone and bool(opening), freed), done, opening

    def _put_down(self, done: Done) -> None:
        if isinstance(done.commit, Return):
            # Redis tells a connection nothing of its own pushes.
            self.lookout.ring(frozenset({done.delivery.queue_model}))
        self._done.append(done)
        self._wake.set()

    def _committed(self, done: Done, word: int) -> None:
        if isinstance(done.commit, Retry):
            self.lookout.expect_retry(self.clock.monotonic_ms() + done.commit.delay_ms)
        if is_lost(done.commit, word):
            self.leftovers.came_late(done.delivery, done.outcome)
        after = follow_up(done, word, self.worker_id)
        if after.instead is not None:
            self._put_down(after.instead)
            return
        self._amends += [after.amend] if after.amend else []
        self.journal.committed(done.delivery, done.outcome, word)

    def _rest_seconds(self) -> float:
        """Return how long nothing needs to be done, unless something wakes us."""
        if not (self.claiming and self.is_trusted()):
            return _NOTHING_TO_DO_SECONDS
        return max(0.001, (self.lookout.next_look_ms() - self.clock.monotonic_ms()) / 1000)

    def _take_in(self, claimed: Claimed) -> None:
        self.redis_clock.heard(claimed.now_ms)
        now_ms = self.clock.monotonic_ms()
        self.lookout.learn(claimed, now_ms)
        self.leftovers.claimed()
        for claim in claimed.claims:
            received = self.reception.receive(claim)
            self._held[claim.tag] = received.delivery
            self.lookout.shares.had_work(received.delivery.queue_model, now_ms)
            if received.opens is None:
                self._deliver(received)
            else:
                self._opening[claim.tag] = (received.delivery, received.opens)

    def _deliver(self, received: Received) -> None:
        delivery = received.delivery
        if delivery.tag not in self._held:
            return  # It was given back while it was opened.
        self._held[delivery.tag] = delivery
        if not self.claiming:
            self.give_back(delivery)
        elif received.outcome is not None:
            self.finish(delivery, received.outcome)
        elif self._may_run(delivery):
            self._deliveries.append(delivery)
            self.ready.set()
        else:
            self.give_back(delivery)

    def _may_run(self, delivery: Delivery) -> bool:
        """Tell whether a delivery is to be run: a message at a resting head was claimed just to be read, and granted nothing."""
        return bool(delivery.holds) or delivery.job_id is None
