"""Tells circuits, and an adaptive pool, how a job's inference ended."""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Settlement
from tasks.errors import InternalError
from worker.adapting import Adapting
from worker.circuits import Circuits
from worker.observation import Observation
from worker.outcomes import last_attempt

_FRAMES: Final = 4

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Observer:
    """Makes an observation of each outcome that says something of its model."""

    circuits: Circuits
    adapting: Adapting | None = None

    def observe(self, delivery: Delivery, outcome: Outcome) -> None:
        """Learn how a delivery ended."""
        if isinstance(outcome, (DeadLetter, Duplicate)):
            return
        if self.adapting is not None:
            self.adapting.observe(delivery, outcome)
        if isinstance(outcome.error, InternalError):
            _tell_of_the_fault(outcome.identity.job_id, delivery.queue_model, outcome.error)
        attempt = None if _ended_unstarted(outcome) else last_attempt(outcome)
        inference_ms = None if attempt is None else attempt.inference_ms
        tenant = outcome.identity.tenant
        model, claimed_at_ms = delivery.queue_model, delivery.claimed_at_ms
        self.circuits.observe(Observation(model, claimed_at_ms, outcome.error, tenant, inference_ms))


def _tell_of_the_fault(job_id: str, model: str, error: InternalError) -> None:
    """Log what kind of exception it was and where it was raised: its words may be the customer's."""
    cause = error.__cause__
    frames = traceback.extract_tb(cause.__traceback__)[-_FRAMES:] if cause is not None else ()
    log.error(
        "job.hit_a_fault",
        job_id=job_id,
        model=model,
        exception=type(cause).__name__,
        at=[f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
    )


def _ended_unstarted(outcome: Outcome) -> bool:
    """Tell whether a job was settled without a run: its last attempt is an earlier one's."""
    return isinstance(outcome, Settlement) and outcome.error is not None and not outcome.error.may_have_run
