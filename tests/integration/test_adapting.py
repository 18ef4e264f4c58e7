"""The level of an adaptive pool on a real Redis: shared by its workers, moved once by all, and lost by no outage."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any, Final

import gevent
import pytest
import redis
from structlog.testing import capture_logs

from settings.load import settings_from
from tasks.delivery import Delivery
from tasks.errors import InferenceRejected, JobError, ModelNotReady, QueueFull, RuntimeTimeout
from tasks.generate import Generation, generate
from tests.acceptance.fleet import SEED
from tests.committer_contract import KEYS
from tests.fakes import GENERATION, FakeClock, FakeInference
from tests.generating import ports
from tests.integration.adaptive_pool import POOL, answers_counted, at, enter, level
from tests.integration.bench import Ledgers
from tests.integration.lossy_proxy import LossyProxy
from tests.jobs import delivery
from tests.misbehaving_server import MisbehavingServer, http
from tests.triton_http import TritonRefused, infer, text_generation
from tests.waiting import wait_until
from worker import adapting
from worker.adapting import Adapting
from worker.clock import MonotonicClock
from worker.fleet import redis_time_ms
from worker.level_store import Look, Write
from worker.metrics import pending as pending_module
from worker.metrics.pending import ASKED_AGAIN_MS, PendingRequests
from worker.redis_link import RedisLink, RedisUnavailable
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

METRICS: Final = b'nv_inference_pending_request_count{model="text_generation",version="1"} 5\n'


@pytest.fixture
def link(ledgers: Ledgers, redis_url: str) -> RedisLink:
    """A connection."""
    return ledgers.link(redis_url)


@pytest.fixture
def unreachable() -> str:
    """An address where no Triton shows its metrics."""
    return "http://127.0.0.1:9/metrics"


Make = Callable[..., Adapting]


@pytest.fixture
def worker(ledgers: Ledgers, redis_url: str, unreachable: str, link: RedisLink) -> Iterator[Make]:
    """What makes a worker's part in a pool that is adaptive."""
    enter(link)
    made: list[Adapting] = []

    def make(name: str = "a", url: str = redis_url, metrics_url: str = unreachable, **pool: Any) -> Adapting:
        config = {**SEED, "worker_id": name, "gpu_pool": {"adaptive": True, **pool}, "triton_metrics_url": metrics_url}
        link = ledgers.link(url)
        one = Adapting.of(settings_from(config), KEYS, link, MonotonicClock(), lambda: 0.5)
        assert one is not None
        made.append(one)
        return one

    yield make
    for one in made:
        one.pending.close()


def ended(with_: Generation | JobError = GENERATION, granted_ms: int = 0, ms: int = 100) -> tuple[Delivery, Any]:
    """A delivery that was granted then, and how it ended after so many ms of inference."""
    claimed = delivery(claimed_at_ms=granted_ms)
    return claimed, generate(claimed, ports(FakeInference(with_, takes_ms=ms)))


def sees(worker: Adapting, *ends: tuple[Delivery, Any]) -> None:
    """A worker sees deliveries end."""
    for each in ends:
        worker.observe(*each)


def scripts_run(client: redis.Redis) -> int:
    """How many scripts Redis has run."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


@contextmanager
def losing(worker: Adapting, proxy: LossyProxy, call: int) -> Iterator[None]:
    """Lose the reply to one of the calls of an exchange: 1 is the look, 2 the write."""
    look, calls = worker.store.look, 0

    def counted(write: Write | None, paces: Mapping[str, float | None]) -> Look:
        nonlocal calls
        calls += 1
        proxy.lose = int(calls == call)
        return look(write, paces)

    worker.store.look = counted  # type: ignore[method-assign]  # which reply is lost is what is tested
    yield
    worker.store.look = look  # type: ignore[method-assign]  # as it was


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait, letting greenlets run, until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        gevent.sleep(0.002)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker waits for is over at once."""
    for name in ("_REFUSED_SECONDS", "_OUTAGE_SECONDS", "_SHORTEST_REST_SECONDS", "TICK_SECONDS"):
        monkeypatch.setattr(adapting, name, 0.01)


