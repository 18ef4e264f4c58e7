"""What a worker does about its circuits at once, whatever Redis is told of it later."""

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from tasks.errors import (
    ContractMismatch,
    ErrorCode,
    InvalidJob,
    JobError,
    ModelCrashed,
    ModelNotReady,
    QueueFull,
    RuntimeUnavailable,
)
from tests.fakes import FakeClock
from worker.circuit import Circuit, CircuitTerms, Look, State, after_look, forced
from worker.circuit_copy import CircuitCopy
from worker.circuit_store import CircuitStore, Stored
from worker.circuit_sync import CircuitSync
from worker.circuits import Circuits
from worker.clock import RedisClock
from worker.gate import ModelGate, Standing
from worker.keys import Keys
from worker.looks import Looks
from worker.observation import Observation
from worker.redis_link import RedisLink
from worker.tracking import Tracking
from worker.triton.server import Statistics

A, B, OTHER = "acme/a", "acme/b", "acme/other"
TERMS = CircuitTerms()
NOW_MS = 1_796_000_000_000


class SaidLooks(Looks):
    """Looks that end as the test says."""

    error: JobError | None = None
    statistics = Statistics()

    def __init__(self) -> None:
        super().__init__(NotImplemented, NotImplemented, lambda _: self.statistics)

    def look(self, model: str) -> None:  # noqa: ARG002 - all models are the same to it
        """End so."""
        if self.error is not None:
            raise self.error


class Bench:
    """The circuits of three public names, two of which are one Triton model; all are open. Nothing is connected."""

    def __init__(self, terms: CircuitTerms = TERMS) -> None:
        self.clock = FakeClock()
        redis_clock = RedisClock(self.clock)
        redis_clock.heard(NOW_MS)
        self.changes = 0
        models = {A: "shared", B: "shared", OTHER: "alone"}
        self.gate = ModelGate(models, self.clock, lambda: 0.5, self._changed)
        link = RedisLink("redis://127.0.0.1:1")
        store = CircuitStore(link, Keys("speedinfer"), "gpu-1")
        copies = {name: CircuitCopy(terms, lambda: 0.5) for name in models.values()}
        tracking = Tracking(link, store.key(""), lambda: None)
        self.sync = CircuitSync(copies, store, tracking, self.clock, redis_clock, lambda: 0.5, "w")
        self.looks = SaidLooks()
        self.circuits = Circuits(models, self.gate, self.looks, self.sync, redis_clock, terms, lambda: 0.5)
        for model in models:
            self.look(model)
        self.changes = 0

    def observe(self, error: JobError | None, model: str = A, times: int = 1, ago_ms: int = 0) -> None:
        """Deliveries end so that were claimed so long ago."""
        for _ in range(times):
            self.circuits.observe(Observation(model, self.now_ms - ago_ms, error))

    def look(self, model: str = A, error: JobError | None = None) -> None:
        """A look of this worker ends so."""
        self.looks.error, failed = error, None
        try:
            self.circuits.look(model)
        except JobError as failure:
            failed = failure
        self.circuits.looked_at(model, failed)

    def hear(self, circuit: Circuit) -> None:
        """Another worker or an operator has written this of the shared one."""
        self.sync.copies["shared"].heard(Stored(circuit, f"other-{id(circuit)}"), self.now_ms)
        self.circuits.heard("shared")

    def open(self) -> dict[str, bool]:
        """Which models jobs are taken of."""
        return {model: self.circuits.admits(model) for model in (A, B, OTHER)}

    @property
    def now_ms(self) -> int:
        """Redis' time."""
        return self.circuits.redis_clock.now_ms()

    @property
    def circuit(self) -> Circuit:
        """The shared circuit as this worker has it."""
        return self.sync.copies["shared"].circuit

    def state(self) -> State:
        """Its state."""
        return self.circuit.state

    def _changed(self) -> None:
        self.changes += 1


