"""A push to a queue that was found empty rings, within moments, whatever connection breaks in between."""

import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.committer_contract import KEYS, OTHER_MODEL, claim, jobs, settle, words
from tests.integration.bench import BareLedger, Ledgers, RedisBench, enter, ledger_on
from tests.jobs import MODEL
from tests.waiting import wait_until
from worker import doorbell as doorbell_module
from worker.clock import MonotonicClock, RedisClock
from worker.committer import Committer
from worker.doorbell import Doorbell
from worker.exchange import Claimed, ClaimRequest, Exchange, Return
from worker.keys import PRIORITIES
from worker.lookout import UNTRACKED_SWEEP_MS, Lookout
from worker.redis_link import Command, RedisLink
from worker.sandbox.valkey_server import ValkeyServer

pytestmark = pytest.mark.leaves("claims:*")


class Stopped(Exception):
    """The listener was told to end."""


class Rig:
    """A doorbell that listens in a thread, and a committer that claims in the test's."""

    def __init__(self, client: redis.Redis, url: str) -> None:
        self.client = client
        self.rings: list[tuple[float, frozenset[str] | None]] = []
        self.news = 0
        self._stopping = False
        self._numbers = 0
        self.doorbell = Doorbell(RedisLink(url, socket_timeout=0.5), KEYS, self._ring)
        self.link = RedisLink(url)
        enter(client)
        self.committer = Committer(
            self.link,
            ledger_on(self.link),
            self.doorbell,
            RedisClock(MonotonicClock()),
            time.sleep,
            on_connected=self._connected,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _ring(self, models: frozenset[str] | None) -> None:
        if self._stopping:
            raise Stopped
        self.rings.append((time.monotonic(), models))

    def _connected(self) -> None:
        self.news += 1

    def _listen(self) -> None:
        try:
            self.doorbell.listen()
        except Stopped:
            self.doorbell.close()

    def listening(self) -> "Rig":
        """Wait until it listens."""
        wait_until(lambda: self.rings and self.doorbell.client_id, description="the doorbell listens")
        return self

    def close(self) -> None:
        """End the listener: it rings when its connection was cut and made again."""
        self._stopping = True
        if self.doorbell.client_id is not None:
            self.kill(self.doorbell.client_id)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self.link.close()

    def kill(self, client_id: int) -> None:
        """Cut a connection at the server's end."""
        self.client.client_kill_filter(_id=str(client_id))

    def claim(self, *models: str, wanted: int = 0) -> Claimed:
        """Claim from these models' queues, by default nothing."""
        self._numbers += 1
        reply = self.committer.exchange(Exchange(claim=ClaimRequest(self._numbers, wanted, models or (MODEL,))))
        assert reply.claimed is not None
        return reply.claimed

    def rung(self) -> set[str]:
        """Return the models that it has rung for, and forget them."""
        rung = {model for _, models in self.rings for model in models or ()}
        self.rings.clear()
        return rung

    def wait_for(self, *models: str | None) -> None:
        """Wait until it has rung for each of these, None meaning any."""
        rung: set[str | None] = set()

        def all_of_them() -> bool:
            for _, named in list(self.rings):
                rung.update(named if named is not None else {None})
            return rung >= set(models)

        wait_until(all_of_them, description=f"it rings for {models[:3]}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it connect anew sooner than it would, since each test ends so."""
    monkeypatch.setattr(doorbell_module, "_RECONNECT_SECONDS", 0.01)


@pytest.fixture
def rig(valkey: redis.Redis, redis_url: str) -> Iterator[Rig]:
    """A rig on the session's Valkey that listens, and is tied to the claims."""
    rig = Rig(valkey, redis_url).listening()
    rig.claim()
    assert rig.committer.is_told_of_pushes()
    rig.rings.clear()
    yield rig
    rig.close()


def test_a_push_rings_within_50_ms(rig: Rig) -> None:
    """In the middle of 20; the queue is claimed empty again after each."""
    delays = []
    for n in range(20):
        began = time.monotonic()
        rig.client.lpush(KEYS.jobs(MODEL), *jobs(f"j-{n}"))
        rig.wait_for(MODEL)
        delays.append(rig.rings[0][0] - began)
        rig.rings.clear()
        assert len(rig.claim(wanted=10).claims) == 1
    assert statistics.median(delays) < 0.05


@pytest.mark.parametrize("priority", PRIORITIES)
def test_each_priority_list_rings_for_its_model(rig: Rig, priority: str) -> None:
    """One empty list beside a full one says nothing; all of them are listened to."""
    rig.client.lpush(KEYS.jobs(MODEL) + priority, *jobs("a"))
    rig.wait_for(MODEL)
    rig.client.delete(KEYS.jobs(MODEL) + priority)


@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize("taken", PRIORITIES)
def test_each_list_rings_after_the_last_job_of_any_was_taken(rig: Rig, taken: str, priority: str) -> None:
    """What a claim takes from a list makes the server forget who wanted to hear of it; the same claim asks again."""
    rig.client.lpush(KEYS.jobs(MODEL) + taken, *jobs("a", "b"))
    rig.wait_for(MODEL)
    claimed = rig.claim(wanted=10)
    assert (len(claimed.claims), claimed.empty) == (2, frozenset({MODEL}))
    rig.rings.clear()
    rig.client.lpush(KEYS.jobs(MODEL) + priority, *jobs("c"))
    rig.wait_for(MODEL)
    rig.client.delete(KEYS.jobs(MODEL) + priority)


def test_it_rings_once_for_what_nobody_looked_at_since(rig: Rig) -> None:
    """Further pushes need no bell: the queue will be looked at."""
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("a"))
    rig.wait_for(MODEL)
    rig.rings.clear()
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("b"))
    rig.claim(OTHER_MODEL)
    rig.client.lpush(KEYS.jobs(OTHER_MODEL), *jobs("c"))
    rig.wait_for(OTHER_MODEL)
    assert rig.rung() == {OTHER_MODEL}


