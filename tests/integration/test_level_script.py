"""What the scripts do with the level of an adaptive pool, on a real Redis."""

from dataclasses import replace
from typing import Any

import pytest
import redis

from tests.committer_contract import KEYS, OTHER_RUN, RUN
from tests.integration.adaptive_pool import POOL, enter
from tests.integration.bench import Ledgers, RedisBench
from tests.jobs import MODEL, job_json
from worker.adaptive import Level, Reason
from worker.exchange import ClaimRequest, Exchange
from worker.fleet import redis_time_ms
from worker.level_store import LevelStore, Look, Stored, Write
from worker.redis_link import RedisLink

pytestmark = pytest.mark.leaves("claims:*", "jobs:*")


@pytest.fixture
def link(ledgers: Ledgers, redis_url: str) -> RedisLink:
    """A connection."""
    return ledgers.link(redis_url)


@pytest.fixture
def store(link: RedisLink) -> LevelStore:
    """The level of the pool."""
    return LevelStore(link, KEYS, POOL)


def claim(bench: RedisBench, number: int, run: str = RUN) -> list[str | None]:
    """Claim as many jobs as are granted."""
    reply = bench.exchange(Exchange(claim=ClaimRequest(number, 100, (MODEL,), quotas=())), run)
    assert reply.claimed is not None
    return [one.job_id for one in reply.claimed.claims]


def push(bench: RedisBench, count: int) -> None:
    """Enqueue jobs."""
    bench.push(*(job_json(job_id=f"j-{n}") for n in range(count)), queue=KEYS.jobs(MODEL))


def moved(store: LevelStore, version: str = "v-1", **changes: Any) -> Look:
    """Move the level from what is there."""
    before = store.look(None, {}).stored
    return store.look(Write(before, replace(before.level, **changes), version), {})


