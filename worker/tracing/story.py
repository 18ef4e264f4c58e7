"""What a run of a job was, from its claim to its outcome, as spans will tell it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tasks.delivery import Delivery, Outcome, Retry, Return, Settlement
from tasks.errors import JobError
from tasks.result import Attempt
from tasks.usage import Usage
from worker.outcomes import SETTLED, SETTLED_BEFORE, last_attempt
from worker.tracing.identity import Context, run_id_of

Attribute = str | int

RUN: Final = "speedinfer.generate"
CLAIM: Final = "claim"
POOL_WAIT: Final = "pool wait"
INFERENCE: Final = "inference"
SETTLE: Final = "settle"
"""The names of the spans."""


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a run; times are Redis' unix ms. ``span_id`` is None where nobody was told it; ``error`` is a code."""

    name: str
    begun_ms: float
    ended_ms: float
    span_id: int | None = None
    error: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """An earlier run of the same job, and what its attempt ended with."""

    span_id: int
    code: str | None


@dataclass(frozen=True, slots=True)
class Story:
    """A run. ``parent`` is the span that the job came from, None where it said none."""

    trace_id: int
    parent: Context | None
    whole: Step
    steps: tuple[Step, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """When what happened, on this process' monotonic clock; None is not at all."""

    asked_ms: float
    answered_ms: float
    inference_begun_ms: float | None
    inference_ended_ms: float | None
    committed_ms: float


def tell(
    delivery: Delivery, outcome: Outcome | None, word: int, times: Times, inference: Context, parent: Context | None
) -> Story:
    """Return the story of a run; ``inference`` is the span whose context the runtime was given."""
    error, attempt = _error(outcome), _own_attempt(delivery, outcome)
    code = None if error is None else str(error.code)
    was_begun = times.inference_begun_ms is not None
    has_place = was_begun and not isinstance(outcome, Return)
    job_id = delivery.job_id or ""
    whole = Step(
        RUN,
        _redis_ms(delivery, times.asked_ms),
        _redis_ms(delivery, times.committed_ms),
        run_id_of(job_id, len(delivery.attempts)) if has_place else None,
        code,
        {
            "speedinfer.job_id": job_id,
            "speedinfer.model": delivery.queue_model,
            "speedinfer.attempt": len(delivery.attempts) + 1,
            "speedinfer.outcome": _word(outcome, word),
            **({} if code is None else {"speedinfer.code": code}),
            **_spent(attempt),
        },
    )
    links = tuple(
        Link(run_id_of(job_id, place), None if earlier.code is None else str(earlier.code))
        for place, earlier in enumerate(delivery.attempts)
    )
    return Story(inference.trace_id, parent, whole, tuple(_steps(delivery, times, inference, attempt)), links)


def _steps(delivery: Delivery, times: Times, inference: Context, attempt: Attempt | None) -> Iterator[Step]:
    def step(name: str, begun_ms: float, ended_ms: float) -> Step:
        return Step(name, _redis_ms(delivery, begun_ms), _redis_ms(delivery, ended_ms))

    yield step(CLAIM, times.asked_ms, times.answered_ms)
    over_ms = times.answered_ms
    if times.inference_begun_ms is not None:
        yield step(POOL_WAIT, times.answered_ms, times.inference_begun_ms)
        over_ms = times.committed_ms if times.inference_ended_ms is None else times.inference_ended_ms
        yield Step(
            INFERENCE,
            _redis_ms(delivery, times.inference_begun_ms),
            _redis_ms(delivery, over_ms),
            inference.span_id,
            None if attempt is None or attempt.code is None else str(attempt.code),
            _spent(attempt),
        )
    yield step(SETTLE, over_ms, times.committed_ms)


def _redis_ms(delivery: Delivery, monotonic_ms: float) -> float:
    return delivery.claimed_at_ms + monotonic_ms - delivery.received_ms


def _error(outcome: Outcome | None) -> JobError | None:
    return outcome.error if isinstance(outcome, (Settlement, Retry, Return)) else None


def _own_attempt(delivery: Delivery, outcome: Outcome | None) -> Attempt | None:
    if isinstance(outcome, Settlement) and len(outcome.result.attempts) <= len(delivery.attempts):
        return None  # The last one there is an earlier run's.
    return last_attempt(outcome)


def _word(outcome: Outcome | None, word: int) -> str:
    match outcome:
        case Settlement() if word == SETTLED_BEFORE:
            return "settled before"
        case Settlement() | Retry() if word != SETTLED:
            return "lost"
        case Settlement():
            return "settled"
        case Retry():
            return "retried"
        case _:
            return "returned"


def _spent(attempt: Attempt | None) -> Mapping[str, Attribute]:
    """Return the tokens by the names that OpenTelemetry has for them."""
    if attempt is None or not isinstance(attempt.usage, Usage):
        return {}
    return {
        "gen_ai.usage.input_tokens": attempt.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": attempt.usage.completion_tokens,
    }