def test_what_the_worker_puts_back_itself_does_not_ring(rig: Rig) -> None:
    """So the intake has to remember it; another worker is told."""
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("a"))
    rig.wait_for(MODEL)
    (one,) = rig.claim(wanted=1).claims
    rig.claim(OTHER_MODEL)
    rig.rings.clear()
    rig.committer.exchange(Exchange((Return(one.tag),)))
    rig.client.lpush(KEYS.jobs(OTHER_MODEL), *jobs("b"))
    rig.wait_for(OTHER_MODEL)
    assert rig.rung() == {OTHER_MODEL}


def test_hundreds_of_queues_ring_through_one_connection(rig: Rig) -> None:
    """Each for itself."""
    models = [f"acme/m-{n}" for n in range(500)]
    rig.claim(*models)
    for model in models:
        rig.client.lpush(KEYS.jobs(model), *jobs("a"))
    rig.wait_for(*models)


def test_when_everything_is_deleted_it_rings_for_all(rig: Rig) -> None:
    """The server has forgotten what it was asked to tell."""
    rig.client.flushall()
    rig.wait_for(None)
    enter(rig.client)
    rig.claim()
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("a"))
    rig.wait_for(None, MODEL)


def test_its_own_connection_may_be_cut(rig: Rig) -> None:
    """It listens anew, rings for what it missed, and is tied to the claims again by the next of them."""
    first = rig.doorbell.client_id
    assert first is not None
    rig.kill(first)
    rig.wait_for(None)
    assert rig.doorbell.client_id != first
    assert not rig.committer.is_told_of_pushes()
    news = rig.news
    rig.claim()
    assert rig.committer.is_told_of_pushes()
    assert rig.news > news
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("a"))
    rig.wait_for(MODEL)


def test_the_claiming_connection_may_be_cut(rig: Rig) -> None:
    """The next claim connects anew, and ties the bell to that connection before it looks."""
    (client_id,) = rig.link.call([["CLIENT", "ID"]])
    rig.kill(client_id)
    rig.claim()
    assert rig.committer.is_told_of_pushes()
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("a"))
    rig.wait_for(MODEL)


def test_both_may_be_cut_at_once(rig: Rig) -> None:
    """As by a restart of the server, or a proxy between."""
    for client_id in [one["id"] for one in rig.client.client_list() if one["id"] != str(rig.client.client_id())]:
        rig.client.client_kill_filter(_id=client_id)
    rig.wait_for(None)
    rig.claim()
    assert rig.committer.is_told_of_pushes()
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("a"))
    rig.wait_for(MODEL)


