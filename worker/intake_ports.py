"""What the intake needs of others: who observes outcomes, who carries exchanges out, who keeps count."""

from typing import Protocol

from tasks.delivery import Delivery, Outcome
from worker.exchange import Exchange, ExchangeReply


class Gate(Protocol):
    """Learns how inferences end."""

    def observe(self, delivery: Delivery, outcome: Outcome) -> None:
        """Learn how a delivery ended."""
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
