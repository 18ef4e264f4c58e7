"""A circuit as it stands in Redis: what is read is what was written, and what is none does no harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.circuit import Circuit, Rule, State
from worker.circuit_calls import BAD, GOOD, Failures, Window
from worker.circuit_record import from_fields, to_fields

names = st.sampled_from(["0011223344556677", "8899aabbccddeeff"])
counts = st.integers(1, 10**6)
times = st.integers(1, 4 * 10**12)
circuits = st.builds(
    Circuit,
    state=st.sampled_from(State),
    reason=st.text(),
    rule=st.none() | st.sampled_from(Rule),
    opened_ms=st.none() | times,
    retry_ms=st.none() | times,
    opens=st.integers(0, 100),
    changed_ms=times,
    row=st.builds(Failures, counts, st.lists(st.tuples(names, counts), max_size=2).map(tuple)),
    failed_ms=times,
    window=st.builds(Window, st.lists(st.tuples(st.sampled_from([GOOD, BAD]) | names, counts), max_size=5).map(tuple)),
    texts=st.lists(st.tuples(names, times), max_size=3).map(tuple),
    successes=st.integers(0, 100),
    proven_ms=st.none() | times,
    forced=st.booleans(),
    by=st.text(),
)


def as_redis_has_it(fields: dict[str, str]) -> dict[bytes, bytes]:
    """Return the fields as bytes."""
    return {name.encode(): value.encode() for name, value in fields.items()}


@given(circuits)
def test_what_is_read_is_what_was_written(circuit: Circuit) -> None:
    """Every field, whatever an operator's words are."""
    assert from_fields(as_redis_has_it(to_fields(circuit))) == circuit


def test_the_fields_of_the_contract_are_as_it_says() -> None:
    """Texts, empty where there is nothing to say."""
    opened = Circuit(
        State.OPEN, "runtime_timeout", Rule.FAILURE_RATE, 1_796_000_000_123, 1_796_000_007_500, row=Failures(7)
    )
    fields = to_fields(opened)
    assert {name: fields[name] for name in ("state", "reason", "failures", "opened_at", "retry_at")} == {
        "state": "open",
        "reason": "runtime_timeout",
        "failures": "7",
        "opened_at": "2026-11-30T00:53:20.123Z",
        "retry_at": "2026-11-30T00:53:27.500Z",
    }
    assert to_fields(Circuit())["opened_at"] == to_fields(Circuit())["forced"] == ""


def test_one_that_is_forced_says_so() -> None:
    """In which state, why and by whom."""
    fields = to_fields(Circuit(State.CLOSED, "trusted", Rule.OPERATOR, forced=True, by="anna"))
    assert (fields["forced"], fields["forced_reason"], fields["forced_by"]) == ("closed", "trusted", "anna")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"version": "1"},
        {"state": "ajar"},
        {"state": "open", "opened_at": "yesterday"},
        {"state": "open", "failures": "many"},
        {"state": "open", "window": "+"},
        {"state": "open", "rule": "whim"},
    ],
)
def test_what_is_no_circuit_is_a_closed_one(fields: dict[str, str]) -> None:
    """It opens again if there is reason to."""
    assert from_fields(as_redis_has_it(fields)) == Circuit()


@given(st.dictionaries(st.sampled_from([*to_fields(Circuit())]).map(str.encode), st.binary()))
def test_no_bytes_are_too_bad_to_be_read(fields: dict[bytes, bytes]) -> None:
    """Whoever wrote them."""
    assert isinstance(from_fields(fields), Circuit)


def test_a_circuit_by_hand_is_read_by_its_state() -> None:
    """What is not there is not needed."""
    assert from_fields({b"state": b"open"}).state is State.OPEN