class TestOneWorker:
    def test_a_full_queue_lowers_the_level(self, worker: Make, valkey: redis.Redis) -> None:
        """What is granted from then on is granted by less."""
        one = worker()
        at(valkey, 10)
        sees(one, ended(QueueFull(), redis_time_ms(valkey)))
        one.exchange()
        assert level(valkey) == 7

    def test_what_was_granted_before_the_fall_counts_no_more(self, worker: Make, valkey: redis.Redis) -> None:
        """A flight of jobs meets a full queue together, and is heard of one after the other."""
        one = worker()
        at(valkey, 10)
        granted_ms = redis_time_ms(valkey)
        for _ in range(5):
            sees(one, ended(QueueFull(), granted_ms))
            one.exchange()
        assert level(valkey) == 7
        sees(one, ended(QueueFull(), redis_time_ms(valkey) + 1))
        one.exchange()
        assert level(valkey) == 4

    def test_good_answers_raise_it(self, worker: Make, valkey: redis.Redis) -> None:
        """A flight of them, while all slots of the level are taken."""
        one = worker()
        at(valkey, 6)
        granted_ms = redis_time_ms(valkey)
        sees(one, *[ended(granted_ms=granted_ms)] * 5)
        one.exchange()
        assert level(valkey) == 6
        sees(one, ended(granted_ms=granted_ms))
        one.exchange()
        assert level(valkey) == 7

    def test_what_nothing_runs_into_is_not_raised(self, worker: Make, valkey: redis.Redis) -> None:
        """A level that is not needed proves nothing."""
        one = worker()
        at(valkey, 6, taken=5)
        sees(one, *[ended(granted_ms=redis_time_ms(valkey))] * 6)
        one.exchange()
        assert (level(valkey), answers_counted(valkey)) == (6, 0)

    def test_no_answer_in_time_is_a_slow_one(self, worker: Make, valkey: redis.Redis) -> None:
        """A server that answers nothing any more is not sent as much as before."""
        one = worker()
        at(valkey, 6)
        sees(one, *[ended(RuntimeTimeout(), redis_time_ms(valkey))] * 6)
        one.exchange()
        assert level(valkey) == 4

    def test_answers_are_measured_by_what_others_have_found(self, worker: Make, valkey: redis.Redis) -> None:
        """A worker that starts while the server is busy is not misled by it."""
        first, second = worker("a"), worker("b")
        sees(first, *[ended(ms=100)] * 5)
        first.exchange()
        at(valkey, 6)
        granted_ms = redis_time_ms(valkey)
        sees(second, ended(granted_ms=granted_ms, ms=400))
        second.exchange()
        sees(second, *[ended(granted_ms=granted_ms, ms=400)] * 6)
        second.exchange()
        assert level(valkey) == 4

    @pytest.mark.usefixtures("quick")
    @pytest.mark.parametrize("error", [ModelNotReady(), InferenceRejected()])
    def test_what_says_nothing_of_the_load_costs_nothing(
        self, worker: Make, valkey: redis.Redis, error: JobError
    ) -> None:
        """Nor does a worker without jobs, but for a look now and then that keeps the level."""
        one = worker()
        one.exchange()
        before = scripts_run(valkey)
        sees(one, ended(error))
        assert not one._is_due()
        for _ in range(3):
            one._tick()
        assert scripts_run(valkey) == before

    def test_a_tick_takes_two_round_trips_at_the_most(self, worker: Make, valkey: redis.Redis) -> None:
        """However much was seen."""
        one = worker()
        at(valkey, 6)
        one.exchange()
        before = scripts_run(valkey)
        sees(one, *[ended(granted_ms=redis_time_ms(valkey))] * 500, ended(QueueFull(), redis_time_ms(valkey)))
        one.exchange()
        assert scripts_run(valkey) - before == 2

    def test_what_changes_is_logged(self, worker: Make, valkey: redis.Redis) -> None:
        """By the worker whose write stands, with the reason."""
        one = worker()
        at(valkey, 10)
        sees(one, ended(QueueFull(), redis_time_ms(valkey)))
        with capture_logs() as logs:
            one.exchange()
        (line,) = logs
        told = {name: line[name] for name in ("event", "pool", "before", "level", "reason", "most")}
        assert told == {
            "event": "level.lowered",
            "pool": POOL,
            "before": 10,
            "level": 7,
            "reason": "queue_full",
            "most": 32,
        }

    def test_a_pool_that_is_not_configured_to_adapt_has_no_part_in_it(self, link: RedisLink) -> None:
        """Nothing is made that could cost anything."""
        assert Adapting.of(settings_from(SEED), KEYS, link, MonotonicClock(), lambda: 0.5) is None

    def test_a_worker_hears_that_the_pool_is_not_adaptive_any_more(
        self, worker: Make, valkey: redis.Redis, link: RedisLink
    ) -> None:
        """And that it is again, by who starts last; what it saw meanwhile is forgotten."""
        one = worker()
        enter(link, adaptive=False)
        sees(one, ended(QueueFull(), redis_time_ms(valkey)))
        one.exchange()
        assert level(valkey) == 0
        enter(link)
        one.exchange()
        assert level(valkey) == 1


