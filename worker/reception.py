"""From a claim to a delivery: what its bytes are, and whether it needs to be run at all. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from tasks.delivery import DeadLetter, Delivery, Outcome, Standing
from tasks.fingerprint import fingerprint_of
from tasks.generate import Clock, Ports, end_unstarted
from tasks.reading import NotAJob
from worker.clock import RedisClock
from worker.envelope import Readable, read_envelope
from worker.exchange import Claim, Known, Open
from worker.keys import Keys


@dataclass(frozen=True, slots=True)
class Received:
    """A delivery, with what is to be done first: ask the ledger about it (``opens``), or end it as it is (``outcome``)."""

    delivery: Delivery
    opens: Open | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Reception:
    """Receives claims. ``end_unstarted`` gives the outcome of a job that ends without an inference, None for one that is to run."""

    keys: Keys
    clock: Clock
    redis_clock: RedisClock
    max_job_bytes: int
    end_unstarted: Callable[[Delivery], Outcome | None]

    @classmethod
    def of(cls, ports: Ports, keys: Keys, clock: Clock, redis_clock: RedisClock) -> Self:
        """Return what receives claims of jobs that are run with these ports."""
        return cls(keys, clock, redis_clock, ports.max_job_bytes, lambda delivery: end_unstarted(delivery, ports))

    def receive(self, claim: Claim) -> Received:
        """Return what a claim is."""
        known = claim.known
        delivery = Delivery(
            tag=claim.tag,
            queue_model=self.keys.model_of(claim.queue),
            raw=claim.raw,
            claimed_at_ms=claim.claimed_ms,
            received_ms=self.clock.monotonic_ms() - max(0, self.redis_clock.now_ms() - claim.claimed_ms),
            job_id=claim.job_id,
            standing=known.standing,
            rival=self._rival(known),
            alone=known.alone,
            attempts=known.attempts,
            holds=known.holds,
        )
        outcome = self.end_unstarted(delivery)  # Before its bytes are read: they may be what kills.
        if claim.job_id is not None or outcome is not None:
            return Received(delivery, outcome=outcome)
        match read_envelope(claim.raw, self.max_job_bytes):
            case Readable() as job:
                readable = replace(delivery, raw=job.raw, job_id=job.job_id)
                return Received(readable, opens=_opens(readable, job))
            case NotAJob(reason):
                return Received(delivery, outcome=DeadLetter(reason))
            case None:
                return Received(delivery)

    def opened(self, delivery: Delivery, known: Known) -> Received:
        """Return the same for a delivery that the ledger was asked about."""
        complete = replace(
            delivery,
            standing=known.standing,
            rival=self._rival(known),
            alone=known.alone,
            attempts=known.attempts,
            holds=known.holds,
        )
        return Received(complete, outcome=self.end_unstarted(complete))

    def _rival(self, known: Known) -> str | None:
        if known.standing is not Standing.HELD:
            return known.rival.decode() or None
        other = read_envelope(known.rival, self.max_job_bytes)
        return fingerprint_of(other.raw if isinstance(other, Readable) else known.rival)


def _opens(delivery: Delivery, job: Readable) -> Open:
    model, times = delivery.queue_model, (job.expires_ms, job.enqueued_ms)
    return Open(delivery.tag, job.job_id, job.fingerprint, *times, model, job.prompt_bytes, job.max_tokens)
