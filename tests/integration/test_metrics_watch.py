"""What a worker's metrics see of a real Redis: queues, the age of what is next, and the pool."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks import rfc3339
from tests.committer_contract import KEYS
from tests.guarded import guarded_valkey
from tests.integration.bench import Ledgers
from tests.jobs import CLAIMED_AT_MS, MODEL, job_json
from worker.clock import MonotonicClock, RedisClock
from worker.fleet import redis_time_ms
from worker.keys import PRIORITIES
from worker.metrics.links import CountedLink
from worker.metrics.watch import QueueSeen, Seen, Watch
from worker.redis_link import RedisLink, RedisUnavailable

OTHER = "acme/model-2"
A_DAY_MS = 86_400_000


class SetClock(RedisClock):
    """Redis' time as the test sets it."""

    def __init__(self) -> None:
        super().__init__(MonotonicClock())
        self.at_ms = CLAIMED_AT_MS

    def now_ms(self) -> int:
        """Return it."""
        return self.at_ms


@dataclass
class Rig:
    """A watch over two models, and the clock that it goes by."""

    link: RedisLink
    clock: SetClock = field(default_factory=SetClock)
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        """Look at nothing yet."""
        self.watch = Watch(self.link, KEYS, [MODEL, OTHER], "gpu", self.clock)

    def look(self) -> Seen:
        """Look once; it must be answered."""
        self.watch.look()
        assert self.watch.last is not None
        return self.watch.last

    def queue(self, model: str = MODEL) -> QueueSeen:
        """Look at one queue."""
        return self.look().queues[model]


@pytest.fixture
def rig(redis_url: str, ledgers: Ledgers) -> Rig:
    """One over a connection to the session's Valkey."""
    return Rig(ledgers.link(redis_url))


def test_an_empty_redis_has_nothing_waiting(valkey: redis.Redis, rig: Rig) -> None:
    """And no limit is known of a pool that nobody has claimed from."""
    del valkey
    seen = rig.look()
    assert seen.queues == {model: QueueSeen(0, 0, is_paused=False) for model in (MODEL, OTHER)}
    assert (seen.waiting, seen.settlements, seen.dead_letters) == (0, 0, 0)
    assert (seen.pool.slots, seen.pool.max_concurrency, seen.pool.tokens) == (0, None, None)


def test_jobs_are_counted_in_all_lists_of_a_queue(valkey: redis.Redis, rig: Rig) -> None:
    """What Celery producers put into priority lists waits too."""
    for count, priority in enumerate(PRIORITIES, start=1):
        valkey.lpush(KEYS.jobs(MODEL) + priority, *[job_json()] * count)
    assert rig.queue().jobs == 10
    assert rig.queue(OTHER).jobs == 0


def enqueued(clock: SetClock, ago_ms: int, **fields: Any) -> bytes:
    """Return a job that says it was enqueued so long ago."""
    return job_json(enqueued_at=rfc3339.from_ms(clock.at_ms - ago_ms), **fields)


def test_the_oldest_is_the_job_that_is_next_in_line(valkey: redis.Redis, rig: Rig) -> None:
    """By what it says of itself; of several lists that of the one that waits longest."""
    valkey.lpush(KEYS.jobs(MODEL), enqueued(rig.clock, 90_000), enqueued(rig.clock, 5_000))
    valkey.lpush(KEYS.jobs(MODEL) + PRIORITIES[1], enqueued(rig.clock, 30_000))
    assert rig.queue().oldest_ms == 90_000
    valkey.rpop(KEYS.jobs(MODEL))
    assert rig.queue().oldest_ms == 30_000


@pytest.mark.parametrize(
    "head",
    [job_json(), b"nonsense", job_json(enqueued_at="yesterday"), job_json(prompt="x" * 100_000), b"\xff\x00"],
    ids=["no time", "no job", "no valid time", "too long to be read", "no text"],
)
def test_a_job_that_does_not_say_has_waited_at_least_since_it_was_seen(
    valkey: redis.Redis, rig: Rig, head: bytes
) -> None:
    """So a queue that stands still is noticed whatever is in it; another job is another time."""
    valkey.lpush(KEYS.jobs(MODEL), head, job_json(job_id="j-2"))
    assert rig.queue().oldest_ms == 0
    rig.clock.at_ms += 7_000
    assert rig.queue().oldest_ms == 7_000
    valkey.rpop(KEYS.jobs(MODEL))
    assert rig.queue().oldest_ms == 0
    valkey.rpop(KEYS.jobs(MODEL))
    rig.clock.at_ms += 7_000
    assert rig.queue() == QueueSeen(0, 0, is_paused=False)


def test_a_job_from_the_future_has_no_age_below_zero(valkey: redis.Redis, rig: Rig) -> None:
    """Its gateway's clock is not Redis'."""
    valkey.lpush(KEYS.jobs(MODEL), enqueued(rig.clock, -60_000))
    assert rig.queue().oldest_ms == 0


def test_looking_takes_nothing_and_leaves_nothing(valkey: redis.Redis, rig: Rig) -> None:
    """Not even for a moment."""
    valkey.lpush(KEYS.jobs(MODEL), job_json())
    before = sorted(valkey.scan_iter())
    rig.look()
    assert sorted(valkey.scan_iter()) == before
    assert valkey.lrange(KEYS.jobs(MODEL), 0, -1) == [job_json()]


