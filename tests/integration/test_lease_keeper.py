"""A worker keeps its lease on a real Redis, ends who is dead, and learns when it was itself taken for dead."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
import redis
from structlog.testing import capture_logs

from tasks.generate import Clock
from tests.committer_contract import KEYS, claim, jobs, settle, words
from tests.fakes import FakeClock
from tests.integration.bench import A_WEEK, Ledgers, RedisBench
from tests.jobs import MODEL
from worker.clock import MonotonicClock
from worker.lease import Incarnation
from worker.lease_keeper import LeaseEvents, LeaseKeeper, LeaseTerms, WorkerIdTaken
from worker.redis_link import RedisLink, RedisUnavailable
from worker.sandbox.valkey_server import ValkeyServer

LEASE_SECONDS = 0.3
LOOKS_A_LEASE = 6
INTERVAL_SECONDS = 0.05
PATIENT_SECONDS = 60.0
"""A lease that is still trusted when the machine has stood still for a while."""

DEAD = "triton-09:dead"


class Rig:
    """A keeper, and what it was told; with a clock of the test's, it is the test that renews."""

    def __init__(
        self,
        link: RedisLink,
        worker_id: str = "triton-01",
        lease_seconds: float = LEASE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or MonotonicClock()
        self.incarnation = Incarnation(worker_id, lease_seconds * 1000, clock)
        self.lost = 0
        self.trusted_when_lost: list[bool] = []
        self.reaped: list[int] = []
        terms = LeaseTerms(worker_id, lease_seconds, A_WEEK)
        self.more = 0
        self.keeper = LeaseKeeper(
            link,
            KEYS,
            self.incarnation,
            terms,
            clock,
            LeaseEvents(self._on_lost, self._on_more, self.reaped.append),
        )

    def _on_lost(self) -> None:
        self.lost += 1
        self.trusted_when_lost.append(self.incarnation.is_trusted())

    def _on_more(self) -> None:
        self.more += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let it renew meanwhile, from the moment that it has entered."""
        self.keeper.enter()
        greenlet = gevent.spawn(self.keeper.run)
        try:
            yield
            assert not greenlet.ready(), f"it ended: {greenlet.exception}"
        finally:
            greenlet.kill()


@pytest.fixture
def rig(redis_url: str, ledgers: Ledgers) -> Rig:
    """A keeper of triton-01's lease."""
    return Rig(ledgers.link(redis_url))


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still until the test lets it pass, however long the machine does."""
    return FakeClock()


@pytest.fixture
def timed(redis_url: str, ledgers: Ledgers, clock: FakeClock) -> Rig:
    """A keeper of triton-01's lease that goes by that clock."""
    return Rig(ledgers.link(redis_url), clock=clock)


@pytest.fixture
def other(redis_url: str, ledgers: Ledgers) -> Rig:
    """A keeper of triton-02's lease."""
    return Rig(ledgers.link(redis_url), "triton-02")


def until(holds: Callable[[], object], seconds: float = 30.0) -> float:
    """Wait, letting greenlets run, until something holds; returns how long that took, in seconds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, "waited in vain"
        gevent.sleep(0.002)
    return time.monotonic() - began


def lease(client: redis.Redis, worker_id: str) -> list[str]:
    """Return the lease of a worker: whose it is, its counter, its length."""
    text: Any = client.hget(KEYS.leases, worker_id)
    return text.decode().split() if text else []


def looks(client: redis.Redis, worker_id: str) -> int:
    """Return how often a worker has renewed its lease, and so looked at everyone's."""
    return int(lease(client, worker_id)[1])


def until_more_looks(client: redis.Redis, *worker_ids: str, more: int = LOOKS_A_LEASE + 2) -> None:
    """Wait until each of these has looked so many times more: often enough to take for dead who stands still, if nothing else is said."""
    before = [looks(client, worker_id) for worker_id in worker_ids]
    until(lambda: all(looks(client, each) >= was + more for each, was in zip(worker_ids, before, strict=True)))


def test_entering_takes_the_lease(valkey: redis.Redis, timed: Rig) -> None:
    """And it may be trusted from then on."""
    assert not timed.incarnation.is_trusted()
    timed.keeper.enter()
    assert lease(valkey, "triton-01") == [timed.incarnation.name, "0", "300"]
    assert timed.incarnation.is_trusted()


def test_it_renews_by_itself(valkey: redis.Redis, timed: Rig, clock: FakeClock) -> None:
    """While it is trusted without a gap: a renewal each interval is enough for that."""
    with timed.running():
        for counter in range(1, 2 * LOOKS_A_LEASE):
            until(lambda wanted=counter: looks(valkey, "triton-01") >= wanted)  # type: ignore[misc]  # a default is no type
            clock.pass_ms(INTERVAL_SECONDS * 1000)
            assert timed.incarnation.is_trusted()
    assert timed.lost == 0


@pytest.mark.parametrize(
    ("lease_seconds", "interval_seconds"), [(10.0, 0.5), (3.0, 0.5), (1.2, 0.2), (LEASE_SECONDS, INTERVAL_SECONDS)]
)
def test_a_long_lease_is_renewed_twice_a_second(
    redis_url: str, ledgers: Ledgers, lease_seconds: float, interval_seconds: float
) -> None:
    """A dead run is to be found soon after its lease, however long that is; a short one is renewed six times in its length."""
    rig = Rig(ledgers.link(redis_url), lease_seconds=lease_seconds)
    assert rig.keeper._interval_seconds == pytest.approx(interval_seconds)


def test_a_dead_run_of_the_same_worker_is_ended_first(bench: RedisBench, rig: Rig) -> None:
    """After its lease; its jobs are next in line, and whoever counts is told."""
    bench.push(*jobs("a", "b"))
    claim(bench, incarnation="triton-01:dead")
    bench.client.hset(KEYS.leases, "triton-01", "triton-01:dead 5 300")
    bench.push(*jobs("c"))
    began = time.monotonic()
    with capture_logs() as lines:
        rig.keeper.enter()
    assert time.monotonic() - began >= LEASE_SECONDS
    assert lease(bench.client, "triton-01")[0] == rig.incarnation.name
    assert bench.queued() == jobs("a", "b", "c")
    assert rig.reaped == [2]
    assert [line["event"] for line in lines] == ["lease.was_awaited", "worker.declared_dead"]
    assert rig.lost == 0


def test_a_worker_id_has_one_live_process(
    valkey: redis.Redis, redis_url: str, ledgers: Ledgers, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is refused as soon as the first has moved, and disturbs nothing."""
    second = Rig(ledgers.link(redis_url))
    ask, in_the_way = second.keeper._asked_to_enter, list[str]()

    def asked() -> str:
        in_the_way.append(ask())
        return in_the_way[-1]

    monkeypatch.setattr(second.keeper, "_asked_to_enter", asked)
    with rig.running():
        with pytest.raises(WorkerIdTaken, match="triton-01"):
            second.keeper.enter()
        *before, moved = in_the_way
        assert len(set(before)) == 1
        assert moved not in before
        assert lease(valkey, "triton-01")[0] == rig.incarnation.name
    assert (rig.lost, second.reaped) == (0, [])


def test_a_dead_run_of_another_worker_is_ended_in_time(bench: RedisBench, timed: Rig, clock: FakeClock) -> None:
    """By the first look after its lease; a run that lives is left alone however long it holds its claims."""
    bench.push(*jobs("a"))
    claim(bench, incarnation=DEAD)
    bench.client.hset(KEYS.leases, "triton-09", f"{DEAD} 7 300")
    timed.keeper.enter()
    timed.keeper.renew()
    for _ in range(LOOKS_A_LEASE):
        assert timed.reaped == []
        clock.pass_ms(INTERVAL_SECONDS * 1000)
        timed.keeper.renew()
    assert timed.reaped == [1]
    assert timed.more == 1  # What it held of its pool is there now, and nobody else is told.
    assert bench.queued() == jobs("a")
    assert lease(bench.client, "triton-09") == []


def test_claims_without_a_lease_are_found(bench: RedisBench, rig: Rig) -> None:
    """Of a run that has none any more, whatever became of it."""
    bench.push(*jobs("a"))
    claim(bench, incarnation=DEAD)
    bench.client.hdel(KEYS.leases, "triton-09")
    with rig.running():
        until(lambda: rig.reaped)
    assert (rig.reaped, bench.queued()) == ([1], jobs("a"))
    assert not bench.client.exists(KEYS.claimants)


def test_an_idle_dead_run_frees_its_worker_id(valkey: redis.Redis, rig: Rig) -> None:
    """It has nothing to give back; that is no reason to keep it."""
    valkey.hset(KEYS.leases, "triton-09", f"{DEAD} 7 300")
    with rig.running():
        until(lambda: not lease(valkey, "triton-09"))
    assert rig.reaped == [0]


def test_a_run_with_a_longer_lease_is_given_its_time(bench: RedisBench, rig: Rig) -> None:
    """Each lease says how long it is."""
    bench.client.hset(KEYS.leases, "triton-09", f"{DEAD} 7 600")
    with rig.running():
        took = until(lambda: rig.reaped)
    assert took >= 0.6 - INTERVAL_SECONDS


def test_of_many_who_look_one_ends_it(bench: RedisBench, rig: Rig, other: Rig) -> None:
    """Its jobs go back once."""
    bench.push(*jobs("a", "b"))
    claim(bench, incarnation=DEAD)
    bench.client.hset(KEYS.leases, "triton-09", f"{DEAD} 7 300")
    with rig.running(), other.running():
        until(lambda: rig.reaped or other.reaped)
        until_more_looks(bench.client, "triton-01", "triton-02")
    assert rig.reaped + other.reaped == [2]
    assert bench.queued() == jobs("a", "b")


class TestALostLease:
    def test_it_learns_so_and_goes_on_under_another_name(self, bench: RedisBench, timed: Rig) -> None:
        """Everything is forgotten before the new lease is taken; nothing of the old one can be had any more."""
        rig = timed
        rig.keeper.enter()
        before = rig.incarnation.name
        bench.push(*jobs("a"))
        bench.made[before] = bench.make(before)
        (one,) = claim(bench, incarnation=before).claims
        assert bench.reap(before, " ".join(lease(bench.client, "triton-01"))) == 1
        with capture_logs() as lines:
            rig.keeper.renew()
        assert rig.lost == 1
        assert rig.incarnation.name != before
        assert rig.incarnation.is_trusted()
        assert lease(bench.client, "triton-01")[0] == rig.incarnation.name
        assert [line["event"] for line in lines] == ["lease.was_lost"]
        assert words(bench, settle(one), incarnation=before) == (-1,)
        assert bench.queued() == jobs("a")

    def test_it_is_not_trusted_while_it_waits_for_another(
        self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers
    ) -> None:
        """Nothing is begun without a lease."""
        rig = Rig(ledgers.link(redis_url), lease_seconds=PATIENT_SECONDS)
        rig.keeper.enter()
        valkey.hset(KEYS.leases, "triton-01", "triton-01:another 5 300")
        rig.keeper.renew()
        assert rig.trusted_when_lost == [False]
        assert rig.incarnation.is_trusted()

    def test_another_process_may_have_its_worker_id_by_then(
        self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers, rig: Rig
    ) -> None:
        """Of two that are configured alike, the one that was frozen too long is refused."""
        rig.keeper.enter()
        valkey.hdel(KEYS.leases, "triton-01")
        second = Rig(ledgers.link(redis_url))
        with second.running(), pytest.raises(WorkerIdTaken):
            rig.keeper.renew()
        assert second.lost == 0

    def test_all_of_redis_may_be_gone(self, valkey: redis.Redis, rig: Rig) -> None:
        """After FLUSHALL it begins anew as after any loss."""
        with rig.running():
            valkey.flushall()
            until(lambda: rig.lost)
            until(lambda: lease(valkey, "triton-01"))
        assert lease(valkey, "triton-01")[0] == rig.incarnation.name


class TestLeaving:
    def test_the_lease_is_gone_at_once(self, valkey: redis.Redis, rig: Rig) -> None:
        """The same worker may start again without waiting."""
        rig.keeper.enter()
        rig.keeper.leave()
        assert lease(valkey, "triton-01") == []

    def test_with_claims_it_stays(self, bench: RedisBench, rig: Rig, other: Rig) -> None:
        """Then another worker ends it, as one that died."""
        rig.keeper.enter()
        bench.push(*jobs("a"))
        bench.made[rig.incarnation.name] = bench.make(rig.incarnation.name)
        claim(bench, incarnation=rig.incarnation.name)
        rig.keeper.leave()
        assert lease(bench.client, "triton-01")[0] == rig.incarnation.name
        with other.running():
            until(lambda: other.reaped)
        assert bench.queued() == jobs("a")

    def test_without_redis_it_says_so(self, durable_valkey: ValkeyServer, ledgers: Ledgers) -> None:
        """Its lease stands still from then on."""
        rig = Rig(ledgers.link(durable_valkey.url))
        rig.keeper.enter()
        durable_valkey.kill()
        with pytest.raises(RedisUnavailable):
            rig.keeper.leave()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_an_outage_is_nobodys_death(durable_valkey: ValkeyServer, ledgers: Ledgers, how: str) -> None:
    """However long it is, beside the leases: when Redis is back, everyone is as before."""
    rigs = [
        Rig(ledgers.link(durable_valkey.url, socket_timeout=1.0), worker_id) for worker_id in ("triton-01", "triton-02")
    ]
    names = [rig.incarnation.name for rig in rigs]
    with redis.Redis.from_url(durable_valkey.url) as client, rigs[0].running(), rigs[1].running():
        until(lambda: all(looks(client, worker_id) > 1 for worker_id in ("triton-01", "triton-02")))
        durable_valkey.kill() if how == "killed" else durable_valkey.freeze()
        until(lambda: not any(rig.incarnation.is_trusted() for rig in rigs))
        gevent.sleep(3 * LEASE_SECONDS)
        durable_valkey.restart() if how == "killed" else durable_valkey.thaw()
        until_more_looks(client, "triton-01", "triton-02")
        assert [rig.incarnation.name for rig in rigs] == names
    assert [(rig.lost, rig.reaped) for rig in rigs] == [(0, [])] * 2


def test_scripts_that_the_server_has_forgotten_are_loaded_again(valkey: redis.Redis, rig: Rig) -> None:
    """As after a restart."""
    rig.keeper.enter()
    valkey.script_flush()
    rig.keeper.renew()
    assert lease(valkey, "triton-01") == [rig.incarnation.name, "1", "300"]


def test_a_job_that_takes_longer_than_the_lease_keeps_its_claim(bench: RedisBench, rig: Rig, other: Rig) -> None:
    """However long: what is renewed is the run, not its jobs."""
    with rig.running(), other.running():
        run = rig.incarnation.name
        bench.made[run] = bench.make(run)
        bench.push(*jobs("a"))
        (one,) = claim(bench, incarnation=run).claims
        until_more_looks(bench.client, "triton-02", more=3 * LOOKS_A_LEASE)
        assert bench.claimed_tags(run) == {one.tag}
        assert words(bench, settle(one), incarnation=run) == (1,)
    assert bench.client.llen(KEYS.jobs(MODEL)) == 0
    assert other.reaped == []


def test_a_renewal_that_comes_late_is_told(timed: Rig, clock: FakeClock) -> None:
    """Whoever would not claim under a lease that may be lost has to hear of it; a renewal in time is nothing new."""
    timed.keeper.enter()
    timed.keeper.renew()
    assert timed.more == 0
    clock.pass_ms(LEASE_SECONDS * 1000)
    assert not timed.incarnation.is_trusted()
    timed.keeper.renew()
    assert (timed.more, timed.incarnation.is_trusted()) == (1, True)
