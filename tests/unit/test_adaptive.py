"""Where the level of an adaptive pool goes: every row of the tables in docs/adaptive.md, and what holds whatever is seen."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.adaptive import (
    FALLS_ABOVE,
    FEWEST_ANSWERS,
    FIRST_PAUSE_MS,
    GROWS_BELOW,
    LONGEST_PAUSE_MS,
    WAITING_SHARE,
    Answer,
    Level,
    Reason,
    Signals,
    adapted,
)

PAGE: Final = (Path(__file__).parents[2] / "docs" / "adaptive.md").read_text(encoding="utf-8")
MOST: Final = 100
CHANGED_MS: Final = 1_000_000
NOW_MS: Final = CHANGED_MS + 10_000

TEN: Final = Level(10, step=4, changed_ms=CHANGED_MS, lowered_ms=CHANGED_MS)
"""A level of 10 that is to grow by 4, and has proven nothing yet."""


def answers(*times: float, granted_ms: int = CHANGED_MS + 1) -> tuple[Answer, ...]:
    """Answers that took so many times their shortest."""
    return tuple(Answer(granted_ms, each) for each in times)


def flight(times: float = 1.0, count: int = 10, *, full: bool = True, waiting: int | None = None) -> Signals:
    """A whole flight of a level of 10."""
    return Signals(0, answers(*[times] * count), waiting, full)


def after(*seen: Signals, level: Level = TEN, most: int = MOST, now_ms: int = NOW_MS) -> Level:
    """The level after all of this, each of it seen when jobs of the level before it have been answered."""
    for each in seen:
        ended = tuple(Answer(level.changed_ms + 1, one.times) for one in each.answers)
        level = adapted(level, replace(each, answers=ended), most, now_ms)
    return level


def rows(head: str) -> dict[str, str]:
    """The rows of the page's table with this head, as what is so to what then happens."""
    table = PAGE.partition(f"\n| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    pairs = [re.split(r" \| ", row.strip("| ")) for row in table]
    return dict(pairs)


SEEN: Final[dict[str, Callable[[], Level]]] = {
    "a full queue, of a job that was granted after the level last fell": lambda: after(Signals(CHANGED_MS + 1)),
    "a full queue, of a job that was granted before": lambda: after(Signals(CHANGED_MS)),
    "fewer answers than a flight has": lambda: after(flight(inf, 9)),
    "more than half of a flight's answers took longer than 3.5 times their shortest": lambda: after(
        Signals(0, answers(*[1.0] * 4, *[3.6] * 6), full=True)
    ),
    "the same, after two falls that made nothing quicker": lambda: after(
        flight(9.0), level=replace(TEN, slowness=3.0, ceiling=14, vain=1)
    ),
    "more than half of them took longer than 2.5 times their shortest": lambda: after(
        Signals(0, answers(*[1.0] * 4, *[2.6] * 6), full=True)
    ),
    "Triton never had fewer than 0.6 of the level waiting": lambda: after(
        Signals(waiting=7), Signals(waiting=9), flight()
    ),
    "none of this, and nothing ran into the level": lambda: after(flight(full=False)),
    "none of this, and a job had to wait for it": lambda: after(Signals(full=True), flight(2.5, full=False, waiting=6)),
}

GROWS: Final[dict[str, Callable[[], Sequence[int]]]] = {
    "no level above was too much yet": lambda: growing(Level(), 4),
    "a level above was too much, more than 1 away": lambda: growing(replace(TEN, ceiling=20), 2),
    "just below one that was too much, less than a pause ago": lambda: growing(
        replace(TEN, ceiling=11, retry_ms=NOW_MS + 1), 1
    ),
    "just below one that was too much, after the pause": lambda: growing(replace(TEN, ceiling=11, retry_ms=NOW_MS), 1),
    "on one that was too much once, and is not now": lambda: growing(replace(TEN, ceiling=10, step=1, failed=3), 3),
    "at `max_concurrency`": lambda: growing(replace(TEN, level=MOST), 1),
}
GROWN: Final[dict[str, Sequence[int]]] = {
    "1 more, then 2, then 4: each time twice the step before": (2, 4, 8, 16),
    "half of the way there": (15, 17),
    "where it is": (10,),
    "that one": (11,),
    "1 more, then 2, then 4": (11, 13, 17),
}

FALLS: Final[dict[str, Level]] = {
    "above a level that has had a good flight": replace(TEN, proven=6),
    "on the level that had the last good flight, or no level had one": replace(TEN, proven=10),
}
FALLEN: Final = {"back to that one": 6, "7/10 of it, and never below 1": 7}


def growing(level: Level, flights: int) -> list[int]:
    """Where so many good flights take a level."""
    found = []
    for _ in range(flights):
        level = after(flight(count=max(FEWEST_ANSWERS, level.level)), level=level)
        found.append(level.level)
    return found


@pytest.mark.parametrize(("seen", "then"), rows("what was seen").items())
def test_each_row_of_what_was_seen(seen: str, then: str) -> None:
    """It falls, stays or grows as the page says."""
    level = SEEN[seen]()
    match then:
        case "falls" | "falls at once":
            assert level.level < TEN.level
            assert (level.lowered_ms, level.changed_ms, level.ceiling) == (NOW_MS, NOW_MS, TEN.level)
        case "stays":
            assert (level.level, level.changed_ms, level.era) == (TEN.level, CHANGED_MS, 0)
        case "stays, and the shortest times are forgotten":
            assert (level.level, level.changed_ms, level.era) == (TEN.level, NOW_MS, 1)
        case "grows":
            assert (level.level, level.changed_ms, level.lowered_ms) == (14, NOW_MS, CHANGED_MS)
        case _:
            pytest.fail(f"the page says {then!r}")


@pytest.mark.parametrize(("where", "to"), rows("where it is when it grows").items())
def test_each_row_of_where_it_grows(where: str, to: str) -> None:
    """By its step, towards what was too much, and beyond it now and then."""
    at_most = [MOST] if where == "at `max_concurrency`" else GROWN[to]
    assert GROWS[where]() == [*at_most]


@pytest.mark.parametrize(("where", "to"), rows("where it is when it falls").items())
def test_each_row_of_where_it_falls(where: str, to: str) -> None:
    """To what has proven right, or by a share; what it fell from is its ceiling."""
    fallen = after(Signals(NOW_MS), level=FALLS[where])
    assert (fallen.level, fallen.ceiling, fallen.step) == (FALLEN[to], 10, 1)


def test_the_tables_are_those_of_the_page() -> None:
    """No row is without its test, no test without its row, and the figures are those of the code."""
    assert list(rows("what was seen")) == list(SEEN)
    assert list(rows("where it is when it grows")) == list(GROWS)
    assert list(rows("where it is when it falls")) == list(FALLS)
    assert f"longer than {FALLS_ABOVE:g} times" in PAGE
    assert f"longer than {GROWS_BELOW:g} times" in PAGE
    assert f"fewer than {WAITING_SHARE:g} of the level" in PAGE
    assert f"is {FIRST_PAUSE_MS // 1000} seconds" in PAGE
    assert f"up to {LONGEST_PAUSE_MS // 1000} seconds" in PAGE
    assert [f"`{reason}`" in PAGE for reason in Reason if reason] == [True] * 4


def test_the_lowest_level_is_one() -> None:
    """Whatever is refused there; who falls there is told of one that was too much above it."""
    level = Level()
    for now_ms in range(1, 100):
        level = adapted(level, Signals(refused_ms=now_ms), MOST, now_ms)
        assert (level.level, level.ceiling, level.lowered_ms) == (1, 2, now_ms)


def test_a_limit_that_is_lowered_takes_the_level_along() -> None:
    """Also where nothing else is seen; it is no sign of too much."""
    level = after(Signals(), most=3)
    assert (level.level, level.reason, level.ceiling, level.lowered_ms) == (3, Reason.LIMIT, 0, CHANGED_MS)


def test_growth_ends_at_max_concurrency() -> None:
    """However large the step is that would lead beyond."""
    assert growing(replace(TEN, level=MOST - 1, step=64), 2) == [MOST, MOST]


def test_a_moment_in_which_nothing_waits_is_enough_to_grow() -> None:
    """Batches leave a queue now and then empty that is no standing one."""
    assert after(Signals(waiting=9), Signals(waiting=0), flight(waiting=9)).level == 14


def test_a_try_in_vain_makes_the_next_pause_longer() -> None:
    """Twice as long each time, up to the longest; a try that was not in vain begins anew."""
    level, pauses = replace(TEN, proven=10, ceiling=11), []
    for _ in range(7):
        level = after(flight(), level=level, now_ms=max(NOW_MS, level.retry_ms))
        assert level.level == 11
        level = adapted(level, Signals(level.changed_ms + 1), MOST, level.changed_ms + 2)
        assert level.level == 10
        pauses.append(level.retry_ms - level.lowered_ms)
    assert pauses == [min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2**n) for n in range(1, 8)]
    found = after(flight(), flight(count=11), level=level, now_ms=level.retry_ms)
    assert (found.level, found.ceiling, found.failed) == (12, 0, 0)


