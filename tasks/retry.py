"""What to do about a failed attempt: one pure function of the error and the attempts so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from tasks.errors import Again, JobError, ModelCrashed
from tasks.result import Attempt, AttemptCode


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a job is tried, and how long it waits between: full jitter below a doubling bound."""

    max_attempts: int = 3
    base_seconds: float = 0.5
    max_seconds: float = 30.0

    def delay_ms(self, attempt: int, draw: Callable[[], float]) -> int:
        """Return the wait after ``attempt`` (from 1) in milliseconds; ``draw`` gives a number in [0, 1)."""
        bound = min(self.max_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 62))
        return int(1000 * bound * draw())


@dataclass(frozen=True, slots=True)
class Settle:
    """This was its end."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """It waits in Redis for ``delay_ms``, then any worker may take it."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """It goes back to the front of its queue, uncharged, until the model has recovered."""


def decide(
    error: JobError, attempts: Sequence[Attempt], policy: RetryPolicy, draw: Callable[[], float], *, alone: bool = True
) -> Settle | TryAgain | GiveBack:
    """Return what follows from ``error``; ``attempts`` are all so far, the failed one last.

    ``alone`` tells whether this job was the only one in its worker that had seen crashes before. A job whose model's process died
    is not given up for it before that: the culprit may have been a neighbour.
    """
    # What a worker's end did to it is no attempt of the job's own.
    own = [attempt for attempt in attempts if not isinstance(attempt.code, AttemptCode)]
    match error.again:
        case Again.NEVER:
            return Settle()
        case Again.WHEN_RECOVERED:
            return GiveBack()
        case Again.ONCE:
            most = min(policy.max_attempts, 1 + _others(error, own) + 1)
        case Again.UP_TO_MAX_ATTEMPTS:
            most = policy.max_attempts
        case _:
            assert_never(error.again)
    if len(own) >= most and (alone or not isinstance(error, ModelCrashed)):
        return Settle()
    return TryAgain(policy.delay_ms(max(1, len(own)), draw))


def _others(error: JobError, attempts: Sequence[Attempt]) -> int:
    """Count the attempts that failed of something else: they are not this code's one more try."""
    return sum(1 for attempt in attempts if attempt.code != error.code)