class TestSeveralWorkers:
    def test_a_flight_lowers_the_level_once(self, worker: Make, valkey: redis.Redis) -> None:
        """Whichever worker hears of it first; the others' jobs of that flight met the same full queue."""
        first, second = worker("a"), worker("b")
        at(valkey, 10)
        granted_ms = redis_time_ms(valkey)
        for one in (first, second):
            sees(one, ended(QueueFull(), granted_ms))
        first.exchange()
        second.exchange()
        assert level(valkey) == 7

    def test_answers_of_all_workers_make_a_flight(self, worker: Make, valkey: redis.Redis) -> None:
        """None of them has seen all of it."""
        made = [worker(name) for name in "abc"]
        at(valkey, 6)
        granted_ms = redis_time_ms(valkey)
        for one in made:
            sees(one, *[ended(granted_ms=granted_ms)] * 2)
            assert level(valkey) == 6
            one.exchange()
        assert level(valkey) == 7

    def test_who_was_not_quick_enough_decides_anew(self, worker: Make, valkey: redis.Redis) -> None:
        """Between its look and its write another has written; what it saw is neither lost nor counted twice."""
        first, second = worker("a"), worker("b")
        at(valkey, 8)
        granted_ms = redis_time_ms(valkey)
        sees(first, *[ended(granted_ms=granted_ms)] * 3)
        sees(second, *[ended(granted_ms=granted_ms)] * 4)
        look = first.store.look

        def look_in_between(write: Write | None, paces: Mapping[str, float | None]) -> Look:
            if write is not None and second._seen:
                second.exchange()
            return look(write, paces)

        first.store.look = look_in_between  # type: ignore[method-assign]  # what comes between is what is tested
        first.exchange()
        assert answers_counted(valkey) == 4
        first.exchange()
        assert answers_counted(valkey) == 7

    def test_all_of_them_at_once(self, worker: Make, valkey: redis.Redis) -> None:
        """As greenlets of their own: every flight lowers the level once, and nobody stops."""
        made = [worker(name) for name in "abcd"]
        at(valkey, 30)
        loops = [gevent.spawn(one.run) for one in made]
        try:
            for before in (30, 21, 14, 9):
                assert level(valkey) == before
                # What is granted from now on is later than the last fall, and no later than the next one.
                lowered_ms = int(valkey.hget(KEYS.pool(POOL), "level_lowered_ms") or 0)
                until(lambda: redis_time_ms(valkey) > lowered_ms)  # noqa: B023 - as below
                granted_ms = redis_time_ms(valkey)
                for one in made:
                    sees(one, ended(QueueFull(), granted_ms))
                until(lambda: level(valkey) != before)  # noqa: B023 - it is called in this turn
                until(lambda: not any(one._seen for one in made))
            assert level(valkey) == 6
            assert not any(loop.ready() for loop in loops)
        finally:
            gevent.killall(loops)