def test_answers_of_a_time_before_do_not_count() -> None:
    """A level is judged by jobs that were granted while it stood."""
    before = Signals(0, answers(*[inf] * 100, granted_ms=CHANGED_MS), full=True)
    assert adapted(TEN, before, MOST, NOW_MS).flight.answers == 0


def test_falls_that_help_go_on() -> None:
    """Where a queue is what makes answers slow, they are quicker with each fall, and nothing is forgotten."""
    level = after(flight(40.0))
    while level.level > 1:
        level = after(flight(40.0 * level.level / TEN.level), level=level)
        assert (level.vain, level.era) == (0, 0)
        if level.slowness is None:
            break
    assert level.level < 3


def test_a_server_that_became_slower_for_good_costs_few_flights() -> None:
    """Falls do not help there, so the shortest times are learned anew and the level comes back."""
    level, lowest = replace(TEN, proven=10), 10
    while level.era == 0:
        level = after(flight(6.0), level=level)
        lowest = min(lowest, level.level)
    assert lowest >= 3
    assert max(growing(level, 12)) >= 10


seen = st.builds(
    Signals,
    refused_ms=st.integers(0, 40),
    answers=st.lists(
        st.builds(Answer, granted_ms=st.integers(0, 40), times=st.sampled_from([1.0, 2.0, 3.0, 5.0, 70.0, inf])),
        max_size=12,
    ).map(tuple),
    waiting=st.none() | st.integers(0, 20),
    full=st.booleans(),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(seen, st.integers(1, 12)), max_size=40))
