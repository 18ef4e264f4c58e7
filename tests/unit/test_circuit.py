"""When a circuit opens and closes: every row of the table in docs/circuits.md, and what counts for it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tasks.errors import ErrorCode
from worker.circuit import Circuit, CircuitTerms, Look, Rule, State, after_calls, after_look, forced
from worker.circuit_calls import Call
from worker.circuit_record import to_fields
from worker.observation import confirmed_loss

PAGE: Final = (Path(__file__).parents[2] / "docs" / "circuits.md").read_text(encoding="utf-8")
TERMS: Final = CircuitTerms(window=10, minimum_calls=6, slow_call_ms=1000.0)
NOW_MS: Final = 1_000_000
LONG_AGO_MS: Final = NOW_MS - 500_000

Event = Callable[[Circuit], Circuit]


def call(code: ErrorCode | None = None, **changes: object) -> Call:
    """A call that began and ended just now; with a code, one that counts."""
    plain = Call(NOW_MS, NOW_MS, code, counts=code is not None)
    return replace(plain, **changes)  # type: ignore[arg-type]  # the test names fields of a call


def good(**changes: object) -> Call:
    """A success."""
    return call(None, **changes)


def lost(**changes: object) -> Call:
    """A failure that counts whoever sent the job."""
    return call(ErrorCode.RUNTIME_CONNECTION_LOST, **changes)


def crashed(**changes: object) -> Call:
    """A failure that opens at once."""
    return call(ErrorCode.RUNTIME_MODEL_CRASHED, opens_at_once=True, **changes)


def raised(text: str, **changes: object) -> Call:
    """An exception of the model."""
    return call(ErrorCode.TRITON_INFERENCE_FAILED, text_digest=text, **changes)


def timed_out(tenant: str | None) -> Call:
    """A failure that the content of a tenant's job may have caused."""
    return call(ErrorCode.RUNTIME_TIMEOUT, tenant=tenant)


def neutral() -> Call:
    """A failure that does not count."""
    return call(ErrorCode.INVALID_JOB, counts=False)


def calls(*ended: Call, terms: CircuitTerms = TERMS) -> Event:
    """These calls end."""
    return lambda circuit: after_calls(circuit, ended, terms, NOW_MS, lambda: 0.5)


def look(*, passed: bool, was_away: bool = False, now_ms: int = NOW_MS) -> Event:
    """A worker looks."""
    return lambda circuit: after_look(circuit, Look(passed, was_away), TERMS, now_ms)


def said(state: State | None) -> Event:
    """An operator says so."""
    return lambda circuit: forced(circuit, state, reason="maintenance", by="anna", now_ms=NOW_MS)


def then(*events: Event) -> Event:
    """All of these, one after the other."""

    def happen(circuit: Circuit) -> Circuit:
        for event in events:
            circuit = event(circuit)
        return circuit

    return happen


CLOSED: Final = Circuit(changed_ms=LONG_AGO_MS)
OPEN: Final = replace(
    Circuit(changed_ms=LONG_AGO_MS, opens=1), state=State.OPEN, reason="runtime_unavailable", retry_ms=NOW_MS + 1
)
HALF_OPEN: Final = replace(OPEN, state=State.HALF_OPEN)
FORCED_OPEN: Final = forced(CLOSED, State.OPEN, reason="broken", by="bert", now_ms=LONG_AGO_MS)
FORCED_CLOSED: Final = forced(CLOSED, State.CLOSED, reason="trusted", by="bert", now_ms=LONG_AGO_MS)
STATES: Final = {
    "`closed`": (CLOSED,),
    "`open`": (OPEN,),
    "`half_open`": (HALF_OPEN,),
    "any": (CLOSED, OPEN, HALF_OPEN, FORCED_OPEN, FORCED_CLOSED),
    "`open`, forced": (FORCED_OPEN,),
    "`closed`, forced": (FORCED_CLOSED,),
}

whatever_is_said: Final = then(
    calls(*[lost()] * 20, crashed(), *[good()] * 20), look(passed=True, was_away=True), look(passed=False)
)

