"""Which models this worker takes jobs of. A model that is out of order here is paused, so its jobs stay in their queue.

A pause ends only after the model's readiness and its contract were looked at and passed. Pauses grow while a model keeps failing,
with jitter, so that workers do not come back as one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import structlog

from tasks.errors import Again, ErrorCode, JobError, ModelCrashed, ModelNotReady, QueueFull
from tasks.generate import Clock

FIRST_PAUSE_MS: Final = 250.0
LONGEST_PAUSE_MS: Final = 5_000.0
LONGEST_CRASH_PAUSE_MS: Final = 60_000.0
"""A look cannot tell whether a dead model's process is back, so each pause ends with a job at stake."""

log = structlog.get_logger()


class Standing(StrEnum):
    """How a model stands with this worker."""

    STARTING = "starting"
    """It was not looked at yet."""
    READY = "ready"
    PAUSED = "paused"


class Cause(StrEnum):
    """What is behind a pause for ``runtime_unavailable``, where it is known: operators mend each elsewhere."""

    NOT_READY = "not_ready"
    QUEUE_FULL = "queue_full"


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model's standing; ``look_at_ms`` (monotonic) is when it is looked at next, ``strikes`` the failures in a row."""

    standing: Standing = Standing.STARTING
    reason: ErrorCode | None = None
    strikes: int = 0
    look_at_ms: float = 0.0
    cause: Cause | None = None


def cause_of(error: JobError) -> Cause | None:
    """Return what is behind an error, where its code does not say it."""
    match error:
        case ModelNotReady():
            return Cause.NOT_READY
        case QueueFull():
            return Cause.QUEUE_FULL
    return None


def paused(state: ModelState, reason: ErrorCode, now_ms: float, draw: Callable[[], float]) -> ModelState:
    """Return the state after one more failure: half to all of a doubling pause."""
    longest = LONGEST_CRASH_PAUSE_MS if reason is ErrorCode.RUNTIME_MODEL_CRASHED else LONGEST_PAUSE_MS
    bound = min(longest, FIRST_PAUSE_MS * 2.0 ** min(state.strikes, 16))
    return ModelState(Standing.PAUSED, reason, state.strikes + 1, now_ms + bound * (0.5 + draw() / 2))


def _is_out_of_order(error: JobError) -> bool:
    """Tell whether an error is the model's state. A dead model process goes on calling itself ready, and fails whoever is sent."""
    return error.again is Again.WHEN_RECOVERED or isinstance(error, ModelCrashed)


class ModelGate:
    """The standing of every model of this worker."""

    def __init__(
        self, models: Iterable[str], clock: Clock, draw: Callable[[], float], on_change: Callable[[], None]
    ) -> None:
        """Start with every model unlooked at, and so shut; ``on_change`` is called after each change of standing."""
        self._states = {model: ModelState() for model in models}
        self._clock = clock
        self._draw = draw
        self._on_change = on_change

    def is_open(self, model: str) -> bool:
        """Tell whether jobs of the model may be claimed now."""
        return self._states[model].standing is Standing.READY

    def states(self) -> Mapping[str, ModelState]:
        """Return all standings by public name."""
        return self._states

    def observe(self, model: str, error: JobError | None) -> None:
        """Learn how an inference ended."""
        state = self._states.get(model)
        if state is None:
            return
        if error is not None and _is_out_of_order(error):
            self._pause(model, state, error)
        elif error is None and state.strikes and state.standing is Standing.READY:
            self._states[model] = replace(state, strikes=0)

    def due(self) -> list[str]:
        """Return the models that are to be looked at now."""
        now_ms = self._clock.monotonic_ms()
        return [
            model
            for model, state in self._states.items()
            if state.standing is not Standing.READY and state.look_at_ms <= now_ms
        ]

    def next_look_ms(self, apart_from: Collection[str] = ()) -> float | None:
        """Return how long until a model, ``apart_from`` some, is to be looked at, None where none is."""
        looks = [
            state.look_at_ms
            for model, state in self._states.items()
            if state.standing is not Standing.READY and model not in apart_from
        ]
        return max(0.0, min(looks) - self._clock.monotonic_ms()) if looks else None

    def looked_at(self, model: str, error: JobError | None) -> None:
        """Learn what a look at the model's readiness and contract gave."""
        state = self._states[model]
        if error is not None:
            self._pause(model, state, error)
        elif state.standing is not Standing.READY:
            self._states[model] = ModelState(Standing.READY, strikes=state.strikes)
            log.info("model.opened", model=model)
            self._on_change()

    def _pause(self, model: str, state: ModelState, error: JobError) -> None:
        if state.standing is Standing.PAUSED and state.look_at_ms > self._clock.monotonic_ms():
            return  # Of many inferences that fail together, only the first makes the pause longer.
        cause = cause_of(error)
        self._states[model] = replace(paused(state, error.code, self._clock.monotonic_ms(), self._draw), cause=cause)
        if (state.standing, state.reason, state.cause) != (Standing.PAUSED, error.code, cause):
            status = error.upstream_status
            log.warning("model.paused", model=model, code=error.code, cause=cause, upstream_status=status)
            self._on_change()
