"""A worker's health key and its place in the registry, on a real Redis."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import gevent
import pytest
import redis

from tests.committer_contract import KEYS
from tests.integration.bench import Ledgers
from worker.clock import MonotonicClock, RedisClock
from worker.heartbeat import Heartbeat
from worker.redis_link import RedisLink, RedisUnavailable
from worker.registration import Beat, Registration
from worker.sandbox.valkey_server import ValkeyServer

FIELDS = {"state": "ready", "heartbeat_at": "now"}
A_DAY_MS = 86_400_000
A, B = "acme/a", "acme/b"
DECLARED = {A: '{"kind":"text","max_prompt_bytes":1', B: '{"kind":"text","max_prompt_bytes":2'}


def beat(*able: str, **fields: str) -> Beat:
    """Return what is said with these models able."""
    return Beat({**FIELDS, **fields}, frozenset(able))


class Rig:
    """A heartbeat, and the clock that it tells the time."""

    def __init__(
        self,
        link: RedisLink,
        every_seconds: float = 5.0,
        worker_id: str = "triton-01",
        declared: Mapping[str, str] = DECLARED,
        doorbell_id: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.clock = RedisClock(MonotonicClock())
        self.pauses: list[frozenset[str]] = []
        registration = Registration(worker_id, declared, every_seconds)
        self.heartbeat = Heartbeat(link, KEYS, registration, self.clock, self.pauses.append, doorbell_id)
        self.said = 0

    def say(self) -> Beat:
        """Return what to say; each time something else."""
        self.said += 1
        return beat(A, said=str(self.said))

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Let it beat meanwhile."""
        greenlet = gevent.spawn(self.heartbeat.run, self.say)
        try:
            yield
        finally:
            greenlet.kill()


@pytest.fixture
def link(redis_url: str, ledgers: Ledgers) -> RedisLink:
    """A connection to the session's Valkey."""
    return ledgers.link(redis_url)


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait, letting greenlets run, until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        gevent.sleep(0.002)


def server_ms(client: redis.Redis) -> int:
    """Return Redis' time."""
    seconds, micros = client.time()
    return seconds * 1000 + micros // 1000


def lived_ms(client: redis.Redis, key: str, since_ms: int) -> int:
    """Return a time to live that was given since then at the least, by Redis' clock: what is left of it, and all that has passed."""
    left_ms = int(client.pttl(key))
    return left_ms + server_ms(client) - since_ms


def test_a_beat_writes_the_health_key_and_the_registry(valkey: redis.Redis, link: RedisLink) -> None:
    """The key lives for three beats; the registry has the worker by Redis' time."""
    before = server_ms(valkey)
    Rig(link).heartbeat.beat(beat())
    after = server_ms(valkey)
    assert valkey.hgetall(KEYS.worker("triton-01")) == {b"state": b"ready", b"heartbeat_at": b"now"}
    assert valkey.pttl(KEYS.worker("triton-01")) <= 15_000 <= lived_ms(valkey, KEYS.worker("triton-01"), before)
    score = valkey.zscore(KEYS.workers, "triton-01")
    assert score is not None
    assert before <= score <= after


def test_a_repeat_writes_the_same_again(valkey: redis.Redis, link: RedisLink) -> None:
    """And renews its time."""
    rig = Rig(link)
    rig.heartbeat.beat(beat())
    valkey.pexpire(KEYS.worker("triton-01"), 10_000)
    before = server_ms(valkey)
    rig.heartbeat.beat(beat(state="draining"))
    assert valkey.hget(KEYS.worker("triton-01"), "state") == b"draining"
    assert lived_ms(valkey, KEYS.worker("triton-01"), before) >= 15_000
    assert valkey.zcard(KEYS.workers) == 1


def test_a_beat_tells_redis_time(valkey: redis.Redis, link: RedisLink) -> None:
    """Of which this process' own clock knows nothing."""
    rig = Rig(link)
    before = server_ms(valkey)
    rig.heartbeat.beat(beat())
    assert before <= rig.clock.now_ms() <= server_ms(valkey) + 1


def test_redis_time_can_be_learned_without_a_beat(valkey: redis.Redis, link: RedisLink) -> None:
    """Before anything is written with it."""
    rig = Rig(link)
    before = server_ms(valkey)
    rig.heartbeat.sync_clock()
    assert before <= rig.clock.now_ms() <= server_ms(valkey) + 1
    assert not valkey.exists(KEYS.worker("triton-01"), KEYS.workers)