TABLE: Final[Sequence[tuple[str, str, str, Event]]] = (
    ("`closed`", "a success", "`closed`", calls(good())),
    ("`closed`", "a failure that counts", "`closed`", calls(lost())),
    ("`closed`", "`consecutive_failures` failures in a row", "`open`", calls(*[lost()] * 5)),
    (
        "`closed`",
        "at least `minimum_calls` in the window, and `failure_rate` of them failed",
        "`open`",
        calls(good(), lost(), good(), lost(), good(), lost()),
    ),
    ("`closed`", "the same, of calls that were slow", "`open`", calls(*[good(), good(slow=True)] * 3)),
    ("`closed`", "one `runtime_model_crashed` or `runtime_contract_mismatch`", "`open`", calls(crashed())),
    (
        "`closed`",
        "a connection breaks under a job, and a look right after it finds the server away",
        "`open`",
        calls(confirmed_loss(NOW_MS)),
    ),
    (
        "`closed`",
        "any number of failures that the content of one tenant's jobs may have caused",
        "`closed`",
        calls(*[timed_out("a")] * 1000),
    ),
    (
        "`closed`",
        "the same exception of the model again within a second",
        "`closed`",
        calls(*[raised("a")] * 1000),
    ),
    ("`closed`", "a failure that does not count", "`closed`", calls(*[neutral()] * 1000)),
    ("`open`", "a call ends that was claimed before", "`open`", calls(lost(), crashed(), *[good()] * 20)),
    ("`open`", "a look fails", "`open`", look(passed=False, was_away=True, now_ms=NOW_MS + 10**6)),
    ("`open`", "a look passes before `retry_at`", "`open`", look(passed=True)),
    ("`open`", "a look passes at `retry_at` or later", "`half_open`", look(passed=True, now_ms=NOW_MS + 1)),
    (
        "`open`",
        "a look passes, by a worker that has seen the model away since it opened",
        "`half_open`",
        look(passed=True, was_away=True),
    ),
    (
        "`half_open`",
        "a call ends that was claimed before",
        "`half_open`",
        calls(*[each(started_ms=LONG_AGO_MS - 1) for each in (lost, crashed, good, good, good)]),
    ),
    ("`half_open`", "a success", "`half_open`", calls(good(), good())),
    ("`half_open`", "`half_open_calls` successes", "`closed`", calls(good(), good(), good())),
    (
        "`half_open`",
        "a look passes, `open_seconds` after a success with no failure since",
        "`closed`",
        then(calls(good()), look(passed=True, now_ms=NOW_MS + 10_000)),
    ),
    ("`half_open`", "a failure that counts, or a slow call", "`open`", calls(good(), good(), lost())),
    ("`half_open`", "a failure that counts, or a slow call", "`open`", calls(good(slow=True))),
    ("`half_open`", "a failure that counts, or a slow call", "`open`", calls(crashed())),
    (
        "`half_open`",
        "a failure that the content of one tenant's jobs may have caused",
        "`half_open`",
        calls(*[timed_out("a")] * 1000),
    ),
    ("`half_open`", "a failure that does not count", "`half_open`", calls(neutral())),
    ("`half_open`", "a look fails", "`half_open`", then(calls(good()), look(passed=False, now_ms=NOW_MS + 10**6))),
    ("any", "an operator forces it open", "`open`, forced", said(State.OPEN)),
    ("any", "an operator forces it closed", "`closed`, forced", said(State.CLOSED)),
    ("`open`, forced", "whatever calls and looks say", "`open`, forced", whatever_is_said),
    ("`closed`, forced", "whatever calls and looks say", "`closed`, forced", whatever_is_said),
    ("`open`, forced", "an operator lets it go", "`half_open`", said(None)),
    ("`closed`, forced", "an operator lets it go", "`closed`", said(None)),
)


def named(circuit: Circuit) -> str:
    """The state as the page has it."""
    return f"`{circuit.state}`{', forced' if circuit.forced else ''}"


@pytest.mark.parametrize(("before", "_what", "after", "event"), TABLE, ids=[f"{row[0]} {row[1]}" for row in TABLE])
def test_a_row_of_the_table_is_so(before: str, _what: str, after: str, event: Event) -> None:
    """From each of the states that it is about."""
    for circuit in STATES[before]:
        assert named(event(circuit)) == after


