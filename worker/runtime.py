"""The one place where the parts of a worker meet, and the order in which they start and stop."""

import os
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING, Final

import gevent
import structlog
from gevent.event import Event

from settings.schema import Settings
from tasks.delivery import Delivery, Outcome
from tasks.errors import JobError
from tasks.generate import generate
from worker.adapting import Adapting
from worker.circuit_sync import CircuitSync
from worker.circuits import Circuits
from worker.clock import MonotonicClock, RedisClock
from worker.committer import Committer
from worker.doorbell import Doorbell
from worker.entering import enter
from worker.gate import ModelGate
from worker.health import Load
from worker.heartbeat import Heartbeat
from worker.intake import Intake
from worker.keys import Keys
from worker.lease import Incarnation
from worker.lease_keeper import LeaseEvents, LeaseKeeper
from worker.ledger import Ledger
from worker.leftovers import Leftovers
from worker.lookout import SWEEP_MS, Lookout
from worker.observer import Observer
from worker.outcomes import drained
from worker.pool import Pool
from worker.process import this_process
from worker.reception import Reception
from worker.recovery import Recovery
from worker.redis_link import RedisUnavailable
from worker.runs import Runs
from worker.shares import Shares
from worker.tally import Tally
from worker.telemetry import Telemetry
from worker.terms import lease_terms, ledger_terms, pool_terms, ports_of, registration_of
from worker.tracing.wanted import NO_TRACES, TracesWanted
from worker.triton.adapter import TritonInference
from worker.triton.failures import ServerAway
from worker.vitals import Vitals
from worker.waits import Waits
from worker.watch import Watch

if TYPE_CHECKING:
    # It cannot be subscripted, nor is it needed, while the worker runs.
    Loop = gevent.Greenlet[..., None]

_LAST_COMMIT_SECONDS: Final = 5.0
"""How long the last outcomes may take to reach Redis; claims that do not get away then are found by the next worker."""

_LATE_ANSWER_SECONDS: Final = 0.5
"""How long inferences go on whose lease was lost."""

_STOOD_STILL_MS: Final = 3 * SWEEP_MS
"""How old the last exchange may be in a worker that consumes: there is one in each sweep at least."""

log = structlog.get_logger()


