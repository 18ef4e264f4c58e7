"""What happened to jobs since this worker started, as numbers: the ``Journal`` of the metrics.

Each job's end costs a few additions to plain numbers: no lock, no look-up by label. What belongs to one model is kept together, and every
series is there from the start with 0, since a rate cannot see the first event of a series that appears with it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import Again, ErrorCode, JobError
from tasks.reading import DeadLetterReason
from tasks.result import Attempt
from tasks.usage import Spent, Usage
from worker.metrics import families
from worker.metrics.families import OK, UNSTARTED, Family
from worker.metrics.samples import Sample, Spread
from worker.outcomes import SETTLED, SETTLED_BEFORE

INFERENCE_CODES: Final = tuple(
    code for code in ErrorCode if code.startswith("runtime_") or code is ErrorCode.TRITON_INFERENCE_FAILED
)
"""What an inference can fail of."""


def _kinds(error: type[JobError]) -> Iterator[type[JobError]]:
    yield error
    for kind in error.__subclasses__():
        yield from _kinds(kind)


def codes_tried(*again: Again) -> tuple[ErrorCode, ...]:
    """Return the codes of the errors after which a job is tried again in one of these ways."""
    codes = {kind.code for kind in _kinds(JobError) if hasattr(kind, "code") and kind.again in again}
    return tuple(sorted(codes))


class Histogram:
    """A count of durations by bucket, and their sum."""

    __slots__ = ("_bounds_ms", "_family", "counts", "sum_ms")

    def __init__(self, family: Family) -> None:
        """Start empty."""
        self._family = family
        self._bounds_ms = [round(bound * 1000, 3) for bound in family.bounds]
        self.counts = [0] * (len(self._bounds_ms) + 1)
        self.sum_ms = 0

    def observe_ms(self, duration_ms: int | None) -> None:
        """Count one duration, if it is known."""
        if duration_ms is not None:
            self.counts[bisect_left(self._bounds_ms, duration_ms)] += 1
            self.sum_ms += duration_ms

    def sample(self, *labels: str) -> Sample:
        """Return what was counted so far."""
        return Sample(self._family, labels, Spread(tuple(self.counts), self.sum_ms / 1000))


class ModelCounters:
    """The counters of one model."""

    def __init__(self) -> None:
        """Start every series at 0."""
        self.jobs = dict.fromkeys([OK, *ErrorCode], 0)
        self.tokens = {"prompt": 0, "completion": 0}
        self.wasted_tokens = 0
        self.retries = dict.fromkeys(codes_tried(Again.ONCE, Again.UP_TO_MAX_ATTEMPTS), 0)
        self.claims_returned = dict.fromkeys([UNSTARTED, *codes_tried(Again.WHEN_RECOVERED)], 0)
        self.claims_lost = 0
        self.duplicates = {"job": 0, "settlement": 0}
        self.dead_letters = dict.fromkeys(DeadLetterReason, 0)
        self.inference_errors = dict.fromkeys(INFERENCE_CODES, 0)
        self.queue = Histogram(families.QUEUE_SECONDS)
        self.pool_wait = Histogram(families.POOL_WAIT_SECONDS)
        self.inference = Histogram(families.INFERENCE_SECONDS)

    def samples(self, model: str) -> Iterator[Sample]:
        """Return all of it."""
        for family, by_label in (
            (families.JOBS, self.jobs),
            (families.TOKENS, self.tokens),
            (families.RETRIES, self.retries),
            (families.CLAIMS_RETURNED, self.claims_returned),
            (families.DUPLICATES, self.duplicates),
            (families.DEAD_LETTERS, self.dead_letters),
            (families.INFERENCE_ERRORS, self.inference_errors),
        ):
            for label, count in by_label.items():
                yield Sample(family, (model, label), count)
        yield Sample(families.WASTED_TOKENS, (model,), self.wasted_tokens)
        yield Sample(families.CLAIMS_LOST, (model,), self.claims_lost)
        for histogram in (self.queue, self.pool_wait, self.inference):
            yield histogram.sample(model)


class Counters:
    """The counters of one worker."""

    def __init__(self, models: Iterable[str]) -> None:
        """Count for these models and no other."""
        self._models = {model: ModelCounters() for model in models}
        self.redis_errors = {"unavailable": 0, "refused": 0}
        self._declared_dead = self._reaped = 0

    def committed(self, delivery: Delivery, outcome: Outcome | None, word: int) -> None:
        """Count one outcome, None for a job put back unstarted, with the script's word for it."""
        its = self._models.get(delivery.queue_model)
        if its is None:
            return  # No queue of another model is claimed from; were it, its name would be no label.
        match outcome:
            case Settlement(_, result, error):
                attempt = result.attempts[-1] if len(result.attempts) > len(delivery.attempts) else None
                _attempted(its, attempt, error)
                if word == SETTLED:
                    its.jobs[OK if error is None else error.code] += 1
                    _spent(its, result.usage)
                    its.queue.observe_ms(result.timings.queued_ms)
                    its.pool_wait.observe_ms(result.timings.pool_wait_ms)
                else:
                    _wasted(its, attempt)
                    _too_late(its, word)
            case Retry(_, attempt, _, error):
                _attempted(its, attempt, error)
                _wasted(its, attempt)
                if word == SETTLED:
                    its.retries[error.code] = its.retries.get(error.code, 0) + 1
                else:
                    its.claims_lost += 1
            case Return(_, error):
                _attempted(its, None, error)
                its.claims_returned[error.code] = its.claims_returned.get(error.code, 0) + 1
            case Duplicate():
                its.duplicates["job"] += 1
            case DeadLetter(reason):
                its.dead_letters[reason] += 1
            case None:
                its.claims_returned[UNSTARTED] += 1

    def reaped(self, jobs: int) -> None:
        """Count a run that was declared dead, and its jobs that went back to their queues."""
        self._declared_dead += 1
        self._reaped += jobs

    def samples(self) -> Iterator[Sample]:
        """Return all of it."""
        for model, its in self._models.items():
            yield from its.samples(model)
        yield Sample(families.WORKERS_DECLARED_DEAD, (), self._declared_dead)
        yield Sample(families.CLAIMS_REAPED, (), self._reaped)
        for kind, count in self.redis_errors.items():
            yield Sample(families.REDIS_ERRORS, (kind,), count)


def _attempted(its: ModelCounters, attempt: Attempt | None, error: JobError | None) -> None:
    if attempt is not None:
        its.inference.observe_ms(attempt.inference_ms)
    if error is not None and error.code in its.inference_errors:
        its.inference_errors[error.code] += 1


def _spent(its: ModelCounters, usage: Spent | None) -> None:
    if isinstance(usage, Usage):
        its.tokens["prompt"] += usage.prompt_tokens
        its.tokens["completion"] += usage.completion_tokens


def _wasted(its: ModelCounters, attempt: Attempt | None) -> None:
    if attempt is not None and isinstance(attempt.usage, Usage):
        its.wasted_tokens += attempt.usage.total_tokens


def _too_late(its: ModelCounters, word: int) -> None:
    if word == SETTLED_BEFORE:
        its.duplicates["settlement"] += 1
    else:
        its.claims_lost += 1
