"""Circuits that several workers share, on a real Redis: heard of without asking, lost by no outage, opened once by all."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import gevent
import pytest
import redis
from structlog.testing import capture_logs

from tasks.errors import ConnectionLost, JobError, ModelCrashed, ModelNotReady, RuntimeTimeout, RuntimeUnavailable
from tests.committer_contract import KEYS
from tests.integration.lossy_proxy import LossyProxy
from tests.waiting import wait_until
from worker import circuit_sync
from worker.circuit import Circuit, CircuitTerms, State
from worker.circuit_copy import CircuitCopy
from worker.circuit_store import CircuitStore, force, read_circuits
from worker.circuit_sync import CircuitSync
from worker.circuits import Circuits
from worker.clock import MonotonicClock, RedisClock
from worker.doorbell import Doorbell
from worker.gate import ModelGate
from worker.looks import Looks
from worker.observation import Observation
from worker.redis_link import RedisLink
from worker.sandbox.valkey_server import ValkeyServer
from worker.tracking import Tracking
from worker.triton.server import Statistics

ENDPOINT, MODEL, OTHER = "gpu-1:8000", "text_generation", "other"
KEY = KEYS.circuit(ENDPOINT, MODEL)
TERMS = CircuitTerms(open_ms=60_000)
NEVER_MS = 3_600_000.0


class Stopped(Exception):
    """The listener was told to end."""


class ReadyLooks(Looks):
    """Looks that pass, or fail as the test says."""

    error: JobError | None = None

    def look(self, model: str) -> None:  # noqa: ARG002 - all models are the same to it
        """End so."""
        if self.error is not None:
            raise self.error


class Worker:
    """The circuits of one worker, with a doorbell that listens in a thread; all models are open."""

    def __init__(self, url: str, name: str, models: tuple[str, ...] = (MODEL, OTHER)) -> None:
        self.name = name
        self.link, clock = RedisLink(url), MonotonicClock()
        redis_clock = RedisClock(clock)
        self.gate = ModelGate(models, clock, lambda: 0.5, lambda: None)
        self._rung: deque[frozenset[str] | None] = deque()
        self._stopping = False
        self.doorbell = Doorbell(RedisLink(url, socket_timeout=0.5), KEYS, lambda _: None, self._ring)
        store = CircuitStore(self.link, KEYS, ENDPOINT)
        tracking = Tracking(self.link, store.key(""), lambda: self.doorbell.client_id)
        copies = {model: CircuitCopy(TERMS, lambda: 0.5) for model in models}
        self.sync = CircuitSync(copies, store, tracking, clock, redis_clock, lambda: 0.5, name)
        self.looks = ReadyLooks(NotImplemented, NotImplemented, lambda _: Statistics())
        names = {model: model for model in models}
        self.circuits = Circuits(names, self.gate, self.looks, self.sync, redis_clock, TERMS, lambda: 0.5)
        for model in models:
            self.circuits.looked_at(model, None)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        self._loops = [gevent.spawn(self.circuits.run), gevent.spawn(self._pass_on)]

    @property
    def circuit(self) -> Circuit:
        """The circuit of MODEL as this worker has it."""
        return self.sync.copies[MODEL].circuit

    @property
    def is_open(self) -> bool:
        """Whether it takes jobs of MODEL."""
        return self.circuits.admits(MODEL)

    def observe(self, error: JobError | None, times: int = 1, model: str = MODEL) -> None:
        """Deliveries that were just claimed end so."""
        for _ in range(times):
            self.circuits.observe(Observation(model, self.circuits.redis_clock.now_ms(), error))

    def look(self, error: JobError | None = None) -> None:
        """A look at MODEL ends so."""
        self.looks.error, failed = error, None
        try:
            self.circuits.look(MODEL)
        except JobError as failure:
            failed = failure
        self.circuits.looked_at(MODEL, failed)

    def is_told(self) -> bool:
        """Whether it has read everything and hears of changes."""
        return self.sync.tracking.is_told and not self.sync._stale

    def close(self) -> None:
        """End its loops and connections."""
        self._stopping = True
        gevent.killall(self._loops)
        self._thread.join(20)
        self.link.close()

    def _ring(self, keys: frozenset[str] | None) -> None:
        self._rung.append(keys)

    def _listen(self) -> None:
        while not self._stopping:
            try:
                self.doorbell._subscribe()
                self._rung.append(None)
                self._hear()
            except Exception:  # noqa: BLE001 - the server of a test goes away: that is what is tested
                self.doorbell.client_id = None
                time.sleep(0.05)
        self.doorbell.close()

    def _hear(self) -> None:
        while not self._stopping:
            try:
                message = self.doorbell._link.read(0.05)
            except TimeoutError:
                continue
            self.doorbell._tell(message[2])

    def _pass_on(self) -> None:
        while True:
            while self._rung:
                self.sync.changed(self._rung.popleft())
            gevent.sleep(0.001)


class Workers:
    """Makes workers, and ends them after the test."""

    def __init__(self) -> None:
        self._made: list[Worker] = []

    def __call__(self, url: str, *names: str) -> list[Worker]:
        """Workers with these names, once they hear of changes."""
        made = [Worker(url, name) for name in names]
        self._made += made
        until(lambda: all(one.is_told() for one in made))
        return made

    def close(self) -> None:
        """End them."""
        for one in self._made:
            one.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    """What makes workers."""
    made = Workers()
    yield made
    made.close()


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait, letting greenlets run, until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        gevent.sleep(0.002)


def in_redis(client: redis.Redis) -> Circuit:
    """The circuit of MODEL as Redis has it."""
    return read_circuits(client, KEYS, [(ENDPOINT, MODEL)])[ENDPOINT, MODEL]


def commands(client: redis.Redis) -> int:
    """How many commands about circuits Redis has done."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "hgetall", "hset"))


