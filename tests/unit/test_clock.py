"""Redis' time, known without asking."""

from itertools import pairwise

import pytest

from tests.fakes import FakeClock
from tests.jobs import CLAIMED_AT_MS
from worker.clock import MonotonicClock, RedisClock


def test_it_goes_on_from_what_was_heard() -> None:
    """By this process' own clock, whatever that one shows."""
    own = FakeClock(now_ms=987_654.25)
    clock = RedisClock(own)
    clock.heard(CLAIMED_AT_MS)
    own.pass_ms(1500)
    assert clock.now_ms() == CLAIMED_AT_MS + 1500
    assert clock.now() == "2026-11-30T10:00:01.500Z"


def test_what_was_heard_last_counts() -> None:
    """Also when Redis' clock was set back, or another server has taken over."""
    own = FakeClock()
    clock = RedisClock(own)
    clock.heard(CLAIMED_AT_MS)
    own.pass_ms(500)
    clock.heard(CLAIMED_AT_MS - 60_000)
    assert clock.now_ms() == CLAIMED_AT_MS - 60_000


def test_before_it_has_heard_anything_it_is_1970() -> None:
    """A time that nobody takes for a true one."""
    own = FakeClock(now_ms=5_000_000)
    clock = RedisClock(own)
    own.pass_ms(10)
    assert clock.now() == "1970-01-01T00:00:00.010Z"


def test_the_own_clock_never_goes_back() -> None:
    """It is the one that durations are measured with."""
    clock = MonotonicClock()
    times = [clock.monotonic_ms() for _ in range(100)]
    assert all(earlier <= later for earlier, later in pairwise(times))


def test_the_own_clock_counts_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not seconds."""
    monkeypatch.setattr("worker.clock.time.monotonic", lambda: 12.5)
    assert MonotonicClock().monotonic_ms() == 12_500
