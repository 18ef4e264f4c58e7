"""Models that are out of order are looked at until a look passes, each in its own time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent
import pytest
from gevent.event import Event

from tasks.errors import ContractMismatch, JobError, ModelNotReady, QueueFull
from worker.clock import MonotonicClock
from worker.gate import ModelGate, Standing
from worker.recovery import Recovery

A, B = "acme/a", "acme/b"


class WatchedGate(ModelGate):
    """A gate that counts how often it is asked what is due."""

    asked = 0

    def due(self) -> list[str]:
        """Count, and answer."""
        self.asked += 1
        return super().due()


class Rig:
    """A gate of two models whose pauses are as short as they get, and looks that end as the test says."""

    def __init__(self) -> None:
        self.looks = Counter[str]()
        self.opened = 0
        self.ends: dict[str, Callable[[], None]] = {}
        self.gate = WatchedGate([A, B], MonotonicClock(), lambda: 0.0, self._changed)
        self.recovery = Recovery(self.gate, self._look, self.gate.looked_at, self._open)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Let it look meanwhile."""
        greenlet = gevent.spawn(self.recovery.run)
        try:
            yield
        finally:
            greenlet.kill()
            self.recovery.close()

    def _changed(self) -> None:
        self.recovery.look_again()

    def _open(self) -> None:
        self.opened += 1

    def _look(self, model: str) -> None:
        self.looks[model] += 1
        self.ends.get(model, lambda: None)()


def until(holds: Callable[[], object]) -> None:
    """Wait, letting greenlets run, until something holds."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        gevent.sleep(0.001)


def fail(error: Exception) -> Callable[[], None]:
    """Return a look that ends so."""

    def end() -> None:
        raise error

    return end


def hold(released: Event, ended: Event | None = None) -> Callable[[], None]:
    """Return a look that hangs until it is released, and says when it has ended in whichever way."""

    def end() -> None:
        try:
            released.wait()
        finally:
            (ended or Event()).set()

    return end


def test_all_models_are_looked_at_at_the_start() -> None:
    """And opened, which is told; then nothing is looked at."""
    rig = Rig()
    with rig.looking():
        until(lambda: rig.gate.is_open(A) and rig.gate.is_open(B))
    assert rig.looks == {A: 1, B: 1}
    assert rig.opened == 2


@pytest.mark.parametrize("error", [ModelNotReady(), ContractMismatch(), RuntimeError("a fault of ours")])
def test_a_look_that_fails_is_repeated_until_one_passes(error: Exception) -> None:
    """Whatever it failed of; the model stays shut meanwhile, the other is open."""
    rig = Rig()
    rig.ends[A] = fail(error)
    with rig.looking():
        until(lambda: rig.looks[A] >= 2)
        assert not rig.gate.is_open(A)
        assert rig.gate.is_open(B)
        reason = rig.gate.states()[A].reason
        assert reason == (error.code if isinstance(error, JobError) else "internal_error")
        rig.ends.clear()
        until(lambda: rig.gate.is_open(A))


def test_a_model_that_is_paused_later_is_looked_at_after_its_pause() -> None:
    """The pause wakes whoever rests, since there was nothing to look at."""
    rig = Rig()
    with rig.looking():
        until(lambda: rig.gate.is_open(A))
        rig.gate.observe(A, QueueFull())
        assert not rig.gate.is_open(A)
        until(lambda: rig.gate.is_open(A))
    assert rig.looks[A] == 2


def test_a_look_that_takes_long_holds_up_no_other() -> None:
    """A model whose server hangs says nothing of the others, whose pauses are short."""
    rig = Rig()
    hanging = Event()
    rig.ends[A] = hold(hanging)
    with rig.looking():
        until(lambda: rig.gate.is_open(B))
        rig.gate.observe(B, QueueFull())
        until(lambda: rig.gate.is_open(B))
        assert rig.gate.states()[A].standing is Standing.STARTING
        assert rig.looks[A] == 1
        assert rig.gate.asked < 20, "it spins"
        hanging.set()
        until(lambda: rig.gate.is_open(A))


def test_a_look_under_way_is_ended_by_closing() -> None:
    """A worker that stops waits for none."""
    rig = Rig()
    ended = Event()
    rig.ends[A] = hold(Event(), ended)
    with rig.looking():
        until(lambda: rig.looks[A] == 1)
    assert ended.is_set()
    assert rig.gate.states()[A].standing is Standing.STARTING
