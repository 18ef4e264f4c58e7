"""The generate task: what doing a job means, with the Protocols it needs.

read → has it expired? → infer → settle, or decide what follows from the failure. Every path ends in an outcome; whoever
delivered the job applies it, and only then is the job out of its claim.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tasks import rfc3339
from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Retry, Return, Settlement, Standing
from tasks.endings import Common, computed, failed, made_a_failure
from tasks.errors import DeliveryLimitExceeded, ExceedsPoolLimit, InternalError, JobCancelled, JobError, JobExpired
from tasks.job import GenerateJob
from tasks.reading import DeadLetterReason, JobIdentity, Limits, NotAJob, RejectedJob, read_job
from tasks.result import Attempt, GenerateResult, Timings
from tasks.retry import GiveBack, RetryPolicy, TryAgain, decide
from tasks.tensor_limits import TensorLimits
from tasks.tensor_result import TensorGeneration
from tasks.tensors import Job, TensorJob
from tasks.usage import Usage


@dataclass(frozen=True, slots=True)
class Generation:
    """What an inference gave: exactly one text, and the true counts."""

    text: str
    usage: Usage
    finish_reason: str | None
    model_version: str | None


class Inference(Protocol):
    """Runs a job on the model behind its public name."""

    def infer(self, job: GenerateJob, request_id: str) -> Generation:
        """Return the generation, or raise a JobError. Takes no longer than the model's ``timeout_seconds``."""
        ...

    def infer_tensors(self, job: TensorJob, request_id: str) -> TensorGeneration:
        """Do the same for a tensor job."""
        ...


class Clock(Protocol):
    """Time that only moves forward, for durations within this process."""

    def monotonic_ms(self) -> float:
        """Return milliseconds since some fixed moment."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What the task needs of the process that runs it; ``limits`` is by public name and holds every declared model."""

    worker_id: str
    inference: Inference
    clock: Clock
    draw: Callable[[], float]
    limits: Mapping[str, Limits]
    retry: RetryPolicy
    max_job_bytes: int
    max_deliveries: int
    """A job that was lost with its worker so often, the last time alone, is the cause."""


def generate(delivery: Delivery, ports: Ports) -> Outcome:
    """Run one delivered job to an outcome. Raises nothing but what ends the process or this greenlet."""
    if _exhausted(delivery, ports) and delivery.job_id is None:
        return DeadLetter(DeadLetterReason.DELIVERY_LIMIT_EXCEEDED)  # Not even read: that may be what kills.
    read = read_job(
        delivery.raw,
        queue_model=delivery.queue_model,
        limits=ports.limits.get(delivery.queue_model),
        max_job_bytes=ports.max_job_bytes,
    )
    if isinstance(read, NotAJob):
        return DeadLetter(read.reason)
    if delivery.standing in {Standing.SETTLED, Standing.HELD, Standing.PRECEDED}:
        return _second(delivery, read.identity)
    run = _Run(delivery, read.identity, ports)
    if isinstance(read, RejectedJob):
        return run.failed_before_the_start(read.error)
    error = _ended(delivery, ports)
    return run.inferred(read.job) if error is None else run.failed_before_the_start(error)


def _second(delivery: Delivery, identity: JobIdentity) -> Outcome:
    if delivery.rival == identity.fingerprint:
        return Duplicate(identity)
    return DeadLetter(DeadLetterReason.JOB_ID_CONFLICT)


def _ended(delivery: Delivery, ports: Ports) -> JobError | None:
    if delivery.standing is Standing.CANCELLED:
        return JobCancelled()
    if _exhausted(delivery, ports):
        return DeliveryLimitExceeded()
    if delivery.standing is Standing.EXCEEDS:
        return ExceedsPoolLimit()
    return JobExpired() if delivery.standing is Standing.EXPIRED else None


def end_unstarted(delivery: Delivery, ports: Ports) -> Outcome | None:
    """Return the outcome of a delivery that ends without an inference, whatever is in it; None for one that is to be run."""
    ended = delivery.standing is not Standing.TO_RUN or _exhausted(delivery, ports)
    return generate(delivery, ports) if ended else None


def _exhausted(delivery: Delivery, ports: Ports) -> bool:
    return delivery.alone and delivery.times_lost >= ports.max_deliveries


def cancelled(settlement: Settlement) -> Settlement:
    """Return the end of a job that was cancelled while it ran: with the usage that was spent, without its text."""
    error = JobCancelled(usage=settlement.result.usage)
    return Settlement(settlement.identity, made_a_failure(settlement.result, error), error)


