"""A worker's copy of a circuit: it acts at once, tells no more than it must, and nothing is lost or counted twice between workers."""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tasks.errors import ErrorCode
from worker.circuit import Circuit, CircuitTerms, Look, State, forced
from worker.circuit_calls import Call
from worker.circuit_copy import CircuitCopy
from worker.circuit_store import Stored, Write, WriteReply

TERMS = CircuitTerms()
NOW_MS = 1_000_000


def good(ended_ms: int = NOW_MS) -> Call:
    """A success."""
    return Call(ended_ms, ended_ms)


def lost(ended_ms: int = NOW_MS) -> Call:
    """A failure that counts."""
    return Call(ended_ms, ended_ms, ErrorCode.RUNTIME_CONNECTION_LOST, counts=True)


def crashed() -> Call:
    """A failure that opens at once."""
    return replace(lost(), code=ErrorCode.RUNTIME_MODEL_CRASHED, opens_at_once=True)


def neutral() -> Call:
    """One that says nothing."""
    return Call(NOW_MS, NOW_MS, ErrorCode.INVALID_JOB)


@dataclass
class Shelf:
    """What the script does, in one place for several copies."""

    stored: Stored = field(default_factory=Stored)
    writes: int = 0

    def store(self, write: Write) -> WriteReply:
        """Write if it is unchanged."""
        if self.stored.version != write.version:
            if self.stored.version != write.expected:
                return WriteReply(NOW_MS, self.stored)
            self.stored = Stored(write.circuit, write.version)
            self.writes += 1
        return WriteReply(NOW_MS, None)


def copy(terms: CircuitTerms = TERMS) -> CircuitCopy:
    """A new worker's."""
    return CircuitCopy(terms, lambda: 0.5)


def flush(one: CircuitCopy, shelf: Shelf, name: str) -> None:
    """Tell until there is no news."""
    tries = 0
    while (write := one.write(f"{name}-{shelf.writes}-{tries}")) is not None:
        one.replied(shelf.store(write))
        tries += 1
        assert tries < 5