def test_a_forgotten_script_is_loaded_again(valkey: redis.Redis, link: RedisLink) -> None:
    """As after a restart of the server."""
    rig = Rig(link)
    rig.heartbeat.beat(beat())
    valkey.script_flush()
    rig.heartbeat.beat(beat())
    assert valkey.exists(KEYS.worker("triton-01"))


def test_a_worker_that_leaves_is_gone(valkey: redis.Redis, link: RedisLink) -> None:
    """From all registries; others stay."""
    rig = Rig(link)
    for registry in (KEYS.workers, KEYS.model_workers(A)):
        valkey.zadd(registry, {"triton-02": server_ms(valkey)})
    rig.heartbeat.beat(beat(A, B))
    rig.heartbeat.leave()
    assert not valkey.exists(KEYS.worker("triton-01"))
    assert valkey.zrange(KEYS.workers, 0, -1) == valkey.zrange(KEYS.model_workers(A), 0, -1) == [b"triton-02"]
    assert not valkey.exists(KEYS.model_workers(B))


def test_who_has_been_silent_for_a_day_is_forgotten(valkey: redis.Redis, link: RedisLink) -> None:
    """Ids made of host names would add up for ever; a day less is waited for."""
    now_ms = server_ms(valkey)
    valkey.zadd(KEYS.workers, {"long-gone": now_ms - A_DAY_MS, "gone": now_ms - A_DAY_MS + 60_000})
    Rig(link).heartbeat.beat(beat())
    assert valkey.zrange(KEYS.workers, 0, -1) == [b"gone", b"triton-01"]


def test_it_beats_regularly(valkey: redis.Redis, link: RedisLink) -> None:
    """Each time with what is so then."""
    rig = Rig(link, every_seconds=0.02)
    with rig.beating():  # The key lives for three beats, so it is read while they go on.
        until(lambda: int(valkey.hget(KEYS.worker("triton-01"), "said") or 0) >= 3)


def test_a_change_is_told_at_once(valkey: redis.Redis, link: RedisLink) -> None:
    """Not at the next beat."""
    rig = Rig(link, every_seconds=60)
    with rig.beating():
        until(lambda: rig.said == 1)
        rig.heartbeat.beat_soon()
        until(lambda: valkey.hget(KEYS.worker("triton-01"), "said") == b"2")


def test_a_change_while_a_beat_is_under_way_is_told_by_another(valkey: redis.Redis, link: RedisLink) -> None:
    """What it says may be of before the change."""
    rig = Rig(link, every_seconds=60)

    def change_while_told() -> Beat:
        if rig.said == 0:
            rig.heartbeat.beat_soon()
        return rig.say()

    greenlet = gevent.spawn(rig.heartbeat.run, change_while_told)
    until(lambda: valkey.hget(KEYS.worker("triton-01"), "said") == b"2")
    greenlet.kill()


def test_a_server_that_is_away_is_waited_for(durable_valkey: ValkeyServer, ledgers: Ledgers) -> None:
    """Meanwhile the key's time to live says that nothing is known of the worker."""
    rig = Rig(ledgers.link(durable_valkey.url, 0.3), every_seconds=0.02)
    with rig.beating():
        until(lambda: rig.said >= 1)
        durable_valkey.kill()
        with pytest.raises(RedisUnavailable):
            rig.heartbeat.sync_clock()
        said = rig.said
        until(lambda: rig.said > said + 1)
        durable_valkey.restart()
        with redis.Redis.from_url(durable_valkey.url) as client:
            until(lambda: client.exists(KEYS.worker("triton-01")))


def test_a_refused_beat_ends_no_heartbeat(valkey: redis.Redis, link: RedisLink) -> None:
    """Such as for a key that is of another type; it beats again when that is mended."""
    valkey.set(KEYS.worker("triton-01"), "no hash", px=60_000)
    rig = Rig(link, every_seconds=0.01)
    with rig.beating():
        until(lambda: rig.said >= 2)
        valkey.delete(KEYS.worker("triton-01"))
        until(lambda: valkey.type(KEYS.worker("triton-01")) == b"hash")
