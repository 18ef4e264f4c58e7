"""A claimed job on its way in, and what can become of it."""

from dataclasses import dataclass, field
from enum import StrEnum

from tasks.errors import JobError
from tasks.reading import DeadLetterReason, JobIdentity
from tasks.result import Attempt, AttemptCode
from tasks.tensor_result import Result


class Standing(StrEnum):
    """How a job stands when it is claimed."""

    TO_RUN = ""
    SETTLED = "settled"
    """Its job_id has been settled; the rival is the job that was."""
    HELD = "held"
    """Its job_id is being run; the rival is the job that is."""
    PRECEDED = "preceded"
    """Another job was tried under its job_id and is to be tried again; the rival is that one."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    EXCEEDS = "exceeds"
    """It needs more tokens than its pool ever grants."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A claimed job as the worker got it.

    ``claimed_at_ms`` is Redis' clock at the claim, ``received_ms`` this process' monotonic clock when it learned of it: all times
    in a result are the first plus what passed since on the second, so no host's clock is asked. ``job_id`` is what the ledger
    knows the job by, None for bytes that nobody could read. ``rival`` is the fingerprint of the job that has this one's id.
    ``alone`` says that no other job with crashes behind it runs in this worker meanwhile. ``holds`` is what it was granted to be
    run with, in the ledger's own words; '' is nothing.
    """

    tag: str
    queue_model: str
    raw: bytes = field(repr=False)
    claimed_at_ms: int
    received_ms: float
    job_id: str | None = None
    standing: Standing = Standing.TO_RUN
    rival: str | None = None
    alone: bool = False
    attempts: tuple[Attempt, ...] = ()
    holds: str = ""

    @property
    def times_lost(self) -> int:
        """How often the job was in the hands of a worker that died."""
        return sum(1 for attempt in self.attempts if attempt.code is AttemptCode.WORKER_LOST)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The job has ended; ``error`` is the one in its result."""

    identity: JobIdentity
    result: Result
    error: JobError | None


@dataclass(frozen=True, slots=True)
class Retry:
    """The job waits for ``delay_ms`` in Redis; ``attempt`` is added to its ledger."""

    identity: JobIdentity
    attempt: Attempt
    delay_ms: int
    error: JobError


@dataclass(frozen=True, slots=True)
class Return:
    """The job goes back to the front of its queue, uncharged; its model is out of order here."""

    identity: JobIdentity
    error: JobError


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same job is there a second time: this one is dropped, and counted."""

    identity: JobIdentity


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The bytes cannot become a job."""

    reason: DeadLetterReason


Outcome = Settlement | Retry | Return | Duplicate | DeadLetter
