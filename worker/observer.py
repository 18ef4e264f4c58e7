"""Tells circuits, and an adaptive pool, how a job's inference ended."""

from dataclasses import dataclass

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Settlement
from worker.adapting import Adapting
from worker.circuits import Circuits
from worker.observation import Observation
from worker.outcomes import last_attempt


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
        attempt = None if _ended_unstarted(outcome) else last_attempt(outcome)
        inference_ms = None if attempt is None else attempt.inference_ms
        tenant = outcome.identity.tenant
        model, claimed_at_ms = delivery.queue_model, delivery.claimed_at_ms
        self.circuits.observe(Observation(model, claimed_at_ms, outcome.error, tenant, inference_ms))


def _ended_unstarted(outcome: Outcome) -> bool:
    """Tell whether a job was settled without a run: its last attempt is an earlier one's."""
    return isinstance(outcome, Settlement) and outcome.error is not None and not outcome.error.may_have_run
