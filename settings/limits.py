"""How much runs at once, when a model is left alone, and when a job is tried again."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from settings.fields import (
    Count,
    FrozenMapping,
    PerMinute,
    PublicName,
    Seconds,
    Section,
    Shown,
    TensorName,
    at_most,
    refuse_if_above,
)


class GpuPool(Section):
    """Limits that workers with the same pool name share."""

    name: Annotated[TensorName | None, Shown(default="`endpoint_id`")] = None
    """Name of the pool."""
    max_concurrency: Annotated[Count, Shown(unit="jobs")] = 32
    """Inferences that run at once, over all workers of the pool."""
    requests_per_minute: Annotated[PerMinute | None, Shown(unit="requests per minute")] = None
    """Inferences started in any sliding minute."""
    tokens_per_minute: Annotated[PerMinute | None, Shown(unit="tokens per minute")] = None
    """Prompt and completion tokens in a minute. A job is granted its prompt's estimate and its `max_tokens`, and pays for what
    it really used."""
    kept_slots: Annotated[
        FrozenMapping[PublicName, Annotated[int, Field(ge=0, le=1_000_000)]],
        Shown(kind="mapping of public name to slots"),
    ] = Field(default={}, validate_default=True)
    """Slots that nobody else may take from a model that had work in the last minute: 1 for each that is not listed. At most
    three quarters of the pool are kept like that."""
    adaptive: bool = False
    """Whether the pool finds its own level below `max_concurrency`: see [adaptive.md](adaptive.md)."""


class Circuit(Section):
    """When a model of an endpoint is left alone, and when it is tried again.

    All workers of the endpoint share what they know of it: see [circuits.md](circuits.md).
    """

    consecutive_failures: Annotated[Count, Shown(unit="calls")] = 5
    """Failures in a row that open the circuit."""
    failure_rate: Annotated[float, Field(gt=0, le=1), Shown(unit="share of calls")] = 0.5
    """Share of failed calls in the window that opens the circuit."""
    window: Annotated[int, Field(ge=1, le=1000), Shown(unit="calls")] = 100
    """How many of the last calls the rate is taken of."""
    minimum_calls: Annotated[Count, Shown(unit="calls", default="20, or `window` if smaller")] = Field(
        default_factory=lambda data: at_most(data, "window", 20)
    )
    """Calls in the window below which no rate is taken. At most `window`."""
    slow_call_seconds: Seconds | None = None
    """An inference that takes longer counts as a failure in the rate, and of a half-open circuit; not among failures in a row."""
    max_open_seconds: Seconds = 300.0
    """The longest that an open circuit waits before it lets calls through."""
    open_seconds: Annotated[Seconds, Shown(default="10, or `max_open_seconds` if smaller")] = Field(
        default_factory=lambda data: at_most(data, "max_open_seconds", 10.0)
    )
    """How long an open circuit waits at first, unless the model is seen to have come back; it doubles, with jitter. At most
    `max_open_seconds`."""
    half_open_calls: Annotated[Count, Shown(unit="calls")] = 3
    """Calls that a half-open circuit lets through at a time, over all workers; so many successes close it."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        refuse_if_above(self, ("minimum_calls", "window"), ("open_seconds", "max_open_seconds"))
        return self


class Retry(Section):
    """How often, and after what wait, a job is tried again that may be."""

    max_attempts: Annotated[int, Field(ge=1, le=100), Shown(unit="attempts")] = 3
    """Attempts of one job that may have reached Triton, the first one included."""
    max_seconds: Seconds = 30.0
    """The longest wait before another attempt."""
    base_seconds: Annotated[Seconds, Shown(default="0.5, or `max_seconds` if smaller")] = Field(
        default_factory=lambda data: at_most(data, "max_seconds", 0.5)
    )
    """Upper bound of the first wait; it doubles with each attempt, and the wait is drawn evenly from 0 to it. At most
    `max_seconds`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        refuse_if_above(self, ("base_seconds", "max_seconds"))
        return self