class TestOneWorker:
    def test_a_healthy_model_is_no_news(self) -> None:
        """However many jobs succeed, or fail by a fault of their own."""
        one = copy()
        for _ in range(1000):
            one.observe(good(), NOW_MS)
            one.observe(neutral(), NOW_MS)
        assert not one.has_news
        assert one.write("v") is None

    def test_what_went_well_is_told_with_the_next_failure(self) -> None:
        """So that a rate is one: no more of it than fits in the window."""
        one, shelf = copy(), Shelf()
        for _ in range(30):
            one.observe(good(), NOW_MS)
        one.observe(lost(), NOW_MS)
        flush(one, shelf, "a")
        assert shelf.stored.circuit.window.runs == (("+", 30), ("-", 1))
        for _ in range(1000):
            one.observe(good(), NOW_MS)
        assert one.circuit.window.calls <= TERMS.window

    def test_it_acts_at_once(self) -> None:
        """Redis need not know yet."""
        one = copy()
        one.observe(crashed(), NOW_MS)
        assert one.circuit.state is State.OPEN
        assert one.has_news

    def test_what_changes_nothing_is_no_news(self) -> None:
        """Of 64 jobs that fail together the first ones open it."""
        one, shelf = copy(), Shelf()
        for _ in range(64):
            one.observe(lost(), NOW_MS)
        flush(one, shelf, "a")
        assert shelf.writes == 1
        assert shelf.stored.circuit.row.total == 5
        one.looked(Look(passed=False), NOW_MS)
        assert not one.has_news

    def test_the_success_that_ends_a_row_is_told(self) -> None:
        """Others count on."""
        one, shelf = copy(), Shelf()
        one.observe(lost(), NOW_MS)
        flush(one, shelf, "a")
        one.observe(good(), NOW_MS)
        assert one.has_news
        flush(one, shelf, "a")
        assert shelf.stored.circuit.row.total == 0
        one.observe(good(), NOW_MS)
        assert not one.has_news

    def test_a_lost_reply_is_asked_for_again_under_the_same_version(self) -> None:
        """With what came since to follow."""
        one, shelf = copy(), Shelf()
        one.observe(lost(), NOW_MS)
        first = one.write("a-1")
        assert first is not None
        shelf.store(first)
        one.observe(lost(), NOW_MS)
        again = one.write("a-2")
        assert again == first
        flush(one, shelf, "a")
        assert shelf.stored.circuit.row.total == 2

    def test_reading_what_it_wrote_is_the_reply(self) -> None:
        """Whichever comes first."""
        one, shelf = copy(), Shelf()
        one.observe(lost(), NOW_MS)
        write = one.write("a-1")
        assert write is not None
        shelf.store(write)
        one.heard(shelf.stored, NOW_MS)
        assert not one.has_news
        assert one.circuit.row.total == 1

    def test_what_went_well_before_an_opening_is_forgotten(self) -> None:
        """It excuses nothing that comes after it was closed again."""
        one, closed = copy(), Circuit(changed_ms=NOW_MS + 1)
        for _ in range(10):
            one.observe(good(), NOW_MS)
        one.heard(Stored(replace(closed, state=State.OPEN), "b-1"), NOW_MS)
        one.heard(Stored(closed, "b-2"), NOW_MS)
        one.observe(good(NOW_MS + 2), NOW_MS + 2)
        one.observe(lost(NOW_MS + 2), NOW_MS + 2)
        assert one.circuit.window.calls == 2

    def test_an_operators_word_is_taken(self) -> None:
        """Calls and looks change nothing any more, and are no news."""
        one = copy()
        one.observe(good(), NOW_MS)
        one.heard(Stored(forced(Circuit(), State.OPEN, reason="r", by="b", now_ms=NOW_MS), "op"), NOW_MS)
        assert one.circuit.forced
        one.observe(crashed(), NOW_MS)
        one.observe(good(), NOW_MS)
        one.looked(Look(passed=True, was_away=True), NOW_MS)
        assert not one.has_news
        one.heard(Stored(), NOW_MS)
        assert one.circuit == Circuit()


class TestTwoWorkers:
    def test_failures_of_both_make_the_row(self) -> None:
        """Whoever writes second decides on what the first one wrote."""
        one, other, shelf = copy(), copy(), Shelf()
        for _ in range(3):
            one.observe(lost(), NOW_MS)
            other.observe(lost(), NOW_MS)
        flush(one, shelf, "a")
        states = [shelf.stored.circuit.state]
        flush(other, shelf, "b")
        assert [*states, shelf.stored.circuit.state] == [State.CLOSED, State.OPEN]
        assert other.circuit == shelf.stored.circuit
        one.heard(shelf.stored, NOW_MS)
        assert one.circuit == shelf.stored.circuit

    def test_of_two_openings_the_first_holds(self) -> None:
        """Its time too."""
        one, other, shelf = copy(), CircuitCopy(TERMS, lambda: 0.9), Shelf()
        one.observe(crashed(), NOW_MS)
        other.observe(crashed(), NOW_MS + 1)
        flush(one, shelf, "a")
        first = shelf.stored
        flush(other, shelf, "b")
        assert shelf.stored == first
        assert other.circuit == first.circuit

    def test_successes_here_end_a_row_of_failures_there(self) -> None:
        """As soon as they are heard of; those from before say nothing."""
        one, other, shelf = copy(), copy(), Shelf()
        other.observe(good(NOW_MS - 5), NOW_MS)
        one.observe(lost(), NOW_MS)
        flush(one, shelf, "a")
        other.heard(shelf.stored, NOW_MS)
        assert not other.has_news
        other.observe(good(NOW_MS + 1), NOW_MS + 1)
        flush(other, shelf, "b")
        assert (shelf.stored.circuit.row.total, shelf.stored.circuit.window.calls) == (0, 3)

    def test_a_look_is_judged_by_the_opening_that_it_was_of(self) -> None:
        """A model that came back and crashed again meanwhile has not come back."""
        one, other, shelf = copy(), copy(), Shelf()
        one.observe(crashed(), NOW_MS)
        flush(one, shelf, "a")
        other.heard(shelf.stored, NOW_MS)
        other.looked(Look(passed=True, was_away=True), NOW_MS + 1)
        one.looked(Look(passed=True, was_away=True), NOW_MS + 1)
        flush(one, shelf, "a")
        one.observe(replace(crashed(), started_ms=NOW_MS + 2, ended_ms=NOW_MS + 2), NOW_MS + 2)
        flush(one, shelf, "a")
        flush(other, shelf, "b")
        assert other.circuit == shelf.stored.circuit
        assert shelf.stored.circuit.state is State.OPEN