def test_a_quiet_line_is_tried_and_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answered ping is no ring, and no reason to connect anew."""
    client_id = rig.doorbell.client_id
    assert client_id is not None
    link, awaited = rig.doorbell._link, threading.Event()
    send, read = link.send, link.read

    def sent(command: Command) -> None:
        awaited.set()
        send(command)

    def read_soon(timeout: float | None = None) -> Any:
        """It is silent at once; an answer that is on its way comes in time, however long the machine stands still."""
        message = read(timeout if awaited.is_set() else 0.01)
        awaited.clear()
        return message

    monkeypatch.setattr(link, "send", sent)
    monkeypatch.setattr(link, "read", read_soon)
    rig.client.lpush(KEYS.jobs(MODEL), *jobs("a"))
    rig.wait_for(MODEL)
    rig.rings.clear()
    pings = _pings(rig.client)
    wait_until(lambda: _pings(rig.client) >= pings + 5, description="the line was tried")
    assert rig.rings == []
    assert rig.doorbell.client_id == client_id


def _pings(client: redis.Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_ping", {}).get("calls", 0))


def test_a_dead_line_is_noticed(durable_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-open connection never rings: when a ping is not answered, it is given up."""
    monkeypatch.setattr(doorbell_module, "_PING_SECONDS", 0.05)
    client = redis.Redis.from_url(durable_valkey.url)
    rig = Rig(client, durable_valkey.url).listening()
    try:
        first = rig.doorbell.client_id
        rig.rings.clear()
        durable_valkey.freeze()
        wait_until(lambda: rig.doorbell.client_id is None, description="the line is given up")
        monkeypatch.setattr(
            doorbell_module, "_PING_SECONDS", 10.0
        )  # A moment's silence is no reason to give up the next one.
        durable_valkey.thaw()
        rig.wait_for(None)
        assert rig.doorbell.client_id not in (None, first)
    finally:
        durable_valkey.thaw()
        rig.close()
        client.close()


@pytest.mark.parametrize("denied", ["-client|tracking", "resetchannels"])
def test_a_user_who_may_not_listen_still_gets_jobs(
    valkey: redis.Redis, redis_url: str, denied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sweeps, ten a second, until the permission is given."""
    monkeypatch.setattr(doorbell_module, "_REFUSED_SECONDS", 0.02)
    client: Any = valkey
    client.execute_command("ACL", "SETUSER", "deaf", "on", "nopass", "~*", "&*", "+@all", denied)
    rig = Rig(valkey, redis_url.replace("redis://", "redis://deaf:x@"))
    try:
        if denied == "-client|tracking":
            rig.listening()
        lookout = Lookout(lambda _: True, rig.committer.is_told_of_pushes)
        lookout.open(MODEL)
        first = lookout.request(0, 1)
        assert first is not None
        rig.committer.exchange(Exchange(claim=first))
        assert not rig.committer.is_told_of_pushes()
        assert lookout.next_look_ms() == UNTRACKED_SWEEP_MS
        valkey.lpush(KEYS.jobs(MODEL), *jobs("a"))
        sweep = lookout.request(UNTRACKED_SWEEP_MS, 1)
        assert sweep is not None
        claimed = rig.committer.exchange(Exchange(claim=sweep)).claimed
        assert claimed is not None
        assert [one.job_id for one in claimed.claims] == ["a"]
        client.execute_command("ACL", "SETUSER", "deaf", "&*", "+@all")
        rig.listening()
        rig._numbers = 10
        rig.claim()
        assert rig.committer.is_told_of_pushes()
    finally:
        client.execute_command("ACL", "SETUSER", "deaf", "&*", "+@all")
        rig.close()
        client.execute_command("ACL", "DELUSER", "deaf")


def test_jobs_leave_nothing_in_the_servers_memory_of_what_was_read(
    valkey: redis.Redis, redis_url: str, ledgers: Ledgers
) -> None:
    """Else it would grow with each job, until it is full and slows all claims."""

    def remembered() -> int:
        info: Any = valkey.info("stats")
        return int(info["tracking_total_keys"])

    link = ledgers.link(redis_url)
    enter(valkey)
    link.call([["CLIENT", "TRACKING", "ON", "NOLOOP"]])
    bench = RedisBench(valkey, lambda incarnation: BareLedger(ledger_on(link, incarnation)), ledgers.leases(redis_url))
    seen = []
    for number in range(1, 4):
        bench.push(*jobs(*(f"{number}-{n}" for n in range(200))))
        claims = claim(bench, number, 200).claims
        assert len(claims) == 200
        words(bench, *(settle(one) for one in claims))
        seen.append(remembered())
    assert seen[2] <= seen[0]