def test_whatever_is_seen_the_level_is_within_its_bounds(steps: Sequence[tuple[Signals, int]]) -> None:
    """From 1 to max_concurrency, which may change; and what was granted before a fall makes it fall no further."""
    level = Level()
    for now_ms, (signals, most) in enumerate(steps, 1):
        before, level = level, adapted(level, signals, most, now_ms)
        assert 1 <= level.level <= most
        assert level.step >= 1
        if level.lowered_ms != before.lowered_ms:
            old = replace(signals, answers=[replace(each, granted_ms=now_ms) for each in signals.answers])
            again = adapted(level, replace(old, refused_ms=now_ms), most, now_ms + 1)
            assert (again.level, again.lowered_ms, again.flight.answers) == (level.level, now_ms, 0)


@dataclass
class Server:
    """A server that runs ``knee`` at once, each for ``ms``, lets the others wait, and turns away what is over ``room``."""

    knee: int
    ms: int
    room: float = inf
    draw: random.Random = field(default_factory=lambda: random.Random(7))
    now_ms: int = 1
    shortest: float = inf

    def flight(self, level: Level) -> Signals:
        """As many jobs as the level at once, and always another one; how each is answered."""
        self.now_ms += round(self.ms * max(1.0, level.level / self.knee))
        if level.level > self.room:
            return Signals(self.now_ms - 1, full=True)
        count = max(FEWEST_ANSWERS, level.level)
        ms = [max(1.0, level.level / self.knee) * self.draw.uniform(0.8, 1.2) for _ in range(count)]
        self.shortest = min(self.shortest, sorted(ms)[count // 2])
        return Signals(0, answers(*(each / self.shortest for each in ms), granted_ms=self.now_ms - 1), full=True)

    def run(self, level: Level, most: int, flights: int) -> Iterator[Level]:
        """The level after each of so many flights."""
        for _ in range(flights):
            level = adapted(level, self.flight(level), most, self.now_ms)
            yield level


servers = st.builds(Server, knee=st.integers(1, 40), ms=st.sampled_from([1, 100, 10_000]))


@settings(max_examples=15)
@given(servers, st.integers(1, 100))
def test_the_level_settles_where_a_server_is_busy_and_not_flooded(server: Server, most: int) -> None:
    """By answers alone: every inference that it can run runs, and none waits long."""
    settled = [level.level for level in server.run(Level(), most, 60)][-15:]
    assert min(settled) >= min(server.knee, most)
    assert max(settled) <= max(4, 3.5 * server.knee)


@settings(max_examples=15)
@given(servers, st.integers(0, 30), st.integers(1, 100))
def test_the_level_settles_where_full_queues_end(server: Server, room: int, most: int) -> None:
    """Where the server turns jobs away above some number, the level is that number, or as high as it may be."""
    server.room = server.knee + room
    levels = [level.level for level in server.run(Level(), most, 80)][-30:]
    refused = sum(level > server.room for level in levels)
    assert refused <= 8  # A try after each pause, the longest of which is short beside 30 flights of ten seconds each.
    settled = [level for level in levels if level <= server.room]
    assert min(settled) >= min(server.knee, most)
    assert sum(settled) / len(settled) >= 0.9 * min(most, server.room, 2 * server.knee)


@settings(max_examples=15)
@given(servers, st.integers(2, 10))
def test_a_server_that_grows_is_found_out(server: Server, times: int) -> None:
    """Its room and what it runs are raised: the level follows, and does not take long for it."""
    server.room = server.knee + 1
    *_, level = server.run(Level(), 500, 60)
    server.knee, server.room = server.knee * times, server.room * times
    server.now_ms += LONGEST_PAUSE_MS
    levels = list(server.run(level, 500, 50))
    assert max(each.level for each in levels) >= min(1.5 * server.knee, 0.9 * server.room)
    assert levels[-1].level >= 0.9 * server.knee