def test_the_table_is_that_of_the_page() -> None:
    """In its order, each row once; a row may be done in several ways here."""
    (section,) = re.findall(r"^## The transitions\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in section.splitlines() if "|" in line]
    assert rows[2:] == list(dict.fromkeys(row[:3] for row in TABLE))


class TestOpening:
    def test_a_row_is_ended_by_a_success(self) -> None:
        """Four failures and a success, over and over, are no row; a rate they are."""
        alive = calls(*[*[lost()] * 4, good()] * 20, terms=replace(TERMS, failure_rate=0.9))(CLOSED)
        assert (alive.state, alive.row.total) == (State.CLOSED, 0)
        assert calls(*[lost()] * 4, good(), lost())(CLOSED).rule is Rule.FAILURE_RATE

    def test_a_success_that_is_told_late_ends_no_row(self) -> None:
        """It was before the failures; of the window it is part all the same."""
        four = calls(*[lost()] * 4)(CLOSED)
        after = calls(good(started_ms=NOW_MS - 100, ended_ms=NOW_MS - 1))(four)
        assert (after.row.total, after.window.calls) == (4, 5)
        assert calls(lost())(after).rule is Rule.FAILURES_IN_A_ROW

    def test_below_the_minimum_no_rate_is_taken(self) -> None:
        """Of five calls two are no rate, of six three are."""
        five = calls(good(), good(), lost(), good(), lost())(CLOSED)
        assert five.state is State.CLOSED
        assert calls(lost())(five).rule is Rule.FAILURE_RATE

    def test_only_the_last_calls_are_in_the_window(self) -> None:
        """What went well long ago excuses nothing, what went wrong long ago opens nothing."""
        after = calls(good(times=1000), lost(), lost(), good(), lost(), lost(), good())(CLOSED)
        assert after.state is State.CLOSED
        assert calls(lost())(after).rule is Rule.FAILURE_RATE
        calm = calls(*[lost(), lost(), good(times=8)] * 20)(CLOSED)
        assert calm.state is State.CLOSED

    def test_a_rate_is_exact(self) -> None:
        """Seven of ten are 0.7, whatever a float makes of it."""
        terms = replace(TERMS, failure_rate=0.7, minimum_calls=10, consecutive_failures=100)
        assert calls(good(times=3), lost(times=6), terms=terms)(CLOSED).state is State.CLOSED
        assert calls(good(times=3), lost(times=7), terms=terms)(CLOSED).state is State.OPEN

    def test_a_slow_success_is_no_failure_in_a_row(self) -> None:
        """It ends one: the model did answer."""
        after = calls(*[lost()] * 4, good(slow=True))(CLOSED)
        assert (after.state, after.row.total) == (State.CLOSED, 0)

    def test_it_says_what_opened_it(self) -> None:
        """The last failure's code, which rule, how many in a row, and until when."""
        after = calls(*[lost()] * 5)(CLOSED)
        assert (after.reason, after.rule, after.row.total) == ("runtime_connection_lost", Rule.FAILURES_IN_A_ROW, 5)
        assert (after.opened_ms, after.retry_ms, after.changed_ms) == (NOW_MS, NOW_MS + 7_500, NOW_MS)
        assert calls(crashed())(CLOSED).rule is Rule.AT_ONCE
        assert calls(*[good(), good(slow=True)] * 3)(CLOSED).reason == "slow_call"

    @pytest.mark.parametrize(("draw", "share"), [(0.0, 0.5), (0.5, 0.75), (1 - 1e-12, 1.0)])
    def test_it_waits_half_to_all_of_a_time_that_doubles(self, draw: float, share: float) -> None:
        """Up to the longest one; workers and models do not come back as one."""
        waits = []
        circuit = CLOSED
        for _ in range(8):
            circuit = after_calls(circuit, [crashed()], TERMS, NOW_MS, lambda: draw)
            waits.append((circuit.retry_ms or 0) - NOW_MS)
            circuit = look(passed=True, was_away=True)(circuit)
        assert waits == [round(share * 1000 * seconds) for seconds in (10, 20, 40, 80, 160, 300, 300, 300)]

    def test_an_open_one_is_not_opened_again(self) -> None:
        """Of many workers that see the same, the first one's time holds: no late failure makes it longer or shorter."""
        once = calls(crashed())(CLOSED)
        assert calls(crashed(ended_ms=NOW_MS + 1), lost())(once) == once


class TestTenants:
    def test_failures_of_one_tenant_are_left_out(self) -> None:
        """Each rule holds without them or it does not hold."""
        noisy = calls(*[timed_out("a")] * 50)(CLOSED)
        assert noisy.state is State.CLOSED
        four_more = calls(*[timed_out("b")] * 4)(noisy)
        assert four_more.state is State.CLOSED
        assert calls(timed_out("b"))(four_more).rule is Rule.FAILURES_IN_A_ROW

    def test_failures_without_a_tenant_count(self) -> None:
        """As do those of other codes, whoever sent the job."""
        assert calls(*[timed_out(None)] * 5)(CLOSED).state is State.OPEN
        assert calls(*[lost()] * 5)(CLOSED).state is State.OPEN

    def test_a_tenant_left_out_is_left_out_of_the_calls_too(self) -> None:
        """A rate is taken of what is left; where that is below the minimum, none is."""
        terms = replace(TERMS, consecutive_failures=100, window=20, minimum_calls=8)
        few = calls(*[timed_out("a")] * 8, *[timed_out("b")] * 3, good(times=4), terms=terms)(CLOSED)
        assert few.state is State.CLOSED
        others = calls(*[timed_out("a")] * 8, good(times=4), *[timed_out("b")] * 4, terms=terms)(CLOSED)
        assert others.rule is Rule.FAILURE_RATE

    def test_a_slow_call_of_one_tenant_is_left_out(self) -> None:
        """A prompt can be long."""
        slow = good(slow=True, tenant="a")
        assert calls(*[slow] * 10)(CLOSED).state is State.CLOSED
        assert calls(*[slow] * 10)(HALF_OPEN).state is State.HALF_OPEN
        assert calls(*[good(slow=True)] * 6)(CLOSED).state is State.OPEN

    def test_what_opens_at_once_does_so_whoever_sent_it(self) -> None:
        """A dead process is dead for all."""
        assert calls(crashed())(CLOSED).state is State.OPEN

    def test_half_open_two_tenants_open_it(self) -> None:
        """One that fails alone does not, and a success between begins anew."""
        assert calls(timed_out("a"), timed_out("b"))(HALF_OPEN).rule is Rule.FAILED_PROBE
        assert calls(timed_out("a"), good(), timed_out("b"))(HALF_OPEN).state is State.HALF_OPEN


class TestExceptions:
    def test_the_same_text_counts_again_after_a_second(self) -> None:
        """A model that raises at every job is out of order in the end."""
        circuit = CLOSED
        for second in range(5):
            assert circuit.state is State.CLOSED
            circuit = calls(*[raised("a", ended_ms=NOW_MS + 1001 * second)] * 64)(circuit)
        assert circuit.rule is Rule.FAILURES_IN_A_ROW

    def test_other_texts_count_each(self) -> None:
        """They are other exceptions; one without a text is one of its own."""
        assert calls(*map(raised, "abcde"))(CLOSED).state is State.OPEN
        assert calls(*[call(ErrorCode.TRITON_INFERENCE_FAILED)] * 5)(CLOSED).state is State.OPEN

    def test_texts_are_not_kept_for_ever(self) -> None:
        """Those of the last second are enough."""
        circuit = CLOSED
        for n in range(1000):
            circuit = calls(good(), raised(str(n), ended_ms=NOW_MS + 500 * n), good(times=8))(circuit)
        assert len(circuit.texts) <= 3


class TestRecovery:
    def test_half_open_everything_is_counted_anew(self) -> None:
        """The failures that opened it are no probes."""
        opened = calls(*[lost()] * 5)(CLOSED)
        half = look(passed=True, was_away=True)(opened)
        assert (half.row.total, half.successes, half.window.calls) == (0, 0, 0)
        assert (half.reason, half.opened_ms) == (opened.reason, opened.opened_ms)

    def test_closed_it_begins_from_nothing(self) -> None:
        """The next opening is a short one again, and what was in the window is forgotten."""
        closed = calls(good(), good(), good())(HALF_OPEN)
        assert closed == Circuit(changed_ms=NOW_MS)
        assert calls(crashed())(closed).opens == 1

    def test_a_failure_after_a_success_begins_the_wait_anew(self) -> None:
        """One tenant's, which does not open it: it is closed ``open_seconds`` after the next success."""
        circuit = calls(good(), timed_out("a"))(HALF_OPEN)
        assert look(passed=True, now_ms=NOW_MS + 10**6)(circuit).state is State.HALF_OPEN
        proven = calls(good())(circuit)
        assert look(passed=True, now_ms=NOW_MS + 9_999)(proven).state is State.HALF_OPEN
        assert look(passed=True, now_ms=NOW_MS + 10_000)(proven).state is State.CLOSED

    def test_a_look_closes_nothing_without_a_success(self) -> None:
        """A model whose process is dead passes every look."""
        assert look(passed=True, was_away=True, now_ms=NOW_MS + 10**9)(HALF_OPEN) == HALF_OPEN


class TestOperators:
    def test_a_forced_one_says_who_and_why(self) -> None:
        """And keeps nothing of what was before."""
        held = said(State.OPEN)(HALF_OPEN)
        assert (held.reason, held.by, held.rule, held.opens) == ("maintenance", "anna", Rule.OPERATOR, 0)
        assert held.opened_ms == NOW_MS
        assert said(State.CLOSED)(held).opened_ms is None

    def test_letting_go_of_what_is_not_forced_changes_nothing(self) -> None:
        """Whatever its state."""
        for circuit in (CLOSED, OPEN, HALF_OPEN):
            assert said(None)(circuit) == circuit

    def test_half_open_cannot_be_forced(self) -> None:
        """It is no state to stay in."""
        with pytest.raises(ValueError, match="open or closed"):
            said(State.HALF_OPEN)(CLOSED)


def test_the_fields_on_the_page_are_fields() -> None:
    """Those that others may read are written under these names."""
    table = re.findall(r"^\| (`.+?`) \| .* \|$", PAGE.partition("| field of a circuit |")[2], re.MULTILINE)
    names = [name for cell in table for name in re.findall(r"`(\w+)`", cell)]
    assert names
    assert set(names) <= set(to_fields(CLOSED))