class TestOutages:
    def test_a_lost_reply_changes_nothing(self, worker: Make, redis_url: str, valkey: redis.Redis) -> None:
        """Whether it was that of the look or of the write: what was seen counts once."""
        for lost in (1, 2):
            with LossyProxy(redis_url) as proxy:
                one = worker(f"lost-{lost}", proxy.url)
                one.exchange()
                at(valkey, 10)
                granted_ms = redis_time_ms(valkey)
                sees(one, *[ended(granted_ms=granted_ms)] * 4)
                with losing(one, proxy, lost), pytest.raises(RedisUnavailable):
                    one.exchange()
                assert proxy.lost == 1
                one.exchange()
                one.exchange()
                assert answers_counted(valkey) == 4
                one.store._scripts._link.close()  # type: ignore[attr-defined]  # the proxy waits for it

    def test_a_write_that_never_arrived_is_done_by_the_next_call(self, worker: Make, valkey: redis.Redis) -> None:
        """A worker cannot tell it from one whose reply was lost."""
        one = worker()
        at(valkey, 10)
        sees(one, *[ended(granted_ms=redis_time_ms(valkey))] * 4)
        look = one.store.look

        def broken(write: Write | None, paces: Mapping[str, float | None]) -> Look:
            if write is not None:
                raise RedisUnavailable
            return look(write, paces)

        one.store.look = broken  # type: ignore[method-assign]  # a connection that breaks at the worst moment
        with pytest.raises(RedisUnavailable):
            one.exchange()
        one.store.look = look  # type: ignore[method-assign]  # as it was
        assert answers_counted(valkey) == 0
        assert one._is_due()
        one.exchange()
        assert answers_counted(valkey) == 4

    def test_a_lost_reply_of_a_fall_lowers_the_level_once(
        self, worker: Make, redis_url: str, valkey: redis.Redis
    ) -> None:
        """Though the worker cannot know whether it was done."""
        with LossyProxy(redis_url) as proxy:
            one = worker("a", proxy.url)
            one.exchange()
            at(valkey, 10)
            sees(one, ended(QueueFull(), redis_time_ms(valkey)))
            with losing(one, proxy, 2), pytest.raises(RedisUnavailable):
                one.exchange()
            assert level(valkey) == 7
            for _ in range(3):
                one.exchange()
            assert level(valkey) == 7
            one.store._scripts._link.close()  # type: ignore[attr-defined]  # the proxy waits for it

    @pytest.mark.usefixtures("quick")
    def test_what_was_seen_before_an_outage_counts_after_it(
        self, worker: Make, durable_valkey: ValkeyServer, ledgers: Ledgers
    ) -> None:
        """The worker tries until Redis is back."""
        with redis.Redis.from_url(durable_valkey.url) as client:
            enter(ledgers.link(durable_valkey.url))
            at(client, 10)
            one = worker("a", durable_valkey.url)
            granted_ms = redis_time_ms(client)
            durable_valkey.kill()
            sees(one, ended(QueueFull(), granted_ms))
            with pytest.raises(RedisUnavailable):
                one.exchange()
            loop = gevent.spawn(one.run)
            try:
                durable_valkey.restart()
                until(lambda: level(client) == 7)
            finally:
                gevent.killall([loop])

    @pytest.mark.usefixtures("quick")
    def test_a_refusal_is_said_once(self, worker: Make, valkey: redis.Redis) -> None:
        """And the worker goes on: its jobs do not need the level to be moved."""
        one = worker()
        valkey.set(KEYS.pool_paces(POOL), "of another type", ex=60)
        sees(one, *[ended()] * 4)
        with capture_logs() as logs:
            for _ in range(3):
                one._tick()
        assert [line["event"] for line in logs] == ["level.was_refused"]
        valkey.delete(KEYS.pool_paces(POOL))
        one._tick()
        assert not one._seen


