"""Which workers are able to run which models, as routing reads it, on a real Redis: kept fresh, left at once, rid of the dead."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
import pytest
import redis

from tests.committer_contract import KEYS
from tests.integration.bench import Ledgers
from tests.integration.test_heartbeat import A_DAY_MS, DECLARED, A, B, Rig, beat, server_ms, until
from tests.waiting import wait_until
from worker.doorbell import Doorbell
from worker.heartbeat import _SHORTEST_REST_SECONDS
from worker.redis_link import RedisLink, RedisUnavailable

DECLARED_500 = {f"acme/model-{n}": '{"kind":"text"' for n in range(500)}


class CountingLink(RedisLink):
    """A link that counts its round trips, and loses answers when asked to."""

    round_trips = 0
    loses_answers = False

    def call(self, commands: Any) -> list[Any]:
        """Send commands, then read or lose their replies."""
        self.round_trips += 1
        replies = super().call(commands)
        if self.loses_answers:
            raise RedisUnavailable
        return replies


@pytest.fixture
def link(redis_url: str) -> Iterator[CountingLink]:
    """A connection to the session's Valkey."""
    link = CountingLink(redis_url)
    yield link
    link.close()


def members(valkey: redis.Redis, model: str) -> set[str]:
    """Return the workers that are able to run a model, fresh or not."""
    found: Any = valkey.zrange(KEYS.model_workers(model), 0, -1)
    return {raw.decode() for raw in found}


@contextmanager
def counted(valkey: redis.Redis) -> Iterator[dict[str, int]]:
    """Give how often each command is run meanwhile, by scripts too; filled at the end."""
    calls: dict[str, int] = {}
    valkey.config_resetstat()
    yield calls
    for name, stats in valkey.info("commandstats").items():
        calls[name.removeprefix("cmdstat_")] = stats["calls"]


class Stopped(Exception):
    """The listener was told to end."""


@contextmanager
def listening(url: str) -> Iterator[tuple[Doorbell, list[frozenset[str] | None]]]:
    """Listen in a thread meanwhile; gives the doorbell, and what it has heard of."""
    heard: list[frozenset[str] | None] = []
    stopping = threading.Event()

    def hear(keys: frozenset[str] | None) -> None:
        if stopping.is_set():
            raise Stopped
        heard.append(keys)

    def listen() -> None:
        with suppress(Stopped):
            doorbell.listen()
        doorbell.close()

    doorbell = Doorbell(RedisLink(url, socket_timeout=0.5), KEYS, lambda _: None, hear)
    thread = threading.Thread(target=listen)
    thread.start()
    wait_until(lambda: heard and doorbell.client_id, description="it listens")
    try:
        yield doorbell, heard
    finally:
        stopping.set()
        with redis.Redis.from_url(url) as client:
            client.client_kill_filter(_id=str(doorbell.client_id))
        thread.join(10)


def test_a_worker_is_in_the_registries_of_what_it_takes_jobs_of(valkey: redis.Redis, link: RedisLink) -> None:
    """By Redis' time, renewed by every beat, the same as in the registry of workers."""
    rig = Rig(link)
    rig.heartbeat.beat(beat(A))
    first = valkey.zscore(KEYS.model_workers(A), "triton-01")
    assert first == valkey.zscore(KEYS.workers, "triton-01")
    assert members(valkey, B) == set()
    until(lambda: server_ms(valkey) > (first or 0))
    rig.heartbeat.beat(beat(A))
    assert (valkey.zscore(KEYS.model_workers(A), "triton-01") or 0) > (first or 0)


def test_a_model_that_it_takes_no_jobs_of_any_more_is_left_at_once(valkey: redis.Redis, link: RedisLink) -> None:
    """With the beat that says so; others stay in its registry."""
    valkey.zadd(KEYS.model_workers(A), {"triton-02": server_ms(valkey)})
    rig = Rig(link)
    rig.heartbeat.beat(beat(A, B))
    rig.heartbeat.beat(beat(B))
    assert (members(valkey, A), members(valkey, B)) == ({"triton-02"}, {"triton-01"})


