"""The circuits of one worker's models: what their inferences and looks say goes in, what it means for claiming goes to the gate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import structlog

from settings.schema import Settings
from tasks.errors import ErrorCode, JobError, RuntimeUnavailable
from worker.circuit import Circuit, CircuitTerms, Look, State
from worker.circuit_copy import CircuitCopy
from worker.circuit_sync import CircuitSync
from worker.clock import RedisClock
from worker.gate import ModelGate
from worker.looks import Looks
from worker.observation import Observation, as_call, confirmed_loss, is_slow
from worker.terms import circuit_terms
from worker.triton.adapter import TritonInference

_SUCCESS_WAITS_MS: Final = 200.0
"""A success that ends a row of failures is told within this time: of many workers the first one to do so speaks for all."""

_UNAVAILABLE_IN_A_ROW: Final = 10
"""So often a model that cannot be reached is sent jobs where its circuit is configured to open later than that, or never."""

_CODES: Final = {code.value: code for code in ErrorCode}

_NEW: Final = Circuit()

log = structlog.get_logger()


@dataclass(slots=True)
class Circuits:
    """Takes what this worker sees, and acts on each change at once, here or elsewhere.

    ``models`` is public name to Triton's, several of which may be the same and then share a circuit. ``sync`` has a copy of each.
    """

    models: Mapping[str, str]
    gate: ModelGate
    looks: Looks
    sync: CircuitSync
    redis_clock: RedisClock
    terms: CircuitTerms
    draw: Callable[[], float]
    _acted_on: dict[str, Circuit] = field(default_factory=dict)
    _away: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, settings: Settings, gate: ModelGate, inference: TritonInference, sync: CircuitSync) -> Self:
        """Return the circuits of a worker's settings, of models that ``inference`` can be asked about."""
        return cls(
            models={model: settings.runtime_for(model).model_name for model in settings.supported_models},
            gate=gate,
            looks=Looks(inference.model_ready, inference.look, inference.statistics),
            sync=sync,
            redis_clock=sync.redis_clock,
            terms=circuit_terms(settings),
            draw=sync.draw,
        )

    def admits(self, model: str) -> bool:
        """Tell whether jobs of a public name may be claimed now; of one whose circuit is half open, a few at a time."""
        return self.gate.is_open(model)

    def states(self) -> dict[str, State]:
        """Return the state of the circuit behind each public name that is not closed."""
        states = ((model, self._copy(model).circuit.state) for model in self.models)
        return {model: state for model, state in states if state is not State.CLOSED}

    def observe(self, seen: Observation) -> None:
        """Learn how a delivery ended that was settled, is tried again, or went back since its model is out of order."""
        self.gate.observe(seen.model, seen.error)
        if seen.model not in self.models:
            return
        copy = self._copy(seen.model)
        now_ms = self.redis_clock.now_ms()
        if seen.error is None and not is_slow(seen, self.terms):
            copy.succeed(seen.claimed_at_ms, now_ms, now_ms)
            self._act(self.models[seen.model], _SUCCESS_WAITS_MS)
            return
        copy.observe(as_call(seen, self.terms, now_ms), now_ms)
        self._act(self.models[seen.model])
        if isinstance(seen.error, RuntimeUnavailable) and _goes_round(copy.circuit):
            self.gate.pause(seen.model, seen.error)

    def look(self, model: str) -> None:
        """Return if jobs of a public name can run, else raise the JobError that says why not."""
        try:
            self.looks.look(model)
        except RuntimeUnavailable:
            self._away.add(model)
            raise
        if self._copy(model).circuit.state is State.OPEN and self.looks.was_loaded_again(model):
            self._away.add(model)

    def looked_at(self, model: str, error: JobError | None) -> None:
        """Learn how a look ended."""
        is_gone = self.gate.is_doubted(model) and isinstance(error, RuntimeUnavailable) and error.counts_for_circuit
        self.gate.looked_at(model, error)
        copy, now_ms = self._copy(model), self.redis_clock.now_ms()
        if is_gone:
            copy.observe(confirmed_loss(now_ms), now_ms)
        copy.looked(Look(error is None, model in self._away), now_ms)
        self._act(self.models[model])
        if is_gone:
            self._away.add(model)  # Seen away by the very look that opened the circuit.

    def run(self) -> None:
        """Keep together with Redis until killed."""
        self.sync.run(self.heard)

    def heard(self, model_name: str) -> None:
        """Act on what others have written."""
        self._act(model_name)

    def _copy(self, model: str) -> CircuitCopy:
        return self.sync.copies[self.models[model]]

    def _act(self, model_name: str, within_ms: float = 0.0) -> None:
        copy = self.sync.copies[model_name]
        before, now = self._acted_on.get(model_name, _NEW), copy.circuit
        if now is before:
            return
        self._acted_on[model_name] = now
        changed = (before.state, before.forced, before.changed_ms) != (now.state, now.forced, now.changed_ms)
        if copy.has_news:
            self.sync.tell(model_name, within_ms * self.draw(), at_once=changed)
        if changed:
            _log_change(model_name, before, now)
            for model in (public for public, name in self.models.items() if name == model_name):
                self._change_gate(model, before, now)

    def _change_gate(self, model: str, before: Circuit, now: Circuit) -> None:
        if now.state is State.OPEN or (now.state is State.HALF_OPEN and before.state is not State.OPEN):
            # Half open of a sudden, it was opened unheard of here: jobs are taken after a look of this worker's own.
            self._away.discard(model)
            self.looks.begin(model)
            self.gate.hold(model, _CODES.get(now.reason), watched=not now.forced)
        if now.state is not State.OPEN:
            self.gate.let_go(model, watched=now.state is State.HALF_OPEN)


def _goes_round(circuit: Circuit) -> bool:
    """Tell whether jobs that never run would be claimed and put back for ever: no circuit opens for them, or not soon."""
    return circuit.state is State.CLOSED and (circuit.forced or circuit.row.total >= _UNAVAILABLE_IN_A_ROW)


def _log_change(model_name: str, before: Circuit, now: Circuit) -> None:
    if (before.state, before.forced, before.opens) == (now.state, now.forced, now.opens) and not now.forced:
        return  # Another worker was quicker to write the same.
    about = log.bind(triton_model=model_name, reason=now.reason or before.reason)
    if now.forced:
        about.warning("circuit.forced", state=now.state, by=now.by)
    elif now.state is State.OPEN:
        retry_in_ms = (now.retry_ms or now.changed_ms) - now.changed_ms
        about.warning("circuit.opened", rule=now.rule, failures=now.row.total, opens=now.opens, retry_in_ms=retry_in_ms)
    elif now.state is State.HALF_OPEN:
        about.info("circuit.half_opened")
    elif before.forced or before.state is not State.CLOSED:
        about.info("circuit.closed")
