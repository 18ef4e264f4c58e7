"""A model whose circuit is open is shut whatever looks give, and is opened again by a look of this worker's own."""

import pytest

from tasks.errors import ErrorCode, ModelNotReady, QueueFull
from tests.fakes import FakeClock
from worker.gate import BETWEEN_LOOKS_MS, FIRST_LOOK_MS, Cause, ModelGate, Standing

A, B = "acme/a", "acme/b"
CRASHED = ErrorCode.RUNTIME_MODEL_CRASHED


class Bench:
    """A gate of two open models; a draw of a half makes looks as far apart as they are said to be."""

    def __init__(self, models: tuple[str, ...] = (A, B)) -> None:
        self.clock = FakeClock(now_ms=1000)
        self.changes = 0
        self.gate = ModelGate(models, self.clock, lambda: 0.5, self._changed)
        for model in models:
            self.gate.looked_at(model, None)
        self.changes = 0

    def _changed(self) -> None:
        self.changes += 1

    def standing(self, model: str = A) -> tuple[Standing, ErrorCode | None]:
        """Return a model's standing and the reason for it."""
        state = self.gate.states()[model]
        return state.standing, state.reason

    def look_in(self, model: str = A) -> float:
        """Return how long it is until the model is looked at."""
        return self.gate.states()[model].look_at_ms - self.clock.monotonic_ms()


def test_a_held_model_is_shut_and_says_for_what() -> None:
    """At once, it alone; whoever looks and beats is told."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    assert (bench.gate.is_open(A), bench.gate.is_open(B)) == (False, True)
    assert bench.standing() == (Standing.PAUSED, CRASHED)
    assert bench.changes == 1


def test_it_is_known_to_have_died_while_it_is_held_for_that() -> None:
    """Whatever looks say; held for something else it may be alive."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    bench.gate.looked_at(A, ModelNotReady())
    bench.gate.hold(B, ErrorCode.RUNTIME_TIMEOUT, watched=True)
    assert (bench.gate.has_died(A), bench.gate.has_died(B)) == (True, False)
    bench.gate.let_go(A, watched=True)
    assert not bench.gate.has_died(A)


def test_it_is_looked_at_soon_and_then_about_every_second() -> None:
    """However the looks end: by them it is told that it was away."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    assert bench.look_in() == FIRST_LOOK_MS / 2
    bench.clock.pass_ms(FIRST_LOOK_MS)
    assert bench.gate.due() == [A]
    for error in (None, ModelNotReady(), ModelNotReady(), None):
        bench.gate.looked_at(A, error)
        assert bench.look_in() == BETWEEN_LOOKS_MS
        bench.clock.pass_ms(BETWEEN_LOOKS_MS)


def test_a_look_that_passes_does_not_open_it() -> None:
    """A model whose process is dead calls itself ready."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    bench.gate.looked_at(A, None)
    assert bench.standing() == (Standing.PAUSED, CRASHED)


def test_a_look_that_fails_says_why_until_one_passes() -> None:
    """The health key shows what is known newest."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    bench.gate.looked_at(A, ModelNotReady())
    assert bench.standing() == (Standing.PAUSED, ErrorCode.RUNTIME_UNAVAILABLE)
    assert bench.gate.states()[A].cause is Cause.NOT_READY
    bench.gate.looked_at(A, None)
    assert bench.standing() == (Standing.PAUSED, CRASHED)
    assert bench.gate.states()[A].cause is None


def test_let_go_it_is_open_if_its_last_look_passed() -> None:
    """Half open: jobs are taken at once, and looks go on."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    bench.gate.looked_at(A, None)
    bench.gate.let_go(A, watched=True)
    assert bench.standing() == (Standing.READY, None)
    assert bench.look_in() == BETWEEN_LOOKS_MS
    bench.gate.let_go(A, watched=False)
    bench.clock.pass_ms(1e6)
    assert bench.gate.due() == []
    assert bench.gate.is_open(A)


@pytest.mark.parametrize("looked", [[], [ModelNotReady()], [None, ModelNotReady()]])
def test_let_go_it_stays_shut_until_a_look_of_this_worker_passes(looked: list[ModelNotReady | None]) -> None:
    """The others may reach the model, and this one not."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    for error in looked:
        bench.gate.looked_at(A, error)
    bench.gate.let_go(A, watched=False)
    assert not bench.gate.is_open(A)
    assert bench.gate.due() == [A]
    bench.gate.looked_at(A, None)
    assert bench.gate.is_open(A)


def test_a_look_that_fails_while_it_is_half_open_shuts_it() -> None:
    """Until one passes."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    bench.gate.looked_at(A, None)
    bench.gate.let_go(A, watched=True)
    bench.gate.looked_at(A, ModelNotReady())
    assert not bench.gate.is_open(A)
    bench.gate.looked_at(A, None)
    assert bench.gate.is_open(A)


def test_held_anew_it_needs_a_new_look() -> None:
    """That of the time before says nothing."""
    bench = Bench()
    bench.gate.hold(A, CRASHED, watched=True)
    bench.gate.looked_at(A, None)
    bench.gate.hold(A, CRASHED, watched=True)
    bench.gate.let_go(A, watched=True)
    assert not bench.gate.is_open(A)


def test_one_that_an_operator_holds_is_not_looked_at() -> None:
    """It would change nothing; let go, it is looked at at once."""
    bench = Bench()
    bench.gate.hold(A, None, watched=False)
    bench.clock.pass_ms(1e6)
    assert bench.gate.due() == []
    assert bench.gate.next_look_ms() is None
    assert bench.standing() == (Standing.PAUSED, None)
    bench.gate.let_go(A, watched=True)
    assert bench.gate.due() == [A]
    assert bench.changes == 2


def test_one_that_was_never_looked_at_stays_so_until_it_is() -> None:
    """A worker that starts while a circuit is open is starting, and then paused."""
    bench = Bench(())
    bench.gate = ModelGate([A], bench.clock, lambda: 0.5, lambda: None)
    bench.gate.hold(A, CRASHED, watched=True)
    assert bench.standing()[0] is Standing.STARTING
    bench.gate.looked_at(A, None)
    assert bench.standing() == (Standing.PAUSED, CRASHED)
    bench.gate.let_go(A, watched=False)
    assert bench.gate.is_open(A)


def test_a_pause_of_this_worker_is_over_by_a_look_though_its_circuit_is_watched() -> None:
    """A full queue while half open."""
    bench = Bench()
    bench.gate.let_go(A, watched=True)
    bench.gate.observe(A, QueueFull())
    assert not bench.gate.is_open(A)
    bench.clock.pass_ms(250)
    assert bench.gate.due() == [A]
    bench.gate.looked_at(A, None)
    assert bench.gate.is_open(A)


def test_letting_go_of_what_is_not_held_leaves_its_pause() -> None:
    """A circuit that closes says nothing of a model that is not ready here."""
    bench = Bench()
    bench.gate.observe(A, ModelNotReady())
    bench.gate.let_go(A, watched=False)
    assert bench.standing() == (Standing.PAUSED, ErrorCode.RUNTIME_UNAVAILABLE)


def test_hundreds_of_models_are_looked_at_less_often_each() -> None:
    """A server that is away is not asked thousands of times a second when it comes back."""
    models = tuple(f"acme/{n}" for n in range(500))
    bench = Bench(models)
    for model in models:
        bench.gate.hold(model, CRASHED, watched=True)
        bench.gate.looked_at(model, ModelNotReady())
    assert bench.look_in(models[-1]) == 500 * 20