class TestTheScript:
    def test_a_pool_that_becomes_adaptive_begins_at_one(self, bench: RedisBench, link: RedisLink) -> None:
        """Before anything is claimed, also where nobody has looked at its level yet."""
        enter(link)
        push(bench, 3)
        assert claim(bench, 1) == ["j-0"]

    def test_the_level_is_what_is_granted(self, bench: RedisBench, link: RedisLink, store: LevelStore) -> None:
        """And never more than max_concurrency."""
        enter(link, 4)
        push(bench, 9)
        moved(store, level=3, changed_ms=1)
        assert claim(bench, 1) == ["j-0", "j-1", "j-2"]
        moved(store, "v-2", level=9, changed_ms=2)
        assert claim(bench, 2) == ["j-3"]

    def test_a_pool_that_is_not_adaptive_has_none(
        self, store: LevelStore, link: RedisLink, valkey: redis.Redis
    ) -> None:
        """A worker that is configured otherwise than the one that started last hears of it, and writes nothing."""
        enter(link, adaptive=False)
        before = valkey.hgetall(KEYS.pool(POOL))
        look = moved(store, level=3)
        assert look == Look(look.now_ms, adaptive=False)
        assert valkey.hgetall(KEYS.pool(POOL)) == before

    def test_who_starts_last_says_whether_it_is_adaptive(
        self, bench: RedisBench, store: LevelStore, link: RedisLink, valkey: redis.Redis
    ) -> None:
        """Its level goes at once, and what it was is said."""
        assert enter(link) == {}
        assert enter(link) == {}
        moved(store, level=7)
        assert enter(link) == {}
        assert store.look(None, {}).stored.level.level == 7
        assert enter(link, adaptive=False) == {"adaptive": "1"}
        names: Any = valkey.hkeys(KEYS.pool(POOL))
        assert not any(name.startswith(b"level") for name in names)
        push(bench, 3)
        assert len(claim(bench, 1)) == 3

    def test_where_the_pool_was_lost_whoever_adapts_says_so(
        self, bench: RedisBench, store: LevelStore, valkey: redis.Redis
    ) -> None:
        """A worker that claims knows nothing of it; where there is no pool at all there is no level either."""
        assert store.look(None, {}).adaptive is False
        assert not valkey.exists(KEYS.pool(POOL))
        push(bench, 1)
        claim(bench, 1)
        look = store.look(None, {})
        assert (look.adaptive, look.stored, look.most) == (True, Stored(Level()), 1000)

    def test_a_write_stands_once(self, store: LevelStore, link: RedisLink) -> None:
        """Repeated after a lost reply it changes nothing and says the same."""
        enter(link)
        write = Write(Stored(), Level(5, Reason.ROOM, changed_ms=1), "v-1")
        first, second = store.look(write, {}), store.look(write, {})
        assert first.stands
        assert (second.stands, second.stored) == (True, first.stored)

    def test_a_write_that_was_decided_on_something_else_does_not_stand(
        self, store: LevelStore, link: RedisLink
    ) -> None:
        """The writer hears of what is there instead."""
        enter(link)
        there = moved(store, level=5).stored
        late = store.look(Write(Stored(), Level(9), "v-late"), {})
        assert (late.stands, late.stored) == (False, there)

    def test_a_fall_is_timed_by_redis(self, store: LevelStore, link: RedisLink, valkey: redis.Redis) -> None:
        """By the clock of the grants, whatever the writer took for now."""
        enter(link)
        before = redis_time_ms(valkey)
        level = moved(store, level=1, changed_ms=7, lowered_ms=7).stored.level
        assert before <= level.lowered_ms == level.changed_ms <= redis_time_ms(valkey)
        assert moved(store, "v-2", level=2, changed_ms=8).stored.level.lowered_ms == level.lowered_ms

    def test_a_level_that_nobody_looks_at_ends(
        self, bench: RedisBench, store: LevelStore, link: RedisLink, valkey: redis.Redis
    ) -> None:
        """Those that are left do not adapt, and are not held down for ever; who does begins anew."""
        enter(link)
        moved(store, level=2, proven=2)
        until_ms = int(valkey.hget(KEYS.pool(POOL), "level_until_ms") or 0)
        assert 50_000 < until_ms - redis_time_ms(valkey) <= 60_000
        valkey.hset(KEYS.pool(POOL), "level_until_ms", redis_time_ms(valkey))
        push(bench, 5)
        assert len(claim(bench, 1)) == 5
        assert store.look(None, {}).stored == Stored(Level())

    def test_it_is_said_whether_the_level_is_in_the_way(
        self, bench: RedisBench, store: LevelStore, link: RedisLink
    ) -> None:
        """As soon as all of it is taken, or somebody waits for some of it."""
        enter(link)
        moved(store, level=2)
        push(bench, 1)
        claim(bench, 1)
        assert not store.look(None, {}).full
        push(bench, 2)  # The first is the same job again.
        claim(bench, 2)
        assert store.look(None, {}).full

    def test_who_waits_for_requests_does_not_run_into_the_level(
        self, bench: RedisBench, store: LevelStore, link: RedisLink
    ) -> None:
        """A level that is not tried proves nothing."""
        enter(link, requests=1)
        moved(store, level=5)
        push(bench, 3)
        assert len(claim(bench, 1)) == 1
        assert not store.look(None, {}).full

    def test_who_waits_is_called_when_the_level_rises(
        self, bench: RedisBench, store: LevelStore, link: RedisLink, valkey: redis.Redis
    ) -> None:
        """Not at the end of the next job only."""
        enter(link)
        push(bench, 3)
        claim(bench, 1)
        assert claim(bench, 1, OTHER_RUN) == []
        assert store.look(None, {}).full
        moved(store, level=3)
        assert all(valkey.exists(f"{KEYS.pool(POOL)}:turn:{run}") for run in (RUN, OTHER_RUN))

    def test_what_has_lapsed_is_not_in_the_way(self, store: LevelStore, link: RedisLink, valkey: redis.Redis) -> None:
        """What a dead holder leaves behind comes back by itself, and does not make the level grow."""
        enter(link)
        valkey.zadd(KEYS.pool_slots(POOL), {f"{MODEL}\ndead/{n}": redis_time_ms(valkey) for n in range(3)})
        look = moved(store, level=3)
        assert (look.stands, look.full, valkey.exists(KEYS.pool_slots(POOL))) == (True, False, 0)

    def test_the_shortest_times_of_all_workers_stand(
        self, store: LevelStore, link: RedisLink, valkey: redis.Redis
    ) -> None:
        """Whoever comes first; asking alone writes nothing, and an era forgets them."""
        enter(link)
        assert store.look(None, {"0 a": 20.0, "0 b": None}).shortest == {"0 a": 20.0, "0 b": 0.0}
        assert store.look(None, {"0 a": 12.5}).shortest == {"0 a": 12.5}
        assert store.look(None, {"0 a": 30.0}).shortest == {"0 a": 12.5}
        assert 86_000 < valkey.ttl(KEYS.pool_paces(POOL)) <= 86_400
        moved(store, era=1)
        assert not valkey.exists(KEYS.pool_paces(POOL))

    @pytest.mark.parametrize("field", ["level", "level_flight", "level_version", "level_until_ms"])
    def test_a_slip_in_redis_is_got_over(
        self, store: LevelStore, link: RedisLink, valkey: redis.Redis, field: str
    ) -> None:
        """What is no level begins anew, and what is no time is learned again."""
        enter(link)
        moved(store, level=9)
        valkey.hset(KEYS.pool(POOL), field, "nonsense")
        valkey.hset(KEYS.pool_paces(POOL), "0 a", "nonsense")
        valkey.expire(KEYS.pool_paces(POOL), 60)
        assert store.look(None, {"0 a": None}).shortest == {"0 a": 0.0}
        assert moved(store, "v-2", level=2).stored.level.level == 2
        assert store.look(None, {"0 a": 20.0}).shortest == {"0 a": 20.0}

    def test_a_level_of_which_nothing_can_be_read_holds_nobody_up(
        self, bench: RedisBench, link: RedisLink, valkey: redis.Redis
    ) -> None:
        """The pool's own limit is there."""
        enter(link)
        valkey.hset(KEYS.pool(POOL), "level", "nonsense")
        push(bench, 3)
        assert len(claim(bench, 1)) == 3