def test_what_an_earlier_run_left_is_mended_by_the_first_beat(valkey: redis.Redis, link: RedisLink) -> None:
    """A killed process leaves no registry; its fields do not outlive it either."""
    now_ms = server_ms(valkey)
    for model in (A, B):
        valkey.zadd(KEYS.model_workers(model), {"triton-01": now_ms})
    valkey.hset(KEYS.worker("triton-01"), mapping={"of_an_older_version": "1"})
    Rig(link).heartbeat.beat(beat(B))
    assert (members(valkey, A), members(valkey, B)) == (set(), {"triton-01"})
    assert valkey.hgetall(KEYS.worker("triton-01")).keys() == {b"state", b"heartbeat_at"}


def test_a_beat_whose_answer_was_lost_is_followed_by_a_whole_one(valkey: redis.Redis, link: CountingLink) -> None:
    """What was said in between is not taken for known."""
    rig = Rig(link)
    rig.heartbeat.beat(beat(A, state="ready"))
    link.loses_answers = True
    with pytest.raises(RedisUnavailable):
        rig.heartbeat.beat(beat(B, state="degraded"))
    link.loses_answers = False
    rig.heartbeat.beat(beat(A, state="ready"))
    assert valkey.hget(KEYS.worker("triton-01"), "state") == b"ready"
    assert (members(valkey, A), members(valkey, B)) == ({"triton-01"}, set())


def test_what_redis_has_lost_is_written_again_whole(valkey: redis.Redis, link: CountingLink) -> None:
    """As after FLUSHALL, or when the key expired: by the next beat, whatever changed."""
    rig = Rig(link)
    rig.heartbeat.beat(beat(A))
    valkey.flushall()
    rig.heartbeat.beat(beat(A))
    assert valkey.hgetall(KEYS.worker("triton-01")) == {b"state": b"ready", b"heartbeat_at": b"now"}
    assert members(valkey, A) == {"triton-01"}
    assert valkey.hkeys(KEYS.models) == [A.encode(), B.encode()]


class TestDeclarations:
    def test_gateways_find_what_to_check_jobs_by(self, valkey: redis.Redis, link: RedisLink) -> None:
        """For every model, able or not; since when is not touched while it stays the same."""
        rig = Rig(link)
        rig.heartbeat.sync_clock()
        rig.heartbeat.beat(beat(A))
        declared = json.loads(valkey.hget(KEYS.models, B) or b"")
        assert (declared["kind"], declared["max_prompt_bytes"]) == ("text", 2)
        assert declared["since"].startswith("20")
        until(lambda: rig.clock.now() != declared["since"])
        Rig(link).heartbeat.beat(beat(A))
        assert json.loads(valkey.hget(KEYS.models, B) or b"") == declared

    def test_another_declaration_takes_its_place(self, valkey: redis.Redis, link: RedisLink) -> None:
        """That of the worker that started last, also where one begins as the other does."""
        for zeros in ("", "0", ""):
            declared = {A: DECLARED[A] + zeros}
            Rig(link, worker_id=f"triton-{zeros}", declared=declared).heartbeat.beat(beat(A))
            assert json.loads(valkey.hget(KEYS.models, A) or b"")["max_prompt_bytes"] == int("1" + zeros)

    def test_a_model_without_a_worker_is_forgotten_after_a_week(self, valkey: redis.Redis, link: RedisLink) -> None:
        """With its registry; a day less is waited for, since a weekend without workers is no end."""
        now_ms = server_ms(valkey)
        for model, days in (("gone", 7), ("away", 6)):
            valkey.hset(KEYS.models, model, "{}")
            valkey.zadd(KEYS.declared, {model: now_ms - days * A_DAY_MS})
            valkey.zadd(KEYS.model_workers(model), {"dead": now_ms - days * A_DAY_MS})
        Rig(link).heartbeat.beat(beat(A))
        assert set(valkey.hkeys(KEYS.models)) == {b"away", A.encode(), B.encode()}
        assert set(valkey.zrange(KEYS.declared, 0, -1)) == {b"away", A.encode(), B.encode()}
        assert not valkey.exists(KEYS.model_workers("gone"))


