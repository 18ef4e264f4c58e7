"""Several who learn what became of jobs, as one."""

from typing import Protocol

from tasks.delivery import Delivery, Outcome


class Journal(Protocol):
    """Learns what was committed, and what became of the jobs of others."""

    def committed(self, delivery: Delivery, outcome: Outcome | None, word: int) -> None:
        """Take one outcome, None for a job put back unstarted, with the script's word for it."""
        ...

    def reaped(self, jobs: int) -> None:
        """Learn that a run of another worker was ended, and so many jobs of it went back."""
        ...


class Journals:
    """Tells each of them, in this order."""

    def __init__(self, *journals: Journal) -> None:
        """Take them."""
        self._journals = journals

    def committed(self, delivery: Delivery, outcome: Outcome | None, word: int) -> None:
        """Tell each of one outcome."""
        for journal in self._journals:
            journal.committed(delivery, outcome, word)

    def reaped(self, jobs: int) -> None:
        """Tell each of a run that was ended."""
        for journal in self._journals:
            journal.reaped(jobs)
