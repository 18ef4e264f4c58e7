"""Circuits on random walks: the transitions against a reference that remembers everything and counts anew each time."""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tasks.errors import ErrorCode
from worker.circuit import Circuit, CircuitTerms, Look, State, after_calls, after_look, forced
from worker.circuit_calls import Call

CRASHED, RAISED, LOST = (
    ErrorCode.RUNTIME_MODEL_CRASHED,
    ErrorCode.TRITON_INFERENCE_FAILED,
    ErrorCode.RUNTIME_CONNECTION_LOST,
)

terms_of_a_walk = st.builds(
    CircuitTerms,
    consecutive_failures=st.integers(1, 5),
    failure_rate=st.sampled_from([0.1, 0.5, 0.7, 1.0]),
    window=st.integers(4, 10),
    minimum_calls=st.integers(1, 6),
    slow_call_ms=st.none(),
    open_ms=st.sampled_from([1.0, 1000.0]),
    max_open_ms=st.sampled_from([1000.0, 5000.0]),
    half_open_calls=st.integers(1, 3),
).map(lambda terms: replace(terms, minimum_calls=min(terms.minimum_calls, terms.window)))

tenants = st.sampled_from([None, "a", "b"])


@dataclass
class Reference:
    """The same circuit, as simple as can be: all calls since the state changed, and every rule worked out from them."""

    terms: CircuitTerms
    state: State = State.CLOSED
    is_forced: bool = False
    changed_ms: int = 0
    retry_ms: tuple[float, float] = (0, 0)
    opens: int = 0
    calls: list[Call] = field(default_factory=list)
    texts: list[tuple[str, int]] = field(default_factory=list)

    def ended(self, call: Call, now_ms: int) -> None:
        """A call ended."""
        if self.is_forced or self.state is State.OPEN or call.started_ms < self.changed_ms:
            return
        if call.text_digest and any(text == call.text_digest and now_ms - at_ms <= 1000 for text, at_ms in self.texts):
            return
        if call.text_digest:
            self.texts.append((call.text_digest, now_ms))
        self.calls.append(call)
        if call.is_bad and (call.opens_at_once or all(map(self._is_failing, [None, "a", "b"]))):
            self.opens += 1
            bound = min(self.terms.max_open_ms, self.terms.open_ms * 2 ** (self.opens - 1))
            self.retry_ms = (now_ms + bound / 2 - 1, now_ms + bound + 1)
            self._become(State.OPEN, now_ms)
        elif self.state is State.HALF_OPEN and self._successes() >= self.terms.half_open_calls:
            self._close(now_ms)

    def looked(self, now_ms: int, *, passed: bool, was_away: bool, is_due: bool) -> None:
        """A look was taken."""
        if self.is_forced or not passed:
            return
        if self.state is State.OPEN and (was_away or is_due):
            self._become(State.HALF_OPEN, now_ms)
        elif self.state is State.HALF_OPEN:
            last_bad = max((n for n, call in enumerate(self.calls) if call.is_bad), default=-1)
            good_since = self.calls[last_bad + 1 :]
            if good_since and now_ms - good_since[0].ended_ms >= self.terms.open_ms:
                self._close(now_ms)

    def said(self, state: State | None, now_ms: int) -> None:
        """An operator said so."""
        if state is None and not self.is_forced:
            return
        if state is None:
            self.is_forced = False
            self._become(State.HALF_OPEN if self.state is State.OPEN else State.CLOSED, now_ms)
            return
        self._close(now_ms)
        self.state, self.is_forced = state, True

    def _is_failing(self, left_out: str | None) -> bool:
        """Tell whether a rule holds without one tenant's failures."""
        kept = [call for call in self.calls[-self.terms.window :] if not (call.is_bad and call.tenant == left_out)]
        if left_out is None:
            kept = self.calls[-self.terms.window :]
        row = [call for call in self._row() if left_out is None or call.tenant != left_out]
        if self.state is State.HALF_OPEN:
            return bool(row)
        bad = sum(call.is_bad for call in kept)
        return len(row) >= self.terms.consecutive_failures or (
            len(kept) >= self.terms.minimum_calls and bad / len(kept) >= self.terms.failure_rate
        )

    def _row(self) -> list[Call]:
        row: list[Call] = []
        for call in self.calls:
            row = [*row, call] if call.is_bad else []
        return row

    def _successes(self) -> int:
        return sum(not call.is_bad for call in self.calls)

    def _close(self, now_ms: int) -> None:
        self.opens, self.texts = 0, []
        self._become(State.CLOSED, now_ms)

    def _become(self, state: State, now_ms: int) -> None:
        self.state, self.changed_ms, self.calls, self.is_forced = state, now_ms, [], False