class TestTheDead:
    def old(self, valkey: redis.Redis, worker_id: str, *, lives: bool, beat_age_ms: int, age_ms: int) -> None:
        """Write a worker whose last heartbeat and whose place in a model's registry are so old."""
        now_ms = server_ms(valkey)
        valkey.zadd(KEYS.workers, {worker_id: now_ms - beat_age_ms})
        valkey.zadd(KEYS.model_workers(A), {worker_id: now_ms - age_ms})
        if lives:
            valkey.hset(KEYS.worker(worker_id), "state", "ready")
            valkey.expire(KEYS.worker(worker_id), 60)

    def test_their_places_are_pruned(self, valkey: redis.Redis, link: RedisLink) -> None:
        """By whoever beats, within a round of beats."""
        rig = Rig(link)
        rig.heartbeat.beat(beat(A))
        self.old(valkey, "dead", lives=False, beat_age_ms=20_000, age_ms=20_000)
        for _ in range(20):
            rig.heartbeat.beat(beat(A))
        assert members(valkey, A) == {"triton-01"}
        assert b"dead" in valkey.zrange(KEYS.workers, 0, -1)

    def test_a_worker_that_beats_less_often_is_not_taken_for_dead(self, valkey: redis.Redis, link: RedisLink) -> None:
        """Its health key lives for three of its own heartbeats."""
        self.old(valkey, "slow", lives=True, beat_age_ms=20_000, age_ms=20_000)
        Rig(link).heartbeat.beat(beat(A))
        assert members(valkey, A) == {"triton-01", "slow"}

    def test_a_place_that_its_worker_renews_no_more_is_pruned(self, valkey: redis.Redis, link: RedisLink) -> None:
        """As after a restart with other models."""
        self.old(valkey, "other", lives=True, beat_age_ms=0, age_ms=20_000)
        Rig(link).heartbeat.beat(beat(A))
        assert members(valkey, A) == {"triton-01"}


class TestPauses:
    def test_a_paused_model_is_in_no_registry(self, valkey: redis.Redis, link: RedisLink) -> None:
        """Even where the worker has not heard of the pause yet; it hears of it by the beat."""
        rig = Rig(link)
        valkey.sadd(KEYS.paused, A, "acme/of-others")
        rig.heartbeat.beat(beat(A, B))
        assert (members(valkey, A), members(valkey, B)) == (set(), {"triton-01"})
        assert rig.heartbeat.paused_models() == {A}
        assert rig.pauses == [{A}]

    def test_a_resumed_one_is_back_with_the_beat_that_says_so(self, valkey: redis.Redis, link: RedisLink) -> None:
        """And its worker is told of the change once."""
        rig = Rig(link)
        valkey.sadd(KEYS.paused, A)
        rig.heartbeat.beat(beat(A))
        rig.heartbeat.beat(beat())
        valkey.srem(KEYS.paused, A)
        rig.heartbeat.beat(beat())
        rig.heartbeat.beat(beat(A))
        assert members(valkey, A) == {"triton-01"}
        assert rig.heartbeat.paused_models() == frozenset()
        assert rig.pauses == [{A}, {A}]

    def test_a_pause_is_followed_by_a_beat_at_once(self, valkey: redis.Redis, link: RedisLink) -> None:
        """It says how the models stand now."""
        rig = Rig(link, every_seconds=60)
        valkey.sadd(KEYS.paused, A)
        with rig.beating():
            until(lambda: rig.said == 2)

    def test_a_change_of_the_pauses_rings(self, valkey: redis.Redis, link: RedisLink, redis_url: str) -> None:
        """Over the doorbell, from the first beat on; also over the next one when its connection was lost."""
        with listening(redis_url) as (doorbell, heard):
            rig = Rig(link, doorbell_id=lambda: doorbell.client_id)
            for _ in range(2):
                rig.heartbeat.beat(beat(A))
                for change in (valkey.sadd, valkey.srem):
                    heard.clear()
                    change(KEYS.paused, A)
                    wait_until(lambda: frozenset({KEYS.paused}) in heard, description="the change rings")
                heard.clear()
                valkey.client_kill_filter(_id=str(doorbell.client_id))
                wait_until(lambda: None in heard, description="it listens again")

    def test_a_ring_is_followed_by_a_beat_at_once(self, valkey: redis.Redis, link: RedisLink) -> None:
        """When it was of the pauses, or may have been; not for other keys."""
        rig = Rig(link, every_seconds=60)
        with rig.beating():
            until(lambda: rig.said == 1)
            rig.heartbeat.changed(frozenset({KEYS.paused}))
            until(lambda: rig.said == 2)
            rig.heartbeat.changed(None)
            until(lambda: rig.said == 3)
            rig.heartbeat.changed(frozenset({KEYS.models}))
            gevent.sleep(0.1)
        assert rig.said == 3
        assert valkey.exists(KEYS.workers)

    def test_who_cannot_listen_beats_all_the_same(self, valkey: redis.Redis, link: CountingLink) -> None:
        """With one round trip."""
        rig = Rig(link, doorbell_id=lambda: 999_999)
        rig.heartbeat.beat(beat(A))
        link.round_trips = 0
        rig.heartbeat.beat(beat(A))
        assert link.round_trips == 1
        assert members(valkey, A) == {"triton-01"}