class Runtime:
    """A worker's parts. Nothing is connected before ``start``."""

    def __init__(self, settings: Settings, traces: TracesWanted = NO_TRACES) -> None:
        """Connect the parts to each other."""
        self.settings = settings
        self.keys = Keys(settings.namespace)
        self._clock = MonotonicClock()
        self._redis_clock = RedisClock(self._clock)
        self._draw = random.SystemRandom().random
        self._telemetry = Telemetry(settings, traces, self.keys, self._clock, self._redis_clock)
        self._inference = TritonInference.of(settings)
        self._ports = ports_of(settings, self._telemetry.inference(self._inference), self._clock, self._draw)
        self._incarnation = Incarnation(settings.worker_id, settings.lease_seconds * 1000, self._clock)
        self._tally = Tally(self._redis_clock)
        self._journal = self._telemetry.journal(self._tally)
        self._gate = ModelGate(settings.supported_models, self._clock, self._draw, self._standing_changed)
        link, clocks = self._telemetry.link(), (self._clock, self._redis_clock)
        sync = CircuitSync.of(settings, self.keys, link, lambda: self._doorbell.client_id, clocks, self._draw)
        self._circuits = Circuits.of(settings, self._gate, self._inference, sync)
        self._adapting = Adapting.of(settings, self.keys, self._telemetry.link(), self._clock, self._draw)
        self._doorbell = Doorbell(self._telemetry.link(), self.keys, self._ring, self._changed)
        self.intake = self._make_intake()
        self._recovery = Recovery(self._gate, self._circuits.look, self._looked_at, self.intake.wake)
        registration = registration_of(settings, self._ports)
        link, doorbell_id = self._telemetry.link(), lambda: self._doorbell.client_id
        self._heartbeat = Heartbeat(link, self.keys, registration, self._redis_clock, self._ring, doorbell_id)
        events = LeaseEvents(self._abandon, self.intake.wake, self._journal.reaped)
        terms, link = lease_terms(settings), self._telemetry.link()
        self._lease = LeaseKeeper(link, self.keys, self._incarnation, terms, self._clock, events)
        self.lost_a_part = False
        """Whether the worker stops for a fault of its own, and not because it was told to."""
        self._draining, self._stopped_at_ms = False, 0.0
        self._hurried, self._runs = Event(), Runs()
        self._greenlets: list[Loop] = []

    def start(self, slots: int) -> None:
        """Begin to look at the models, to claim and to beat; ``slots`` jobs run at once.

        Raises:
            AddressInUse: `metrics_address` cannot be listened on.
            WorkerIdTaken: another live process runs under this worker_id.
        """
        settings, telling, self.intake.slots = self.settings, self._telemetry.start(), slots
        self.intake.lookout.shares.slots = slots
        self._inference.limit(slots)  # `celery worker -c` may say another number than the configuration.
        pool = Pool(self._telemetry.link(), self.keys, pool_terms(settings), settings.worker_id)
        enter(self._lease, self._heartbeat, pool, settings.redis_address, lambda: not self._draining)
        process = this_process(settings, self._redis_clock.now())
        says = self._heartbeat.paused_models, self._circuits.states, self.intake.lookout.refusals
        vitals = Vitals(settings, process, self._tally, self._gate.states, self._load, *says)
        self._telemetry.health = lambda: vitals.beat().fields
        watch = Watch(self._inference.changed, self._gate.is_open, self._recovery.look_now, self._draw)
        waits = Waits.of(settings, self.keys, self._draw, self._telemetry.explained)
        models = self._recovery.run, watch.run, self._circuits.run, waits.run
        adapting = [] if self._adapting is None else [self._adapting.run]
        claims = self._lease.run, self._doorbell.listen, self._committer.watch, self.intake.run
        parts = (*claims, *models, *adapting, *telling)
        self._greenlets = [gevent.spawn(part) for part in parts]
        self._greenlets.append(gevent.spawn(self._heartbeat.run, vitals.beat))
        for part in self._greenlets:
            part.link_exception(self._lose_part)
        log.info("worker.started", models=list(settings.supported_models), concurrency=slots)

    def perform(self, delivery: Delivery) -> Outcome | None:
        """Run one delivery to its outcome, hand that in and return it; a greenlet that is killed hands in nothing."""
        if not self._incarnation.is_trusted():
            self.intake.give_back(delivery)  # By the time it ran, it might be another's.
            return None
        with self._runs.of(delivery.tag):
            outcome = generate(delivery, self._ports)
            self.intake.finish(delivery, outcome)
        return outcome

    def stop(self) -> bool:
        """Take no more jobs; asked again, let running ones end no longer. May be called from a signal handler.

        Returns whether this was the first time.
        """
        first = not self._draining
        self._draining = True
        if first:
            self._stopped_at_ms = self._clock.monotonic_ms()
        else:
            self._hurried.set()
        self.intake.stop_claiming()
        self._heartbeat.beat_soon()
        return first

    def drain(self, seconds: float) -> None:
        """Let running jobs end for ``seconds`` since the stop was asked for, put the others back, and leave."""
        if not self._draining:
            self.stop()
        idle = self.intake.idle()
        passed_seconds = (self._clock.monotonic_ms() - self._stopped_at_ms) / 1000  # Celery's own steps stop before us.
        gevent.wait([idle, self._hurried], timeout=max(0.0, seconds - passed_seconds), count=1)
        if not idle.is_set():
            held = self.intake.held()
            for delivery in held:
                is_running = delivery.tag in self._runs
                self.intake.give_back(delivery, drained(delivery, self.settings.worker_id) if is_running else None)
            self._runs.kill()
            log.warning("worker.gave_jobs_back", jobs=len(held))
            if not self.intake.idle().wait(_LAST_COMMIT_SECONDS):
                log.error("worker.left_claims", reason="Redis does not answer")
        self._close()

    def _close(self) -> None:
        self._recovery.close()
        gevent.killall(self._greenlets)
        self._doorbell.close()
        self._inference.close()
        try:
            self._lease.leave()
            self._heartbeat.leave()
        except RedisUnavailable:
            log.warning("worker.left_keys")
        self._telemetry.close()
        log.info("worker.stopped")

    def _make_intake(self) -> Intake:
        settings, link, shares = self.settings, self._telemetry.link(), Shares(kept=self.settings.gpu_pool.kept_slots)
        ledger = Ledger.on(link, self.keys, ledger_terms(settings), lambda: self._incarnation.name)
        self._committer = committer = Committer(
            link, ledger, self._doorbell, self._redis_clock, gevent.sleep, on_connected=lambda: self._ring(None)
        )
        reception = Reception.of(self._ports, self.keys, self._clock, self._redis_clock)
        return Intake(
            committer=self._telemetry.committer(committer),
            lookout=Lookout(self._circuits.admits, committer.is_told_of_pushes, shares),
            reception=reception,
            gate=Observer(self._circuits, self._adapting),
            journal=self._journal,
            clock=self._clock,
            redis_clock=self._redis_clock,
            keys=self.keys,
            worker_id=settings.worker_id,
            is_trusted=self._incarnation.is_trusted,
            leftovers=Leftovers(lambda: self._incarnation.name, self._gate.has_died),
        )

    def _lose_part(self, part: "Loop") -> None:
        """Take the worker along with a loop that ended by a fault: one that only looks alive would hold its jobs for ever."""
        log.critical("worker.lost_a_part", part=part.name, exception=type(part.exception).__name__)
        self.lost_a_part = True
        os.kill(os.getpid(), signal.SIGTERM)

    def _abandon(self) -> None:
        """Stop what runs for a lost lease. What came in while this process stood still is still heard: the ledger wants it."""
        self.intake.forget()
        self._runs.break_off_after(_LATE_ANSWER_SECONDS)

    def _ring(self, models: frozenset[str] | None) -> None:
        self.intake.ring(models)

    def _changed(self, keys: frozenset[str] | None) -> None:
        self._circuits.sync.changed(keys)
        self._heartbeat.changed(keys)
        if keys is None or any(self.keys.is_news(key) for key in keys):
            self.intake.wake()

    def _looked_at(self, model: str, error: JobError | None) -> None:
        self._circuits.looked_at(model, error)
        if isinstance(error, ServerAway):
            self.intake.leftovers.server_is_away()

    def _standing_changed(self) -> None:
        self._recovery.look_again()
        self.intake.leftovers.models_changed()
        self.intake.wake()
        self._heartbeat.beat_soon()

    def _load(self) -> Load:
        held = self.intake.held()
        return Load(
            len(held),
            self.intake.slots,
            self._redis_clock.now(),
            draining=self._draining,
            consuming=self._clock.monotonic_ms() - self.intake.exchanged_ms < _STOOD_STILL_MS,
            by_model=Counter(delivery.queue_model for delivery in held),
        )