def pending(metrics_url: str | None, *models: str, clock: FakeClock) -> PendingRequests:
    """Those of a worker of these Triton models."""
    behind = {f"acme/{name}": {"model_name": name} for name in models}
    config = {**SEED, "supported_models": [*behind], "models": behind, "triton_metrics_url": metrics_url}
    return PendingRequests.of(settings_from(config), clock.monotonic_ms)


class TestTriton:
    @pytest.fixture(autouse=True)
    def _patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take an answer that comes late on a busy machine for what it is."""
        monkeypatch.setattr(pending_module, "_TIMEOUT_SECONDS", 30.0)

    def test_what_waits_in_a_real_triton_is_counted(self, triton: TritonServer) -> None:
        """Of the worker's own models alone."""
        clock = FakeClock()
        ours, others = (pending(triton.metrics_url, name, clock=clock) for name in ("queue_timeout", "text_generation"))

        def count(of: PendingRequests) -> int | None:
            clock.pass_ms(ASKED_AGAIN_MS)
            return of.count()

        seen = Event()

        def keep_asking() -> None:
            while not seen.is_set():
                with suppress(TritonRefused):
                    infer(triton.url, "queue_timeout", text_generation("sleep=0.4 a"))

        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(keep_asking) for _ in range(2)]
            try:
                wait_until(lambda: count(ours) == 1, description="one of the two waits")
                assert count(others) == 0
            finally:
                seen.set()
            for one in asked:
                one.result()
        wait_until(lambda: count(ours) == 0, description="none waits any more")
        for each in (ours, others):
            each.close()

    @pytest.mark.parametrize(
        "answer",
        [
            http(200, b"nv_other 1\n"),
            http(503),
            http(200, b'nv_inference_pending_request_count{model="another"} 3\n'),
            http(200, b'nv_inference_pending_request_count{model="text_generation"} many\n'),
            http(200, b"\xff\xfe"),
        ],
    )
    def test_a_triton_that_does_not_show_it_is_asked_now_and_then(self, answer: bytes) -> None:
        """What it says instead is not taken for a number, and is logged once."""
        clock = FakeClock()
        with MisbehavingServer(replies={"/metrics": answer}) as server:
            asked = pending(f"{server.url}/metrics", "text_generation", clock=clock)
            with capture_logs() as logs:
                assert [asked.count(), asked.count()] == [None, None]
                assert len(server.received) == 1
                clock.pass_ms(ASKED_AGAIN_MS)
                assert asked.count() is None
            assert [line["event"] for line in logs] == ["pending_requests.became_unknown"]
            assert len(server.received) == 2
            asked.close()

    def test_the_level_does_not_grow_while_many_wait(self, worker: Make, valkey: redis.Redis) -> None:
        """Asked once a flight, by one of the workers, and only while the level is in the way."""
        with MisbehavingServer(replies={"/metrics": http(200, METRICS)}) as server:
            made = [worker(name, metrics_url=f"{server.url}/metrics") for name in "ab"]
            for one in made:
                one.exchange()
            assert not server.received
            at(valkey, 6)
            granted_ms = redis_time_ms(valkey)
            for one in (*made, made[0]):
                one.exchange()
                sees(one, *[ended(granted_ms=granted_ms)] * 2)
                one.exchange()
            assert level(valkey) == 6
            assert len(server.received) == 1