class TestCosts:
    def test_a_beat_with_500_models_is_one_round_trip(self, valkey: redis.Redis, link: CountingLink) -> None:
        """Of per-model work there is what keeps the scores fresh, and a twentieth of what keeps the registries clean."""
        rig = Rig(link, declared=DECLARED_500)
        everything = beat(*DECLARED_500)
        rig.heartbeat.beat(everything)
        link.round_trips = 0
        with counted(valkey) as calls:
            for _ in range(20):
                rig.heartbeat.beat(everything)
        assert link.round_trips == 20
        assert calls["evalsha"] == 20
        in_the_script = {
            name: calls[name] / 20
            for name in ("zadd", "hset", "hget", "smembers", "exists", "pexpire", "zrangebyscore")
        }
        assert in_the_script == {
            "hset": 1,
            "zadd": 500 + 1 + 25,
            "hget": 25,
            "smembers": 1,
            "exists": 1,
            "pexpire": 1,
            "zrangebyscore": 25 + 1,
        }
        assert not {"zrem", "hdel"} & calls.keys()
        assert len(valkey.hkeys(KEYS.models)) == 500

    def test_the_health_of_500_models_is_written_when_it_changes(self, valkey: redis.Redis, link: CountingLink) -> None:
        """A heartbeat that says nothing new sends a few bytes a model."""
        rig = Rig(link, declared=DECLARED_500)
        of_models = "x" * 50_000
        rig.heartbeat.beat(beat(*DECLARED_500, models=of_models))
        before = valkey.info("stats")["total_net_input_bytes"]
        rig.heartbeat.beat(beat(*DECLARED_500, models=of_models, heartbeat_at="later"))
        assert valkey.info("stats")["total_net_input_bytes"] - before < 500 * 40
        assert valkey.hget(KEYS.worker("triton-01"), "models") == of_models.encode()

    def test_200_workers_beat_with_one_round_trip_each(
        self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers
    ) -> None:
        """All at the same time, each with its own connection."""
        rigs = [Rig(ledgers.link(redis_url), worker_id=f"worker-{n}") for n in range(200)]
        for rig in rigs:
            rig.heartbeat.beat(beat(A))
        with counted(valkey) as calls:
            gevent.joinall([gevent.spawn(rig.heartbeat.beat, beat(A)) for rig in rigs], raise_error=True)
        assert calls["evalsha"] == 200
        assert valkey.zcard(KEYS.workers) == len(members(valkey, A)) == 200


def test_changes_that_come_together_are_told_together(valkey: redis.Redis, link: CountingLink) -> None:
    """The first at once; of a hundred within a moment, not each by a beat of its own."""
    rig = Rig(link, every_seconds=60)
    with rig.beating():
        until(lambda: rig.said == 1)
        began = time.monotonic()
        for _ in range(100):
            rig.heartbeat.beat_soon()
            gevent.sleep(0)
        until(lambda: rig.said >= 2)
    took = time.monotonic() - began
    # The one before, one at once, and one after each rest; where the machine is slow there is time for more of them.
    assert rig.said <= 3 + took / _SHORTEST_REST_SECONDS
    assert valkey.hget(KEYS.worker("triton-01"), "said") == str(rig.said).encode()