ALL_OPEN: Mapping[str, bool] = {A: True, B: True, OTHER: True}
OTHER_OPEN: Mapping[str, bool] = {A: False, B: False, OTHER: True}


class TestOpening:
    def test_failures_in_a_row_shut_every_name_of_the_model_at_once(self) -> None:
        """Of that model alone; looks and heartbeats are told."""
        bench = Bench()
        bench.observe(RuntimeUnavailable(), A, times=2)
        bench.observe(RuntimeUnavailable(), B, times=2)
        assert bench.open() == ALL_OPEN
        bench.observe(RuntimeUnavailable(), A)
        assert bench.open() == OTHER_OPEN
        assert bench.circuits.states() == {A: State.OPEN, B: State.OPEN}
        assert bench.gate.states()[B].reason is ErrorCode.RUNTIME_UNAVAILABLE
        assert bench.changes >= 2

    def test_a_refused_connection_pauses_nothing_by_itself(self) -> None:
        """It is the circuit's: others of the endpoint count it too."""
        bench = Bench()
        bench.observe(RuntimeUnavailable(), times=4)
        assert bench.open() == ALL_OPEN

    def test_where_a_circuit_opens_late_or_never_jobs_do_not_go_round_and_round(self) -> None:
        """This worker pauses a model that cannot be reached by itself."""
        bench = Bench(CircuitTerms(consecutive_failures=10**6, minimum_calls=100))
        bench.observe(RuntimeUnavailable(), times=9)
        assert bench.open() == ALL_OPEN
        bench.observe(RuntimeUnavailable())
        assert bench.open() == {A: False, B: True, OTHER: True}
        assert bench.state() is State.CLOSED

    def test_slow_successes_open_it_too(self) -> None:
        """Where it is configured what is slow."""
        bench = Bench(CircuitTerms(slow_call_ms=100.0))
        for inference_ms in [101] * 19 + [100]:
            bench.circuits.observe(Observation(A, bench.now_ms, None, None, inference_ms))
        assert bench.open() == ALL_OPEN
        bench.circuits.observe(Observation(A, bench.now_ms, None, None, 101))
        assert bench.open() == OTHER_OPEN
        assert bench.circuit.reason == "slow_call"

    def test_a_dead_process_opens_at_once(self) -> None:
        """One is enough."""
        bench = Bench()
        bench.observe(ModelCrashed())
        assert bench.open() == OTHER_OPEN

    @pytest.mark.parametrize("error", [InvalidJob(), QueueFull(), ModelNotReady()])
    def test_what_does_not_count_opens_nothing(self, error: JobError) -> None:
        """A full queue and a model that is not ready pause that name here."""
        bench = Bench()
        bench.observe(error, times=1000)
        assert bench.circuit == Circuit()
        assert bench.circuits.admits(B)
        assert bench.circuits.admits(A) == isinstance(error, InvalidJob)

    def test_a_mismatch_opens_the_circuit_and_pauses_this_worker(self) -> None:
        """Another's configuration may fit: half open, this one still waits for its own check."""
        bench = Bench()
        bench.observe(ContractMismatch())
        bench.look(A, ContractMismatch())
        bench.look(B)
        bench.hear(Circuit(State.HALF_OPEN, "runtime_contract_mismatch", changed_ms=NOW_MS + 5))
        assert bench.open() == {A: False, B: True, OTHER: True}

    def test_what_was_claimed_before_an_opening_changes_nothing(self) -> None:
        """Neither its end nor its length."""
        bench = Bench()
        bench.observe(ModelCrashed())
        opened = bench.circuit
        bench.clock.pass_ms(100)
        bench.observe(ModelCrashed(), times=10, ago_ms=200)
        bench.observe(None, times=10, ago_ms=200)
        assert bench.circuit == opened

    def test_a_model_that_is_none_of_ours_is_ignored(self) -> None:
        """Such as that of a queue opened by hand."""
        Bench().observe(ModelCrashed(), "acme/none")


