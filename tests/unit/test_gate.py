"""Which models jobs are taken of: paused by what puts a model out of order, opened by nothing but a look that passed."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import (
    ConnectionLost,
    ContractMismatch,
    ErrorCode,
    InferenceRejected,
    InternalError,
    InvalidJob,
    JobError,
    JobExpired,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    OutputInvalid,
    QueueFull,
    RuntimeTimeout,
    RuntimeUnavailable,
    UsageUnavailable,
)
from tests.fakes import FakeClock
from worker.gate import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, Cause, ModelGate, ModelState, Standing, paused

A, B = "acme/a", "acme/b"
draws = st.floats(0, 1, exclude_max=True)
OUT_OF_ORDER = [QueueFull(), ModelNotReady(), ContractMismatch()]
OTHERS: list[JobError | None] = [
    None,
    ConnectionLost(),
    InferenceRejected(),
    InternalError(),
    InvalidJob(),
    JobExpired(),
    ModelCrashed(),
    ModelException(),
    OutputInvalid(),
    RuntimeTimeout(),
    RuntimeUnavailable(),
    UsageUnavailable(),
]


class Bench:
    """A gate of two models that were looked at and are open; draws are 1 less a hair, so pauses are as long as they get."""

    def __init__(self) -> None:
        self.clock = FakeClock(now_ms=1000)
        self.changes = 0
        self.gate = ModelGate([A, B], self.clock, lambda: 1 - 1e-12, self._changed)

    def opened(self) -> "Bench":
        """Let both models pass their first look."""
        for model in (A, B):
            self.gate.looked_at(model, None)
        return self

    def _changed(self) -> None:
        self.changes += 1

    def pause_of(self, model: str) -> float:
        """Return how long the model's pause lasts from now on."""
        return round(self.gate.states()[model].look_at_ms - self.clock.monotonic_ms(), 3)


class TestPauses:
    @pytest.mark.parametrize(
        ("strikes", "bound"),
        [(0, 250), (1, 500), (2, 1000), (3, 2000), (4, 4000), (5, 5000), (6, 5000), (10_000, 5000)],
    )
    def test_they_double_up_to_a_bound(self, strikes: int, bound: float) -> None:
        """Half of it at the least, all of it at the most."""
        state = ModelState(Standing.READY, strikes=strikes)
        assert paused(state, ErrorCode.RUNTIME_UNAVAILABLE, 100.0, lambda: 0.0).look_at_ms == 100 + bound / 2
        assert paused(state, ErrorCode.RUNTIME_UNAVAILABLE, 100.0, lambda: 0.5).look_at_ms == 100 + bound * 0.75

    @given(st.integers(0, 2**40), st.floats(0, 1e12), draws)
    def test_they_are_within_bounds(self, strikes: int, now_ms: float, draw: float) -> None:
        """However long a model has been failing."""
        state = paused(ModelState(strikes=strikes), ErrorCode.RUNTIME_UNAVAILABLE, now_ms, lambda: draw)
        assert FIRST_PAUSE_MS / 2 - 0.01 <= state.look_at_ms - now_ms <= LONGEST_PAUSE_MS + 0.01
        assert state == ModelState(Standing.PAUSED, ErrorCode.RUNTIME_UNAVAILABLE, strikes + 1, state.look_at_ms)

    @given(draws)
    def test_they_never_shrink_while_it_fails(self, draw: float) -> None:
        """For the same draw."""
        lengths = [
            paused(ModelState(strikes=strikes), ErrorCode.RUNTIME_UNAVAILABLE, 0.0, lambda: draw).look_at_ms
            for strikes in range(30)
        ]
        assert all(shorter <= longer for shorter, longer in pairwise(lengths))

    def test_they_differ_from_worker_to_worker(self) -> None:
        """So that workers do not come back as one."""
        even = [draw / 10 for draw in range(10)]
        ends = {
            paused(ModelState(), ErrorCode.RUNTIME_UNAVAILABLE, 0.0, partial(float, draw)).look_at_ms for draw in even
        }
        assert len(ends) == 10