@dataclass(frozen=True, slots=True)
class _Run:
    """One delivery on its way to an outcome."""

    delivery: Delivery
    identity: JobIdentity
    ports: Ports

    def inferred(self, job: Job) -> Outcome:
        started_ms = self._now_ms()
        begun = self.ports.clock.monotonic_ms()
        ended = self._infer(job)
        inference_ms = round(self.ports.clock.monotonic_ms() - begun)
        attempt = self._attempt(started_ms, inference_ms, ended)
        timings = self._timings(job, started_ms, inference_ms)
        if isinstance(ended, JobError):
            return self._failed(ended, attempt, timings)
        return self._succeeded(ended, attempt, timings)

    def _infer(self, job: Job) -> Generation | TensorGeneration | JobError:
        request_id = f"{job.job_id}/{self.delivery.tag}"
        try:
            if isinstance(job, TensorJob):
                return self.ports.inference.infer_tensors(job, request_id)
            return self.ports.inference.infer(job, request_id)
        except JobError as failure:
            return failure
        except Exception as fault:  # noqa: BLE001 - the task boundary: a fault of ours must end as a coded error, not a lost job
            error = InternalError()
            error.__cause__ = fault
            return error

    def failed_before_the_start(self, error: JobError) -> Settlement:
        timings = Timings(queued_ms=None, pool_wait_ms=None, inference_ms=None)
        return self._settlement(error, list(self.delivery.attempts), timings)

    def _failed(self, error: JobError, attempt: Attempt, timings: Timings) -> Outcome:
        attempts = [*self.delivery.attempts, attempt] if error.may_have_run else list(self.delivery.attempts)
        match decide(error, attempts, self.ports.retry, self.ports.draw, alone=self.delivery.alone):
            case TryAgain(delay_ms):
                return Retry(self.identity, attempt, delay_ms, error)
            case GiveBack():
                return Return(self.identity, error)
            case _:
                return self._settlement(error, attempts, timings)

    def _succeeded(self, generation: Generation | TensorGeneration, attempt: Attempt, timings: Timings) -> Settlement:
        common = self._common([*self.delivery.attempts, attempt], timings)
        if isinstance(generation, TensorGeneration):
            return Settlement(self.identity, computed(common, generation), None)
        result = GenerateResult(
            **common,
            status="succeeded",
            text=generation.text,
            finish_reason=generation.finish_reason,
            usage=generation.usage,
            error=None,
            model_version=generation.model_version,
        )
        return Settlement(self.identity, result, None)

    def _settlement(self, error: JobError, attempts: list[Attempt], timings: Timings) -> Settlement:
        takes_tensors = isinstance(self.ports.limits.get(self.delivery.queue_model), TensorLimits)
        spent = attempts[-1].usage if attempts else None
        result = failed(self._common(attempts, timings), error, spent, takes_tensors=takes_tensors)
        return Settlement(self.identity, result, error)

    def _common(self, attempts: list[Attempt], timings: Timings) -> Common:
        return {
            "version": 1,
            "job_id": self.identity.job_id,
            "model": self.identity.model,
            "worker_id": self.ports.worker_id,
            "attempts": attempts,
            "timings": timings,
            "finished_at": rfc3339.from_ms(self._now_ms()),
            "tenant": self.identity.tenant,
            "batch_id": self.identity.batch_id,
            "custom_id": self.identity.custom_id,
            "metadata": self.identity.metadata,
        }

    def _attempt(self, started_ms: int, inference_ms: int, ended: Generation | TensorGeneration | JobError) -> Attempt:
        return Attempt(
            worker_id=self.ports.worker_id,
            started_at=rfc3339.from_ms(started_ms),
            code=ended.code if isinstance(ended, JobError) else None,
            inference_ms=inference_ms,
            usage=ended.usage,
        )

    def _timings(self, job: Job, started_ms: int, inference_ms: int) -> Timings:
        claimed_ms = self.delivery.claimed_at_ms
        queued_ms = max(0, claimed_ms - rfc3339.to_ms(job.enqueued_at)) if job.enqueued_at else None
        return Timings(queued_ms=queued_ms, pool_wait_ms=max(0, started_ms - claimed_ms), inference_ms=inference_ms)

    def _now_ms(self) -> int:
        return round(self.delivery.claimed_at_ms + self.ports.clock.monotonic_ms() - self.delivery.received_ms)