class TestRecovery:
    def crashed(self) -> Bench:
        """A bench whose model has just crashed, and was looked at since."""
        bench = Bench()
        bench.looks.statistics = Statistics(5, 5, 1, 7)
        bench.observe(ModelCrashed())
        for model in (A, B):
            bench.look(model)
        return bench

    def test_a_look_that_passes_opens_nothing_before_its_time(self) -> None:
        """A model whose process is dead calls itself ready."""
        bench = self.crashed()
        bench.clock.pass_ms(7_499)
        bench.look(A)
        assert bench.state() is State.OPEN
        bench.clock.pass_ms(1)
        bench.look(A)
        assert bench.state() is State.HALF_OPEN
        assert bench.open() == ALL_OPEN

    @pytest.mark.parametrize("error", [RuntimeUnavailable(), ModelNotReady()])
    def test_a_model_that_was_away_and_is_back_is_tried_at_once(self, error: JobError) -> None:
        """The look that passes does it, whichever name it was of that was seen away."""
        bench = self.crashed()
        bench.look(A, error)
        assert bench.state() is State.OPEN
        bench.look(A)
        assert bench.state() is State.HALF_OPEN

    def test_a_reload_between_two_looks_is_seen(self) -> None:
        """By what Triton counts."""
        bench = self.crashed()
        bench.looks.statistics = Statistics()
        bench.look(A)
        assert bench.state() is State.HALF_OPEN

    def test_a_reload_before_the_opening_is_none(self) -> None:
        """What was known from then is forgotten."""
        bench = Bench()
        bench.looks.statistics = Statistics(1000, 1000, 0, 7)
        bench.observe(ModelCrashed())
        bench.look(A)
        bench.hear(Circuit(changed_ms=NOW_MS + 1))
        bench.look(A)
        bench.look(B)
        bench.looks.statistics = Statistics(1, 1, 1, 9)
        bench.clock.pass_ms(10)
        bench.observe(ModelCrashed())
        bench.look(A)
        assert bench.state() is State.OPEN

    def test_a_mismatch_is_not_being_away(self) -> None:
        """The model answers."""
        bench = self.crashed()
        bench.look(A, ContractMismatch())
        bench.look(A)
        assert bench.state() is State.OPEN

    def test_having_been_away_once_does_not_count_twice(self) -> None:
        """It crashed again at the first probe: this opening has a time of its own."""
        bench = self.crashed()
        bench.look(A, RuntimeUnavailable())
        bench.look(A)
        bench.clock.pass_ms(5)
        bench.observe(ModelCrashed())
        bench.look(A)
        assert (bench.state(), bench.circuit.opens) == (State.OPEN, 2)

    def test_half_open_by_another_it_takes_jobs_after_a_look_of_its_own(self) -> None:
        """One whose Triton is cut off from this worker is left to the others."""
        bench = Bench()
        bench.observe(RuntimeUnavailable(), times=5)
        bench.look(A, RuntimeUnavailable())
        bench.hear(after_look(bench.circuit, Look(passed=True, was_away=True), TERMS, NOW_MS + 9))
        assert bench.open() == OTHER_OPEN
        bench.look(A)
        assert bench.open() == {A: True, B: False, OTHER: True}

    def test_closed_by_another_it_still_needs_a_look_of_its_own(self) -> None:
        """Else a worker that cannot reach the model would open it again for all."""
        bench = Bench()
        bench.observe(RuntimeUnavailable(), times=5)
        bench.look(A, RuntimeUnavailable())
        bench.hear(Circuit(changed_ms=NOW_MS + 9))
        assert bench.open() == OTHER_OPEN
        assert bench.circuits.states() == {}
        bench.look(A)
        assert bench.circuits.admits(A)

    def test_half_open_unheard_of_it_is_looked_at_first(self) -> None:
        """It was opened and tried while this worker did not listen."""
        bench = Bench()
        bench.hear(Circuit(State.HALF_OPEN, "runtime_timeout", changed_ms=NOW_MS + 9))
        assert bench.open() == OTHER_OPEN
        assert set(bench.gate.due()) == {A, B}

    def test_probes_that_succeed_close_it(self) -> None:
        """And looks end."""
        bench = self.crashed()
        bench.look(A, ModelNotReady())
        bench.look(A)
        bench.observe(None, times=3)
        assert bench.state() is State.CLOSED
        assert bench.open() == ALL_OPEN
        bench.clock.pass_ms(1e9)
        assert bench.gate.due() == []