def test_a_key_of_another_type_in_a_queues_place_holds_no_jobs(valkey: redis.Redis, rig: Rig) -> None:
    """The other queues are seen all the same."""
    valkey.set(KEYS.jobs(MODEL), "no list", px=60_000)
    valkey.lpush(KEYS.jobs(OTHER), job_json(model=OTHER))
    assert (rig.queue().jobs, rig.queue(OTHER).jobs) == (0, 1)


@pytest.mark.leaves("waiting", "paused")
def test_what_all_models_share_is_counted(valkey: redis.Redis, rig: Rig) -> None:
    """Jobs that wait for a retry, settlements, dead letters, and whom an operator paused."""
    valkey.zadd(KEYS.waiting, {"a": 1, "b": 2})
    valkey.xadd(KEYS.settlements, {"job_id": "j-1"})
    valkey.xadd(KEYS.dead_letters, {"raw": "x"})
    valkey.sadd(KEYS.paused, OTHER)
    seen = rig.look()
    assert (seen.waiting, seen.settlements, seen.dead_letters) == (2, 1, 1)
    assert (seen.queues[MODEL].is_paused, seen.queues[OTHER].is_paused) == (False, True)


def test_the_pool_is_seen_as_operators_see_it(valkey: redis.Redis, rig: Rig) -> None:
    """Slots that have lapsed are free, and grants older than a minute are not counted."""
    now_ms = rig.clock.at_ms
    limits: dict[Any, Any] = {"max_concurrency": 8, "requests_per_minute": 60, "tokens_per_minute": "", "level": ""}
    valkey.hset(KEYS.pool("gpu"), mapping=limits)
    valkey.zadd(KEYS.pool_slots("gpu"), {"a": now_ms - 1, "b": now_ms + 1, "c": now_ms + A_DAY_MS})
    valkey.zadd(KEYS.pool_grants("gpu"), {"a": now_ms - 60_001, "b": now_ms - 59_000})
    for key in (KEYS.pool("gpu"), KEYS.pool_slots("gpu"), KEYS.pool_grants("gpu")):
        valkey.pexpire(key, 60_000)
    pool = rig.look().pool
    assert (pool.slots, pool.max_concurrency, pool.level) == (2, 8, None)
    assert (pool.requests, pool.requests_limit, pool.tokens, pool.tokens_limit) == (1, 60, None, None)


def test_nothing_old_is_kept_while_redis_refuses_or_is_away(valkey: redis.Redis, rig: Rig) -> None:
    """A figure that stands still would look like a queue that does."""
    rig.look()
    valkey.set(KEYS.waiting, "of another type", px=60_000)
    rig.watch.look()
    assert rig.watch.last is None
    valkey.delete(KEYS.waiting)
    rig.look()


def test_failures_are_counted_by_kind(valkey: redis.Redis, redis_url: str) -> None:
    """Once each, and what was answered is none."""
    errors = {"unavailable": 0, "refused": 0}
    link, away = CountedLink(redis_url, errors), CountedLink("redis://127.0.0.1:1/0", errors)
    assert link.call([["PING"]]) == [b"PONG"]
    assert errors == {"unavailable": 0, "refused": 0}
    valkey.set("text", "x", px=60_000)
    with pytest.raises(redis.ResponseError):
        link.call([["LPUSH", "text", "x"]])
    for ask in (lambda: away.call([["PING"]]), lambda: away.send(["PING"]), lambda: away.read(0.1)):
        with pytest.raises(RedisUnavailable):
            ask()
    assert errors == {"unavailable": 3, "refused": 1}
    link.send(["SUBSCRIBE", "channel"])
    link.read(1)
    with pytest.raises(TimeoutError):
        link.read(0.01)
    assert errors == {"unavailable": 3, "refused": 1}
    Rig(away).watch.look()
    assert errors["unavailable"] == 4
    link.close()


def test_a_workers_rights_are_enough(tmp_path: Path) -> None:
    """Of the users in deploy/redis/users.acl."""
    with guarded_valkey(tmp_path) as server:
        link = RedisLink(server.secret_url("worker"))
        assert Rig(link).look().waiting == 0
        link.close()
        assert server.denied() == []


def test_ages_go_by_redis_clock(valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> None:
    """Not by this machine's."""
    clock = RedisClock(MonotonicClock())
    watch = Watch(ledgers.link(redis_url), KEYS, [MODEL], "gpu", clock)
    enqueued_ms = redis_time_ms(valkey) - 60_000
    valkey.lpush(KEYS.jobs(MODEL), job_json(enqueued_at=rfc3339.from_ms(enqueued_ms)))
    clock.heard(redis_time_ms(valkey) + A_DAY_MS)  # As it would say where this machine's clock is a day behind.
    before_ms = clock.now_ms()
    watch.look()
    assert watch.last is not None
    assert before_ms - enqueued_ms <= watch.last.queues[MODEL].oldest_ms <= clock.now_ms() - enqueued_ms
