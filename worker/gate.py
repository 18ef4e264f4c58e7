"""Which models this worker takes jobs of. A model that is out of order here is shut, so its jobs stay in their queue.

Here stands what this worker alone knows: what its looks at the model gave, and that Triton's queue is full. What all workers of
the endpoint know stands in the model's circuit (worker/circuit.py), which shuts the gate while it is open.

A gate opens only after the model's readiness and its contract were looked at and passed. Pauses grow while a model keeps failing,
with jitter, so that workers do not come back as one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import structlog

from tasks.errors import ConnectionLost, ContractMismatch, ErrorCode, JobError, ModelNotReady, QueueFull
from tasks.generate import Clock

FIRST_PAUSE_MS: Final = 250.0
LONGEST_PAUSE_MS: Final = 5_000.0

FIRST_LOOK_MS: Final = 250.0
"""How soon a model is looked at whose circuit has opened, at the latest: what it was like then is what its return is told by."""

BETWEEN_LOOKS_MS: Final = 1_000.0
"""How often a model is looked at while its circuit is not closed: three quarters to five quarters of this."""

_MS_A_LOOK: Final = 20.0
"""One worker's looks are no closer: hundreds of models that went away with their server are looked at less often each."""

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
    """A model's standing; ``look_at_ms`` (monotonic) is when it is looked at next, ``strikes`` the failures in a row.

    ``held`` says that its circuit shuts it whatever looks give, ``held_for`` what opened that, and ``passed`` whether the last look
    since then passed. ``watched`` says that it is looked at whatever its standing, ``doubted`` that it is to be, once, before more
    jobs are taken of it.
    """

    standing: Standing = Standing.STARTING
    reason: ErrorCode | None = None
    strikes: int = 0
    look_at_ms: float = 0.0
    cause: Cause | None = None
    held: bool = False
    held_for: ErrorCode | None = None
    passed: bool = False
    watched: bool = False
    doubted: bool = False

    @property
    def is_looked_at(self) -> bool:
        """Whether looks at it are of use."""
        return self.watched or self.doubted or (self.standing is not Standing.READY and not self.held)


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
    bound = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2.0 ** min(state.strikes, 16))
    look_at_ms = now_ms + bound * (0.5 + draw() / 2)
    return replace(
        state, standing=Standing.PAUSED, reason=reason, cause=None, strikes=state.strikes + 1, look_at_ms=look_at_ms
    )


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
        state = self._states[model]
        return state.standing is Standing.READY and not state.doubted

    def is_doubted(self, model: str) -> bool:
        """Tell whether a connection broke under a job of the model, and no look has shown yet what that means."""
        return self._states[model].doubted

    def has_died(self, model: str) -> bool:
        """Tell whether the model's process is dead, by what opened its circuit."""
        return self._states[model].held_for is ErrorCode.RUNTIME_MODEL_CRASHED

    def states(self) -> Mapping[str, ModelState]:
        """Return all standings by public name."""
        return self._states

    def observe(self, model: str, error: JobError | None) -> None:
        """Learn how an inference ended. What counts for the circuit is the circuit's, but for a contract that does not fit here."""
        state = self._states.get(model)
        if state is None:
            return
        if isinstance(error, (QueueFull, ModelNotReady, ContractMismatch)):
            self.pause(model, error)
        elif isinstance(error, ConnectionLost) and state.standing is Standing.READY:
            # Its server may be gone, and what was left running there with it: who waits for those slots does not send it a job,
            # and what else was sent to a dying server would only be lost too.
            self._states[model] = replace(state, doubted=True, look_at_ms=self._clock.monotonic_ms())
            self._on_change()
        elif error is None and state.strikes and state.standing is Standing.READY:
            self._states[model] = replace(state, strikes=0)

    def pause(self, model: str, error: JobError) -> None:
        """Take no jobs of the model until a pause is over and a look has passed."""
        state = self._states[model]
        if state.standing is not Standing.PAUSED or state.look_at_ms <= self._clock.monotonic_ms():
            # Of many inferences that fail together, only the first makes the pause longer.
            self._fail(model, paused(state, error.code, self._clock.monotonic_ms(), self._draw), error)

    def hold(self, model: str, reason: ErrorCode | None, *, watched: bool) -> None:
        """Take no jobs of the model until it is let go: its circuit has opened. It is looked at meanwhile if it is ``watched``."""
        state = self._states[model]
        standing = state.standing if state.standing is Standing.STARTING else Standing.PAUSED
        look_at_ms = self._clock.monotonic_ms() + FIRST_LOOK_MS * self._draw()
        held = replace(state, standing=standing, reason=reason, cause=None, look_at_ms=look_at_ms)
        self._states[model] = replace(held, held=True, held_for=reason, passed=False, watched=watched)
        self._on_change()

    def let_go(self, model: str, *, watched: bool) -> None:
        """Take jobs of the model again as far as looks have passed since it was held; looks go on while it is ``watched``."""
        state = replace(self._states[model], watched=watched)
        if state.held:
            state = replace(state, held=False, held_for=None)
            if state.passed:
                self._open(model, state)
                return
            state = replace(state, look_at_ms=self._clock.monotonic_ms())
        self._states[model] = state
        self._on_change()

    def due(self) -> list[str]:
        """Return the models that are to be looked at now."""
        now_ms = self._clock.monotonic_ms()
        return [model for model, state in self._states.items() if state.is_looked_at and state.look_at_ms <= now_ms]

    def next_look_ms(self, apart_from: Collection[str] = ()) -> float | None:
        """Return how long until a model, ``apart_from`` some, is to be looked at, None where none is."""
        looks = [
            state.look_at_ms for model, state in self._states.items() if state.is_looked_at and model not in apart_from
        ]
        return max(0.0, min(looks) - self._clock.monotonic_ms()) if looks else None

    def looked_at(self, model: str, error: JobError | None) -> None:
        """Learn what a look at the model's readiness and contract gave."""
        state = replace(self._states[model], passed=error is None, doubted=False)
        now_ms = self._clock.monotonic_ms()
        if state.watched:
            state = replace(state, look_at_ms=now_ms + self._between_looks_ms())
        if error is not None:
            longer = paused(state, error.code, now_ms, self._draw)
            self._fail(model, replace(longer, look_at_ms=state.look_at_ms) if state.watched else longer, error)
        elif state.held:
            self._set(model, replace(state, standing=Standing.PAUSED, reason=state.held_for, cause=None))
        elif state.standing is not Standing.READY:
            self._open(model, state)
        else:
            self._states[model] = state

    def _between_looks_ms(self) -> float:
        watched = sum(state.watched for state in self._states.values())
        return max(BETWEEN_LOOKS_MS, _MS_A_LOOK * watched) * (0.75 + self._draw() / 2)

    def _open(self, model: str, state: ModelState) -> None:
        self._states[model] = replace(state, standing=Standing.READY, reason=None, cause=None)
        log.info("model.opened", model=model)
        self._on_change()

    def _fail(self, model: str, state: ModelState, error: JobError) -> None:
        state = replace(state, cause=cause_of(error))
        if self._set(model, state):
            status = error.upstream_status
            log.warning("model.paused", model=model, code=error.code, cause=state.cause, upstream_status=status)

    def _set(self, model: str, state: ModelState) -> bool:
        """Tell whether its standing, or what it stands for, has changed."""
        before, self._states[model] = self._states[model], state
        if (before.standing, before.reason, before.cause) == (state.standing, state.reason, state.cause):
            return False
        self._on_change()
        return True