class TestTheStart:
    def test_models_are_shut_until_they_were_looked_at(self) -> None:
        """All are due at once."""
        bench = Bench()
        assert not bench.gate.is_open(A)
        assert bench.gate.due() == [A, B]
        assert bench.gate.next_look_ms() == 0
        assert {state.standing for state in bench.gate.states().values()} == {Standing.STARTING}

    def test_a_look_that_passes_opens(self) -> None:
        """That model alone; the change is told."""
        bench = Bench()
        bench.gate.looked_at(A, None)
        assert (bench.gate.is_open(A), bench.gate.is_open(B)) == (True, False)
        assert bench.gate.due() == [B]
        assert bench.changes == 1

    def test_a_look_that_fails_pauses(self) -> None:
        """With what it failed of."""
        bench = Bench()
        bench.gate.looked_at(A, ContractMismatch())
        state = bench.gate.states()[A]
        assert (state.standing, state.reason, state.strikes) == (
            Standing.PAUSED,
            ErrorCode.RUNTIME_CONTRACT_MISMATCH,
            1,
        )
        assert bench.gate.due() == [B]

    @pytest.mark.parametrize(
        ("error", "cause"),
        [(ModelNotReady(), Cause.NOT_READY), (QueueFull(), Cause.QUEUE_FULL), (RuntimeUnavailable(), None)],
    )
    def test_what_is_behind_a_pause_is_known(self, error: JobError, cause: Cause | None) -> None:
        """The three of one code are mended each elsewhere; when another one takes its place, that is told."""
        bench = Bench()
        bench.gate.looked_at(A, ContractMismatch())
        bench.clock.pass_ms(1e9)
        bench.gate.looked_at(A, error)
        assert bench.gate.states()[A].cause is cause
        bench.clock.pass_ms(1e9)
        before = bench.changes
        bench.gate.looked_at(A, RuntimeUnavailable())
        assert bench.gate.states()[A].cause is None
        assert bench.changes - before == (cause is not None)

    def test_when_all_are_open_nothing_is_due(self) -> None:
        """Ever."""
        bench = Bench().opened()
        bench.clock.pass_ms(1e9)
        assert bench.gate.due() == []
        assert bench.gate.next_look_ms() is None


