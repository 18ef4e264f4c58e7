"""What a circuit knows of calls: the failures in a row and the last calls of a window, with whose content may have caused them. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from tasks.errors import ErrorCode

GOOD: Final = "+"
BAD: Final = "-"
"""A failure that counts whoever sent the job; one that its content may have caused has the tenant's short name instead."""


@dataclass(frozen=True, slots=True)
class Call:
    """How an inference ended, or ``times`` of them in the same way. Times are Redis' unix milliseconds.

    ``code`` is None for a success, which may have been ``slow``. ``tenant`` is a short name without spaces, given only where the
    content of the job may be the cause. ``text_digest`` is what all failures of one exception of the model have in common.
    """

    started_ms: int
    ended_ms: int
    code: ErrorCode | None = None
    counts: bool = False
    opens_at_once: bool = False
    tenant: str | None = None
    slow: bool = False
    text_digest: str | None = None
    times: int = 1

    @property
    def is_bad(self) -> bool:
        """Whether it speaks against the model."""
        return self.counts or self.slow

    @property
    def is_plain_success(self) -> bool:
        """Whether nothing at all was wrong with it."""
        return self.code is None and not self.slow

    @property
    def is_neutral(self) -> bool:
        """Whether it says nothing of the model: the job or the worker was at fault, or it never ran."""
        return self.code is not None and not self.counts

    @property
    def kind(self) -> str:
        """As what it stands in a window."""
        return (self.tenant or BAD) if self.is_bad else GOOD


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures, and how many of them the content of each tenant may have caused."""

    total: int = 0
    by_tenant: tuple[tuple[str, int], ...] = ()

    def plus(self, kind: str, times: int) -> "Failures":
        """Return these and ``times`` more."""
        if kind == BAD:
            return replace(self, total=self.total + times)
        counts = dict(self.by_tenant)
        counts[kind] = counts.get(kind, 0) + times
        return Failures(self.total + times, tuple(counts.items()))

    @property
    def most_of_one_tenant(self) -> int:
        """How many are left out when those of a single tenant are."""
        return max((count for _, count in self.by_tenant), default=0)

    @property
    def beyond_one_tenant(self) -> int:
        """How many there are whichever tenant's are left out."""
        return self.total - self.most_of_one_tenant


@dataclass(frozen=True, slots=True)
class Window:
    """The last calls, oldest first, as runs of the same kind."""

    runs: tuple[tuple[str, int], ...] = ()

    def plus(self, kind: str, times: int, size: int) -> "Window":
        """Return the last ``size`` calls of these and ``times`` more."""
        runs = list(self.runs)
        if runs and runs[-1][0] == kind:
            times += runs.pop()[1]
        runs.append((kind, min(times, size)))
        surplus = sum(count for _, count in runs) - size
        while surplus > 0:
            oldest, count = runs[0]
            runs[:1] = [(oldest, count - surplus)] if count > surplus else []
            surplus -= count
        return Window(tuple(runs))

    @property
    def calls(self) -> int:
        """How many there are."""
        return sum(count for _, count in self.runs)

    @property
    def failures(self) -> Failures:
        """Those that speak against the model."""
        found = Failures()
        for kind, count in self.runs:
            found = found if kind == GOOD else found.plus(kind, count)
        return found

    def fails(self, rate: float, minimum_calls: int) -> bool:
        """Tell whether such a share of them failed, whichever tenant's failures are left out."""
        failures, calls = self.failures, self.calls
        return all(
            calls - left_out >= minimum_calls and (failures.total - left_out) / (calls - left_out) >= rate
            for left_out in (0, failures.most_of_one_tenant)
        )
