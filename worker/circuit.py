"""When a model is left alone, and how it comes back: a circuit's states and the transitions between them. Pure.

docs/circuits.md has the transitions as a table. All workers of an endpoint share one circuit for each Triton model; what is
decided here is decided of a value, and whoever finds that another was quicker decides again (worker/circuit_copy.py).
Times are Redis' unix milliseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from worker.circuit_calls import Call, Failures, Window

SAME_TEXT_MS: Final = 1000
"""One exception fails a whole batch: failures of the same text within this time of the first are one."""

SLOW: Final = "slow_call"
"""The reason of a circuit that a slow call opened; otherwise it is a code of an error, or an operator's words."""


class State(StrEnum):
    """Whether jobs of a model are taken: all, none, or a few at a time to see how they do."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Rule(StrEnum):
    """What opened a circuit."""

    FAILURES_IN_A_ROW = "failures_in_a_row"
    FAILURE_RATE = "failure_rate"
    AT_ONCE = "at_once"
    FAILED_PROBE = "failed_probe"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class CircuitTerms:
    """The configured figures (``circuit`` in the configuration)."""

    consecutive_failures: int = 5
    failure_rate: float = 0.5
    window: int = 100
    minimum_calls: int = 20
    slow_call_ms: float | None = None
    open_ms: float = 10_000.0
    max_open_ms: float = 300_000.0
    half_open_calls: int = 3


@dataclass(frozen=True, slots=True)
class Look:
    """What asking for a model's readiness and contract gave; ``was_away`` says that this worker has seen it away since it opened."""

    passed: bool
    was_away: bool = False


@dataclass(frozen=True, slots=True)
class Circuit:
    """A model's circuit. ``opens`` counts the openings since it was last closed, ``changed_ms`` is when its state last changed.

    ``row`` are the failures in a row, of a half-open one those since then; the last ended at ``failed_ms``. ``texts`` are digests of
    what the model said and when that was counted. ``proven_ms`` is when a half-open one had a success with no failure since.
    ``forced`` says that an operator holds it where it is, ``by`` who.
    """

    state: State = State.CLOSED
    reason: str = ""
    rule: Rule | None = None
    opened_ms: int | None = None
    retry_ms: int | None = None
    opens: int = 0
    changed_ms: int = 0
    row: Failures = field(default_factory=Failures)
    failed_ms: int = 0
    window: Window = field(default_factory=Window)
    texts: tuple[tuple[str, int], ...] = ()
    successes: int = 0
    proven_ms: int | None = None
    forced: bool = False
    by: str = ""


def after_calls(
    circuit: Circuit, calls: Sequence[Call], terms: CircuitTerms, now_ms: int, draw: Callable[[], float]
) -> Circuit:
    """Return the circuit after these calls, in the order in which they ended; ``draw`` gives a number in [0, 1)."""
    for call in calls:
        circuit = _after_call(circuit, call, terms, now_ms, draw)
    return circuit


def after_look(circuit: Circuit, look: Look, terms: CircuitTerms, now_ms: int) -> Circuit:
    """Return the circuit after a look at the model."""
    if circuit.forced or not look.passed:
        return circuit
    if circuit.state is State.OPEN and (look.was_away or now_ms >= (circuit.retry_ms or 0)):
        return _half_open(circuit, now_ms)
    if circuit.proven_ms is not None and now_ms - circuit.proven_ms >= terms.open_ms:
        return Circuit(changed_ms=now_ms)
    return circuit


def forced(circuit: Circuit, state: State | None, *, reason: str, by: str, now_ms: int) -> Circuit:
    """Return the circuit that an operator holds open or closed, or with None lets go. What was open is tried with probes then."""
    if state is None:
        if not circuit.forced:
            return circuit
        return _half_open(circuit, now_ms) if circuit.state is State.OPEN else Circuit(changed_ms=now_ms)
    if state is State.HALF_OPEN:
        raise ValueError("a circuit is forced open or closed")
    opened_ms = now_ms if state is State.OPEN else None
    return Circuit(state, reason, rule=Rule.OPERATOR, opened_ms=opened_ms, changed_ms=now_ms, forced=True, by=by)