class TestFailures:
    @pytest.mark.parametrize("error", OUT_OF_ORDER, ids=lambda error: type(error).__name__)
    def test_what_says_that_a_model_is_out_of_order_pauses_it(self, error: JobError) -> None:
        """It alone, with the code as reason; the change is told."""
        bench = Bench().opened()
        bench.gate.observe(A, error)
        assert (bench.gate.is_open(A), bench.gate.is_open(B)) == (False, True)
        assert bench.gate.states()[A].reason is error.code
        assert bench.changes == 3

    @pytest.mark.parametrize("error", OTHERS, ids=lambda error: type(error).__name__)
    def test_nothing_else_does(self, error: JobError | None) -> None:
        """A job's own failure says nothing of the next job."""
        bench = Bench().opened()
        bench.gate.observe(A, error)
        assert bench.gate.states()[A].standing is Standing.READY
        assert bench.gate.is_open(A) is not isinstance(error, ConnectionLost)
        assert bench.changes == 2 + isinstance(error, ConnectionLost)

    def test_a_lost_connection_has_its_model_looked_at_once(self) -> None:
        """At once, before it is sent another job; its server may be gone, and no other job may be there to find out."""
        bench = Bench().opened()
        bench.gate.observe(A, ConnectionLost())
        assert bench.gate.due() == [A]
        assert (bench.gate.is_open(A), bench.gate.is_open(B)) == (False, True)
        bench.gate.looked_at(A, None)
        assert bench.gate.is_open(A)
        assert bench.gate.due() == []

    def test_a_lost_connection_shortens_no_pause(self) -> None:
        """What is out of order is looked at anyhow."""
        bench = Bench().opened()
        bench.gate.pause(A, RuntimeUnavailable())
        bench.gate.observe(A, ConnectionLost())
        assert bench.pause_of(A) == FIRST_PAUSE_MS

    def test_of_many_that_fail_together_the_first_counts(self) -> None:
        """64 in flight are one outage, not 64."""
        bench = Bench().opened()
        bench.gate.pause(A, RuntimeUnavailable())
        state = bench.gate.states()[A]
        for _ in range(63):
            bench.clock.pass_ms(1)
            bench.gate.pause(A, RuntimeUnavailable())
        assert bench.gate.states()[A] == state
        assert bench.changes == 3

    def test_a_model_that_is_none_of_ours_is_ignored(self) -> None:
        """Such as that of a queue opened by hand."""
        Bench().gate.observe("acme/none", RuntimeUnavailable())

    def test_a_success_while_it_is_paused_opens_nothing(self) -> None:
        """It was sent before, and says nothing of now; the pause keeps its length, too."""
        bench = Bench().opened()
        bench.gate.pause(A, RuntimeUnavailable())
        before = bench.gate.states()[A]
        bench.gate.observe(A, None)
        assert bench.gate.states()[A] == before

    def test_it_opens_after_its_pause_and_a_look_only(self) -> None:
        """The time alone does not open it."""
        bench = Bench().opened()
        bench.gate.observe(A, QueueFull())
        assert bench.gate.due() == []
        assert bench.gate.next_look_ms() == pytest.approx(250)
        bench.clock.pass_ms(250)
        assert bench.gate.due() == [A]
        assert bench.gate.next_look_ms() == 0
        assert not bench.gate.is_open(A)
        bench.gate.looked_at(A, None)
        assert bench.gate.is_open(A)
        assert bench.gate.states()[A].reason is None

    def test_pauses_grow_while_each_look_passes_and_each_job_fails(self) -> None:
        """Ready and unable, as with a full queue: it is let in more and more rarely."""
        bench = Bench().opened()
        lengths = []
        for _ in range(6):
            bench.gate.observe(A, QueueFull())
            lengths.append(bench.pause_of(A))
            bench.clock.pass_ms(5000)
            bench.gate.looked_at(A, None)
        assert lengths == [250, 500, 1000, 2000, 4000, 5000]

    def test_a_success_after_it_opened_forgets(self) -> None:
        """The next pause is a short one again; nobody is told, since its standing is the same."""
        bench = Bench().opened()
        for _ in range(3):
            bench.gate.observe(A, QueueFull())
            bench.clock.pass_ms(5000)
            bench.gate.looked_at(A, None)
        changes = bench.changes
        bench.gate.observe(A, None)
        assert bench.changes == changes
        bench.gate.observe(A, QueueFull())
        assert bench.pause_of(A) == 250

    def test_pauses_grow_while_looks_fail(self) -> None:
        """The change is told once, and again for another reason."""
        bench = Bench().opened()
        bench.gate.pause(A, RuntimeUnavailable())
        lengths, changes = [], bench.changes
        for error in (RuntimeUnavailable(), RuntimeUnavailable(), ContractMismatch()):
            bench.clock.pass_ms(5000)
            bench.gate.looked_at(A, error)
            lengths.append(bench.pause_of(A))
        assert lengths == [500, 1000, 2000]
        assert bench.changes == changes + 1

    def test_a_look_at_an_open_model_changes_nothing(self) -> None:
        """Nor is it told."""
        bench = Bench().opened()
        before = dict(bench.gate.states())
        bench.gate.looked_at(A, None)
        assert bench.gate.states() == before
        assert bench.changes == 2

    def test_the_next_look_is_that_of_the_model_that_is_due_first(self) -> None:
        """Whichever was paused first."""
        bench = Bench().opened()
        bench.gate.observe(A, QueueFull())
        bench.clock.pass_ms(100)
        bench.gate.observe(B, QueueFull())
        assert bench.gate.next_look_ms() == pytest.approx(150)


def test_a_state_is_a_value() -> None:
    """What is handed out cannot be changed by whoever reads it."""
    state = ModelState()
    with pytest.raises(AttributeError):
        state.strikes = 1  # type: ignore[misc]  # that is the point
    assert replace(state, strikes=1) != state
