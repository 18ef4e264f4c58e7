"""The level of a pool as Redis has it: what is written is what is read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.adaptive import Flight, Level, Reason
from worker.level_record import NOW, from_fields, to_fields

whole = st.integers(0, 2**40)
logs = st.integers(0, 60_000).map(lambda each: each / 10_000)
flights = st.builds(Flight, whole, whole, whole, logs, st.none() | whole, st.booleans())
levels = st.builds(
    Level,
    level=st.integers(1, 10**6),
    reason=st.sampled_from(Reason),
    step=st.integers(1, 10**6),
    proven=whole,
    ceiling=whole,
    failed=whole,
    retry_ms=whole,
    changed_ms=whole,
    lowered_ms=whole,
    slowness=st.none() | logs,
    vain=whole,
    era=whole,
    flight=flights,
)


def raw(fields: dict[str, str]) -> dict[bytes, bytes]:
    """Fields as a client of Redis gives them."""
    return {name.encode(): value.encode() for name, value in fields.items()}


@settings(max_examples=50)
@given(levels)
def test_what_is_written_is_what_is_read(level: Level) -> None:
    """Every field, whatever its value."""
    assert from_fields(raw(to_fields(level, level))) == level


def test_what_has_just_happened_is_timed_by_redis() -> None:
    """The script's time is that of the grants, which a worker's guess of it is not."""
    before = Level(4, changed_ms=10, lowered_ms=5)
    assert to_fields(before, Level(5, changed_ms=20, lowered_ms=5))["level_changed_ms"] == NOW
    assert to_fields(before, Level(5, changed_ms=20, lowered_ms=5))["level_lowered_ms"] == "5"
    assert to_fields(before, Level(3, changed_ms=20, lowered_ms=20))["level_lowered_ms"] == NOW
    assert to_fields(before, before)["level_changed_ms"] == "10"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"level": "high"},
        {"level": "5", "level_flight": "1 2 3"},
        {"level": "5", "level_flight": "1 2 3 nan - 0"},
        {"level": "5", "level_slowness": "inf"},
    ],
)
def test_what_is_no_level_begins_anew(fields: dict[str, str]) -> None:
    """Somebody's slip in Redis costs a minute, not a worker."""
    assert from_fields(raw(fields)) == Level()


def test_a_reason_of_another_release_is_none() -> None:
    """The level stays what it is."""
    assert from_fields(raw({"level": "7", "level_reason": "new"})) == Level(7)


def test_nothing_is_less_than_it_can_be() -> None:
    """A level of 0 would stop the pool for ever."""
    assert from_fields(raw({"level": "-3", "level_step": "0", "level_proven": "-1"})) == Level(1)
