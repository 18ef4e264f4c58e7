"""Tells those who have to know how a job's inference ended."""

from dataclasses import dataclass
from typing import Protocol

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome
from tasks.errors import JobError


class Gate(Protocol):
    """Learns how inferences end."""

    def observe(self, model: str, error: JobError | None) -> None:
        """Learn how an inference ended."""
        ...


@dataclass(frozen=True, slots=True)
class Observer:
    """Tells the gate."""

    gate: Gate

    def observe(self, delivery: Delivery, outcome: Outcome) -> None:
        """Learn how a delivery ended."""
        if not isinstance(outcome, (DeadLetter, Duplicate)):
            self.gate.observe(delivery.queue_model, outcome.error)