class TestOperators:
    def forced(self, state: State | None, circuit: Circuit | None = None) -> Circuit:
        """What an operator writes."""
        return forced(circuit or Circuit(), state, reason="maintenance", by="anna", now_ms=NOW_MS)

    def test_forced_open_takes_no_jobs_and_no_looks(self) -> None:
        """Until it is let go: then it is tried."""
        bench = Bench()
        bench.hear(self.forced(State.OPEN))
        assert bench.open() == OTHER_OPEN
        assert bench.gate.states()[A].standing is Standing.PAUSED
        bench.clock.pass_ms(1e9)
        assert bench.gate.due() == []
        bench.hear(self.forced(None, bench.circuit))
        assert bench.circuits.states() == {A: State.HALF_OPEN, B: State.HALF_OPEN}
        bench.look(A)
        assert bench.circuits.admits(A)

    def test_forced_closed_takes_jobs_whatever_fails(self) -> None:
        """As far as this worker can run them."""
        bench = Bench()
        bench.observe(ModelCrashed())
        bench.look(A)
        bench.look(B)
        bench.hear(self.forced(State.CLOSED))
        bench.observe(ModelCrashed(), times=100)
        assert bench.open() == ALL_OPEN

    def test_forced_closed_jobs_of_a_triton_that_is_away_do_not_go_round_and_round(self) -> None:
        """This worker pauses the model by itself."""
        bench = Bench()
        bench.hear(self.forced(State.CLOSED))
        bench.observe(RuntimeUnavailable())
        assert bench.open() == {A: False, B: True, OTHER: True}


class TestTelling:
    def test_a_healthy_model_has_nothing_to_tell(self) -> None:
        """Not to Redis, and not to this process."""
        bench = Bench()
        bench.observe(None, times=1000)
        assert not bench.sync._due_ms
        assert bench.changes == 0

    def test_changes_are_logged_once_each(self) -> None:
        """With the model, the reason and the rule; who forced it is named."""
        bench = Bench()
        with capture_logs() as logs:
            bench.observe(ModelCrashed(), times=5)
            bench.look(A, ModelNotReady())
            bench.look(A)
            bench.observe(None, times=3)
            bench.hear(forced(Circuit(), State.OPEN, reason="maintenance", by="anna", now_ms=NOW_MS + 1))
        told = [log for log in logs if log["event"].startswith("circuit.")]
        assert [log["event"] for log in told] == [
            "circuit.opened",
            "circuit.half_opened",
            "circuit.closed",
            "circuit.forced",
        ]
        assert {log["triton_model"] for log in told} == {"shared"}
        assert told[0]["reason"] == "runtime_model_crashed"
        assert told[0]["rule"] == "at_once"
        assert (told[3]["by"], told[3]["reason"], told[3]["state"]) == ("anna", "maintenance", "open")

    def test_an_opening_that_another_was_quicker_to_write_is_logged_once(self) -> None:
        """Its time is the other's."""
        bench = Bench()
        with capture_logs() as logs:
            bench.observe(ModelCrashed())
            bench.hear(
                Circuit(State.OPEN, "runtime_model_crashed", retry_ms=NOW_MS + 9, opens=1, changed_ms=NOW_MS - 1)
            )
        assert [log["event"] for log in logs if log["event"].startswith("circuit.")] == ["circuit.opened"]
        assert bench.circuit.retry_ms == NOW_MS + 9