def _after_call(circuit: Circuit, call: Call, terms: CircuitTerms, now_ms: int, draw: Callable[[], float]) -> Circuit:
    # What began before the last change tells of the time before it.
    if circuit.forced or circuit.state is State.OPEN or call.started_ms < circuit.changed_ms or call.is_neutral:
        return circuit
    if call.counts and call.text_digest is not None:
        if any(text == call.text_digest and _at_the_same_time(at_ms, call) for text, at_ms in circuit.texts):
            return circuit
        kept = tuple((text, at_ms) for text, at_ms in circuit.texts if _at_the_same_time(at_ms, call))
        circuit = replace(circuit, texts=(*kept, (call.text_digest, call.ended_ms)))
    probing = circuit.state is State.HALF_OPEN
    circuit = _probed(circuit, call, now_ms) if probing else _counted(circuit, call, terms)
    rule = _rule_that_opens(circuit, call, terms)
    if rule is not None:
        return _opened(circuit, call, rule, terms, now_ms, draw)
    return Circuit(changed_ms=now_ms) if probing and circuit.successes >= terms.half_open_calls else circuit


def _at_the_same_time(at_ms: int, call: Call) -> bool:
    return abs(call.ended_ms - at_ms) <= SAME_TEXT_MS


def _counted(circuit: Circuit, call: Call, terms: CircuitTerms) -> Circuit:
    window = circuit.window.plus(call.kind, call.times, terms.window)
    if call.counts:
        row, failed_ms = circuit.row.plus(call.kind, call.times), max(circuit.failed_ms, call.ended_ms)
        return replace(circuit, window=window, row=row, failed_ms=failed_ms)
    # Another worker may tell late of a success that was before the failures.
    row = circuit.row if call.ended_ms < circuit.failed_ms else Failures()
    return replace(circuit, window=window, row=row)


def _probed(circuit: Circuit, call: Call, now_ms: int) -> Circuit:
    if call.is_bad:
        return replace(circuit, row=circuit.row.plus(call.kind, call.times), proven_ms=None)
    proven_ms = now_ms if circuit.proven_ms is None else circuit.proven_ms
    return replace(circuit, row=Failures(), successes=circuit.successes + call.times, proven_ms=proven_ms)


def _rule_that_opens(circuit: Circuit, call: Call, terms: CircuitTerms) -> Rule | None:
    if not call.is_bad:
        return None
    if call.opens_at_once:
        return Rule.AT_ONCE
    if circuit.state is State.HALF_OPEN:
        return Rule.FAILED_PROBE if circuit.row.beyond_one_tenant else None
    if circuit.row.beyond_one_tenant >= terms.consecutive_failures:
        return Rule.FAILURES_IN_A_ROW
    return Rule.FAILURE_RATE if circuit.window.fails(terms.failure_rate, terms.minimum_calls) else None


def _opened(
    circuit: Circuit, call: Call, rule: Rule, terms: CircuitTerms, now_ms: int, draw: Callable[[], float]
) -> Circuit:
    bound = min(terms.max_open_ms, terms.open_ms * 2.0 ** min(circuit.opens, 62))
    return Circuit(
        State.OPEN,
        reason=SLOW if call.code is None else call.code,
        rule=rule,
        opened_ms=now_ms,
        # Half to all of it, drawn once for all workers: their looks are spread by themselves.
        retry_ms=now_ms + round(bound * (0.5 + draw() / 2)),
        opens=circuit.opens + 1,
        changed_ms=now_ms,
        row=circuit.row,
        failed_ms=circuit.failed_ms,
        texts=circuit.texts,
    )


def _half_open(circuit: Circuit, now_ms: int) -> Circuit:
    return replace(
        circuit,
        state=State.HALF_OPEN,
        changed_ms=now_ms,
        row=Failures(),
        successes=0,
        proven_ms=None,
        forced=False,
        by="",
    )