class Sharing(RuleBasedStateMachine):
    """Three workers, a Redis that loses requests and replies, and counts that have to be right in the end.

    No rule ever opens this circuit, so every call stays in its window. A write between a lost reply and its repeat is left out: there
    a call may be counted twice (worker/lua/store_if_unchanged.lua).
    """

    @initialize()
    def begin(self) -> None:
        """Begin with an empty Redis."""
        never = CircuitTerms(consecutive_failures=10**6, window=1000, minimum_calls=1000, failure_rate=1.0)
        self.shelf = Shelf()
        self.copies = {name: CircuitCopy(never, lambda: 0.5) for name in "abc"}
        self.failed, self.succeeded, self.now_ms, self.versions = 0, 0, NOW_MS, 0
        self.unknown: str | None = None

    @rule(name=st.sampled_from("abc"), times=st.integers(1, 3))
    def fail(self, name: str, times: int) -> None:
        """Calls fail."""
        for _ in range(times):
            self.now_ms += 1
            self.copies[name].observe(lost(self.now_ms), self.now_ms)
        self.failed += times

    @rule(name=st.sampled_from("abc"), times=st.integers(1, 3))
    def succeed(self, name: str, times: int) -> None:
        """Calls succeed."""
        for _ in range(times):
            self.now_ms += 1
            self.copies[name].observe(good(self.now_ms), self.now_ms)
        self.succeeded += times

    @rule(name=st.sampled_from("abc"), carried=st.sampled_from(["both", "both", "request", "nothing"]))
    def tell(self, name: str, carried: str) -> None:
        """A worker writes; the reply may be lost, or the request."""
        if self.unknown not in {None, name}:
            return
        self.versions += 1
        write = self.copies[name].write(f"{name}-{self.versions}")
        if write is None:
            return
        if carried == "nothing":
            return
        reply = self.shelf.store(write)
        self.unknown = name if carried == "request" else None
        if carried == "both":
            self.copies[name].replied(reply)

    @rule(name=st.sampled_from("abc"))
    def read(self, name: str) -> None:
        """A worker reads."""
        self.copies[name].heard(self.shelf.stored, self.now_ms)
        if self.unknown == name:
            self.unknown = None

    @invariant()
    def a_copy_knows_its_own(self) -> None:
        """Nobody acts on less than Redis knows of the failures that it told, nor on more than there were."""
        for one in self.copies.values():
            assert one.circuit.window.failures.total <= self.failed

    def teardown(self) -> None:
        """In the end all is told: each with one more failure, which brings along what went well."""
        if self.unknown is not None:
            flush(self.copies[self.unknown], self.shelf, f"{self.unknown}-end")
        for name, one in self.copies.items():
            self.now_ms += 1
            one.observe(lost(self.now_ms), self.now_ms)
            flush(one, self.shelf, f"{name}-last")
        window = self.shelf.stored.circuit.window
        assert window.failures.total == min(1000, self.failed + len(self.copies))
        assert window.calls == min(1000, self.failed + len(self.copies) + self.succeeded)


Sharing.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_no_call_is_lost_nor_counted_twice = Sharing.TestCase
