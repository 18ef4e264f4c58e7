"""Lines between the input and the output: bounded, each written once, in order where that is wanted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.batch.counts import Outcome
from worker.batch.jobs import Asked, Line
from worker.batch.line_set import LineSet
from worker.batch.requests import Endpoint
from worker.batch.result_lines import Written
from worker.batch.run import pause_after
from worker.batch.window import Window

SIZE, MOST_HELD = 5, 40


def asked(number: int) -> Asked:
    """A line with a job."""
    return Asked("batch_0", number, f"line-{number}", Endpoint.COMPLETIONS, "m", 8)


def written(number: int, size: int = 10) -> Written:
    """What is to be written for a line."""
    return Written(number, b"x" * size, Outcome(None, None))


class Lines(RuleBasedStateMachine):
    """Lines come and end in any order; a model that is a plain list says what has to be written."""

    keep_order = False

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(SIZE, keep_order=self.keep_order, most_held=MOST_HELD)
        self.entered: list[int] = []
        self.ended: set[int] = set()
        self.out: list[int] = []
        self.next = 0

    @precondition(lambda self: self.window.room > 0)
    @rule(gap=st.integers(1, 3), is_bad=st.booleans())
    def enter(self, gap: int, is_bad: bool) -> None:
        """A line is read; a bad one ends at once."""
        self.next += gap
        self.entered.append(self.next)
        self.window.enter(Line("batch_0", self.next, "x") if is_bad else asked(self.next))
        if is_bad:
            self.end(self.next)

    @precondition(lambda self: set(self.entered) - self.ended)
    @rule(data=st.data(), size=st.integers(1, 60))
    def end_one(self, data: st.DataObject, size: int) -> None:
        """Some line's result is there."""
        self.end(data.draw(st.sampled_from(sorted(set(self.entered) - self.ended))), size)

    def end(self, number: int, size: int = 10) -> None:
        """Note a line's end, and what may be written then."""
        self.ended.add(number)
        self.out += [each.number for each in self.window.end(written(number, size))]

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        """What is written and what is under way are together what was read, and no more than the window holds."""
        assert len(self.out) == len(set(self.out))
        assert set(self.out) <= self.ended
        assert len(self.window) == len(self.entered) - len(self.out)
        assert self.window.room == SIZE - len(self.window) >= 0

    @invariant()
    def order_is_kept_where_wanted(self) -> None:
        """All that is next in turn and has ended is written; without order, all that has ended."""
        if self.keep_order:
            turn = [number for index, number in enumerate(self.entered) if set(self.entered[: index + 1]) <= self.ended]
            assert self.out == turn
        else:
            assert set(self.out) == self.ended

    @invariant()
    def the_oldest_is_always_wanted(self) -> None:
        """Whatever is held, the line on which the others wait may be asked for; others only while little is held."""
        open_ = [number for number in self.entered if number not in self.ended]
        wanted = [line.number for line in self.window.wanted()]
        assert wanted in (open_, open_[:1])
        assert wanted[:1] == open_[:1]
        assert self.window.oldest == (open_[0] if open_ else None)


class LinesInOrder(Lines):
    """The same, where the input's order is kept."""

    keep_order = True


TestAsTheyEnd = Lines.TestCase
TestInOrder = LinesInOrder.TestCase
TestAsTheyEnd.settings = TestInOrder.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_while_too_much_is_held_only_the_line_whose_turn_it_is_is_wanted() -> None:
    """So memory does not grow with the size of results."""
    window = Window(SIZE, keep_order=True, most_held=MOST_HELD)
    for number in (1, 2, 3, 4):
        window.enter(asked(number))
    window.end(written(2, MOST_HELD + 1))
    assert [line.number for line in window.wanted()] == [1]
    assert [each.number for each in window.end(written(1))] == [1, 2]
    assert [line.number for line in window.wanted()] == [3, 4]


@pytest.mark.parametrize(
    ("size", "under_way", "wants"), [(100, 90, True), (100, 91, False), (5, 4, True), (5, 5, False)]
)
def test_more_is_wanted_when_there_is_room_worth_a_round_trip(size: int, under_way: int, wants: bool) -> None:
    """A tenth of the window."""
    window = Window(size, keep_order=False)
    for number in range(under_way):
        window.enter(asked(number))
    assert window.wants_more is wants


@given(st.floats(0, 1), st.integers(0, 100), st.integers(0, 100), st.floats(0, 5))
def test_looking_takes_at_most_half_of_the_time_unless_much_is_there(
    last: float, written: int, of: int, took: float
) -> None:
    """And a result waits a quarter of a second at most, or as long as a look takes."""
    pause = pause_after(last, written, of, took)
    if written and written * 4 >= of:
        assert pause == 0
    else:
        assert took <= pause <= max(0.25, took)
    if not written:
        assert pause >= min(last, 0.25)


def test_a_line_is_found_while_it_has_not_ended() -> None:
    """By its number; a line that was never a job is not found."""
    window = Window(SIZE, keep_order=False)
    window.enter(asked(3))
    window.enter(Line("batch_0", 4, "x"))
    assert (window.find(3), window.find(4)) == (asked(3), None)
    window.end(written(3))
    assert window.find(3) is None


@given(st.lists(st.integers(1, 3000)))
def test_a_set_of_lines_is_a_set(numbers: list[int]) -> None:
    """Of any numbers, in any order."""
    lines, plain = LineSet(), set[int]()
    for number in numbers:
        assert lines.add(number) is (number not in plain)
        plain.add(number)
    assert len(lines) == len(plain)
    assert [number for number in range(3002) if number in lines] == sorted(plain)


def test_a_hundred_thousand_lines_are_a_dozen_kilobytes() -> None:
    """A bit each."""
    lines = LineSet()
    for number in range(1, 100_001):
        lines.add(number)
    assert len(lines._bits) < 30_000