def test_what_one_worker_sees_shuts_the_model_for_all(
    valkey: redis.Redis, redis_url: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without anybody asking: Redis says so. The other model is open."""
    monkeypatch.setattr(circuit_sync, "_SWEEP_MS", NEVER_MS)
    one, other = workers(redis_url, "a", "b")
    asked = commands(valkey)
    one.observe(RuntimeTimeout(), times=5)
    assert not one.is_open
    until(lambda: not other.is_open)
    assert other.circuit == one.circuit == in_redis(valkey)
    assert other.circuits.admits(OTHER)
    assert other.circuits.states() == {MODEL: State.OPEN}
    # The script, twice where it was not loaded yet, what it does, a read by each worker and that of this test.
    assert commands(valkey) - asked <= 6


def test_failures_of_all_workers_make_one_row(valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
    """Each alone has too few of them."""
    fleet = workers(redis_url, *"abcde")
    for one in fleet:
        one.observe(RuntimeTimeout())
    until(lambda: all(not one.is_open and not one.sync._due_ms for one in fleet))
    assert {one.circuit.retry_ms for one in fleet} == {in_redis(valkey).retry_ms}
    assert in_redis(valkey).row.total == 5


def test_a_connection_that_breaks_on_a_server_that_is_away_shuts_the_model_for_all(
    valkey: redis.Redis, redis_url: str, workers: Workers
) -> None:
    """One is enough, where a look right after it cannot ask; who saw that need not see it away once more to try it again."""
    one, other = workers(redis_url, "a", "b")
    one.observe(ConnectionLost())
    one.look(RuntimeUnavailable())
    until(lambda: not other.is_open)
    assert in_redis(valkey).state is State.OPEN
    assert in_redis(valkey).reason == "runtime_unavailable"
    one.look()
    until(lambda: in_redis(valkey).state is State.HALF_OPEN)


@pytest.mark.parametrize("error", [None, ModelNotReady()], ids=["it is there", "it is loading"])
def test_a_connection_that_breaks_on_a_server_that_answers_is_one_failure(
    redis_url: str, workers: Workers, error: JobError | None
) -> None:
    """As is a look that cannot ask, of a model of which no connection broke."""
    (one,) = workers(redis_url, "a")
    one.observe(ConnectionLost())
    one.look(error)
    one.look(RuntimeUnavailable())
    assert (one.circuit.state, one.circuit.row.total) == (State.CLOSED, 1)


def test_workers_that_see_the_same_at_once_open_it_once(valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
    """Whoever writes first is followed, though each had decided on a time of its own."""
    fleet = workers(redis_url, *"abcdefgh")
    with capture_logs() as logs:
        for one in fleet:
            one.observe(ModelCrashed(), times=3)
        until(lambda: len({one.circuit for one in fleet}) == 1 and not any(one.sync._due_ms for one in fleet))
    assert (in_redis(valkey).state, in_redis(valkey).opens) == (State.OPEN, 1)
    assert fleet[0].circuit == in_redis(valkey)
    assert [log["event"] for log in logs if log["event"].startswith("circuit.")] == ["circuit.opened"] * 8


def test_a_success_anywhere_ends_the_row(valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
    """It is told because of the other worker's failures, with those that came before it."""
    one, other = workers(redis_url, "a", "b")
    succeeded = 0

    def ended() -> bool:
        nonlocal succeeded
        other.observe(None, times=10)  # So many that the share of failures opens nothing.
        succeeded += 10
        return one.circuit.row.total == 0

    for _ in range(3):
        one.observe(RuntimeTimeout(), times=4)
        until(ended)
    told = in_redis(valkey)
    assert told.state is State.CLOSED
    failed, is_full = told.window.failures.total, told.window.calls == 100
    assert failed == 12 or is_full  # What came before the last hundred calls is forgotten.
    assert 3 <= told.window.calls - failed <= succeeded


def test_a_healthy_model_costs_no_round_trip(valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
    """However many of its jobs succeed."""
    (one,) = workers(redis_url, "a")
    asked = commands(valkey)
    for _ in range(100):
        one.observe(None, times=100)
        gevent.sleep(0.001)
    assert commands(valkey) == asked
    assert not valkey.exists(KEY)


def test_many_failures_cost_few_round_trips(valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
    """What opens nothing is told together."""
    (one,) = workers(redis_url, "a")
    asked, begun = commands(valkey), time.monotonic()
    for _ in range(200):
        one.observe(None, times=3)
        one.observe(RuntimeTimeout())
        gevent.sleep(0.001)
    done = commands(valkey) - asked
    # Two commands a write: one at once, and one each 100 ms after. A first look at what stands there, and a sweep, are beside them.
    assert done <= 4 + 2 * (1 + (time.monotonic() - begun) / 0.1)
    assert one.is_open
    until(lambda: not one.sync._due_ms)
    assert in_redis(valkey).window == one.circuit.window


def test_it_is_half_open_for_all_when_one_has_seen_it_come_back(
    valkey: redis.Redis, redis_url: str, workers: Workers
) -> None:
    """And closed for all when its probes have succeeded, wherever they ran."""
    one, other = workers(redis_url, "a", "b")
    one.observe(ModelCrashed())
    until(lambda: other.circuit.state is State.OPEN)
    one.look(ModelNotReady())
    one.look()
    until(lambda: other.circuit.state is State.HALF_OPEN)
    assert (one.is_open, other.is_open) == (True, False)
    other.look()
    assert other.is_open
    # What is claimed from now on is later than that, by the copy of Redis' clock that each worker has.
    until(lambda: all(each.circuits.redis_clock.now_ms() > in_redis(valkey).changed_ms for each in (one, other)))
    one.observe(None)
    other.observe(None, times=2)
    until(lambda: one.circuit.state is other.circuit.state is State.CLOSED)
    assert in_redis(valkey).state is State.CLOSED
    assert 86_000_000 < valkey.pttl(KEY) <= 86_400_000


def test_a_worker_that_starts_finds_what_is_open(redis_url: str, workers: Workers) -> None:
    """It takes no jobs of it from the start."""
    (one,) = workers(redis_url, "a")
    one.observe(ModelCrashed())
    until(lambda: not one.sync._due_ms)
    (late,) = workers(redis_url, "late")
    assert not late.is_open
    assert late.circuit == one.circuit


class TestOperators:
    def test_a_word_is_heard_by_all(self, valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
        """With its reason, for as long as it holds."""
        one, other = workers(redis_url, "a", "b")
        said = force(valkey, KEYS, ENDPOINT, MODEL, state=State.OPEN, reason="new driver", by="anna")
        assert (said.reason, said.by, said.forced) == ("new driver", "anna", True)
        until(lambda: not one.is_open and not other.is_open)
        assert one.circuit == other.circuit == in_redis(valkey) == said
        assert valkey.ttl(KEY) == -1
        force(valkey, KEYS, ENDPOINT, MODEL, state=None, reason="done", by="anna")
        until(lambda: one.circuit.state is State.HALF_OPEN)
        assert valkey.ttl(KEY) > 0

    def test_a_word_comes_through_while_workers_write(
        self, valkey: redis.Redis, redis_url: str, workers: Workers
    ) -> None:
        """And holds against whatever they were about to write."""
        fleet = workers(redis_url, *"abc")
        for one in fleet:
            one.observe(RuntimeTimeout(), times=2)
        force(valkey, KEYS, ENDPOINT, MODEL, state=State.CLOSED, reason="r", by="b")
        until(lambda: all(one.circuit.forced and not one.sync._due_ms for one in fleet))
        assert in_redis(valkey).forced
        assert all(one.is_open for one in fleet)
        force(valkey, KEYS, ENDPOINT, MODEL, state=None, reason="r", by="b")

    def test_letting_go_of_what_is_not_forced_writes_nothing(self, valkey: redis.Redis) -> None:
        """It is as it was."""
        assert force(valkey, KEYS, ENDPOINT, MODEL, state=None, reason="r", by="b") == Circuit()
        assert not valkey.exists(KEY)

    def test_a_deleted_key_is_a_closed_circuit(self, valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
        """A worker that could write on what it remembers decides anew."""
        (one,) = workers(redis_url, "a")
        one.observe(RuntimeTimeout(), times=3)
        until(lambda: not one.sync._due_ms)
        valkey.delete(KEY)
        until(lambda: one.circuit == Circuit())
        one.observe(RuntimeTimeout())
        until(lambda: in_redis(valkey).row.total == 1)


class TestOutages:
    def test_what_was_seen_while_redis_was_away_is_told_when_it_is_back(
        self, durable_valkey: ValkeyServer, workers: Workers
    ) -> None:
        """The worker has acted on it all the while, and the others hear of it."""
        one, other = workers(durable_valkey.url, "a", "b")
        durable_valkey.kill()
        one.observe(ModelCrashed())
        assert not one.is_open
        gevent.sleep(0.01)
        assert other.is_open
        durable_valkey.restart()
        until(lambda: not other.is_open)
        assert other.circuit == one.circuit

    def test_a_lost_reply_changes_nothing(self, valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
        """What was done and not heard of is not done again."""
        with LossyProxy(redis_url) as proxy:
            (one,) = workers(proxy.url, "a")
            proxy.lose = 1
            one.observe(RuntimeTimeout(), times=2)
            until(lambda: proxy.lost == 1 and not one.sync._due_ms and not one.sync._stale)
            one.observe(RuntimeTimeout())
            until(lambda: in_redis(valkey).row.total == 3)
            one.close()
        assert one.is_open

    def test_a_cut_doorbell_misses_nothing(self, valkey: redis.Redis, redis_url: str, workers: Workers) -> None:
        """Everything is read again once it listens again."""
        one, other = workers(redis_url, "a", "b")
        valkey.client_kill_filter(_id=str(other.doorbell.client_id))
        one.observe(ModelCrashed())
        until(lambda: not other.is_open)
        one.look(ModelNotReady())
        one.look()
        until(lambda: other.circuit.state is State.HALF_OPEN)

    def test_where_redis_may_say_nothing_circuits_are_read(
        self, valkey: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A user without the right to listen hears later, and acts the same."""
        monkeypatch.setattr(circuit_sync, "_SWEEP_MS", 50.0)
        may = ["+@all", "-client|tracking"]
        valkey.acl_setuser("quiet", enabled=True, passwords=["+p"], keys=["*"], channels=["*"], commands=may)
        quiet = Worker(redis_url.replace("redis://", "redis://quiet:p@"), "quiet")
        try:
            until(lambda: quiet.doorbell.client_id is not None and not quiet.sync._stale)
            assert not quiet.sync.tracking.is_told
            force(valkey, KEYS, ENDPOINT, MODEL, state=State.OPEN, reason="r", by="b")
            until(lambda: not quiet.is_open)
        finally:
            quiet.close()
            valkey.acl_deluser("quiet")
            valkey.delete(KEY)

    def test_a_key_of_another_type_leaves_each_worker_its_own_circuit(
        self, valkey: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is said once, and over when somebody has mended it."""
        monkeypatch.setattr(circuit_sync, "_REFUSED_SECONDS", 0.02)
        valkey.set(KEY, "what is this")
        with capture_logs() as logs:
            one = Worker(redis_url, "a")
            try:
                until(lambda: any(log["event"] == "circuits.were_refused" for log in logs))
                one.observe(ModelCrashed())
                assert not one.is_open
                gevent.sleep(0.1)
                valkey.delete(KEY)
                until(lambda: in_redis(valkey).state is State.OPEN)
            finally:
                one.close()
        assert sum(log["event"] == "circuits.were_refused" for log in logs) <= 2

    def test_scripts_that_were_flushed_are_loaded_again(
        self, valkey: redis.Redis, redis_url: str, workers: Workers
    ) -> None:
        """As everywhere."""
        (one,) = workers(redis_url, "a")
        valkey.script_flush()
        one.observe(ModelCrashed())
        until(lambda: in_redis(valkey).state is State.OPEN)


def test_names_without_a_key_are_read_as_closed(valkey: redis.Redis) -> None:
    """In the order in which they were asked for."""
    force(valkey, KEYS, ENDPOINT, OTHER, state=State.OPEN, reason="r", by="b")
    found = read_circuits(valkey, KEYS, [(ENDPOINT, MODEL), (ENDPOINT, OTHER), ("elsewhere", OTHER)])
    assert [circuit.state for circuit in found.values()] == [State.CLOSED, State.OPEN, State.CLOSED]
    wait_until(lambda: valkey.delete(KEYS.circuit(ENDPOINT, OTHER)), description="it is gone")