class CircuitMachine(RuleBasedStateMachine):
    """One circuit and its reference see the same."""

    @initialize(terms=terms_of_a_walk)
    def begin(self, terms: CircuitTerms) -> None:
        """Begin closed."""
        self.terms = terms
        self.now_ms = 1_000_000
        self.circuit = Circuit()
        self.reference = Reference(terms)

    @rule(passed_ms=st.sampled_from([1, 10, 600, 2000, 10_000]))
    def time_passes(self, passed_ms: int) -> None:
        """Nothing happens by it alone."""
        self.now_ms += passed_ms

    @rule(times=st.integers(1, 4))
    def succeeds(self, times: int) -> None:
        """Some jobs succeed."""
        for _ in range(times):
            self._end(Call(self.now_ms, self.now_ms))

    @rule(tenant=tenants, times=st.integers(1, 4))
    def times_out(self, tenant: str | None, times: int) -> None:
        """Jobs of a tenant, or of nobody, fail in a way that they may have caused."""
        for _ in range(times):
            self._end(Call(self.now_ms, self.now_ms, ErrorCode.RUNTIME_TIMEOUT, counts=True, tenant=tenant))

    @rule(times=st.integers(1, 3))
    def is_lost(self, times: int) -> None:
        """Connections are lost."""
        for _ in range(times):
            self._end(Call(self.now_ms, self.now_ms, LOST, counts=True))

    @rule(text=st.sampled_from(["x", "y"]), tenant=tenants, times=st.integers(1, 3))
    def raises(self, text: str, tenant: str | None, times: int) -> None:
        """The model raises, and fails a batch."""
        for _ in range(times):
            self._end(Call(self.now_ms, self.now_ms, RAISED, counts=True, tenant=tenant, text_digest=text))

    @rule()
    def crashes(self) -> None:
        """The model's process dies."""
        self._end(Call(self.now_ms, self.now_ms, CRASHED, counts=True, opens_at_once=True))

    @rule(late_ms=st.integers(1, 5000), fails=st.booleans())
    def ends_that_began_before(self, late_ms: int, fails: bool) -> None:
        """An inference ends that took long."""
        code = LOST if fails else None
        self._end(Call(self.now_ms - late_ms, self.now_ms, code, counts=fails))

    @rule(passed=st.booleans(), was_away=st.booleans())
    def is_looked_at(self, passed: bool, was_away: bool) -> None:
        """A worker looks."""
        is_due = self.now_ms >= (self.circuit.retry_ms or 0)
        self.reference.looked(self.now_ms, passed=passed, was_away=was_away, is_due=is_due)
        self.circuit = after_look(self.circuit, Look(passed, was_away), self.terms, self.now_ms)

    @rule(state=st.sampled_from([State.OPEN, State.CLOSED, None, None]))
    def an_operator_says(self, state: State | None) -> None:
        """An operator forces it, or lets it go."""
        self.reference.said(state, self.now_ms)
        self.circuit = forced(self.circuit, state, reason="r", by="b", now_ms=self.now_ms)

    @invariant()
    def they_agree(self) -> None:
        """In their state, how often it opened, and until when."""
        circuit, reference = self.circuit, self.reference
        assert (circuit.state, circuit.forced) == (reference.state, reference.is_forced)
        if circuit.state is State.OPEN and not circuit.forced:
            assert circuit.opens == reference.opens
            assert reference.retry_ms[0] <= (circuit.retry_ms or 0) <= reference.retry_ms[1]

    @invariant()
    def it_stays_small(self) -> None:
        """Whatever happens."""
        assert circuit_size(self.circuit) <= 3 * self.terms.window + 10

    def _end(self, call: Call) -> None:
        draw = (call.started_ms % 100) / 100
        self.circuit = after_calls(self.circuit, [call], self.terms, self.now_ms, lambda: draw)
        self.reference.ended(call, self.now_ms)


def circuit_size(circuit: Circuit) -> int:
    """How much of the past a circuit keeps."""
    return len(circuit.window.runs) + len(circuit.row.by_tenant) + len(circuit.texts)


CircuitMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_a_circuit_and_its_reference_agree = CircuitMachine.TestCase
