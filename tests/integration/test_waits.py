"""Once a minute the fleet logs why jobs of a model wait, on a real Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
import redis
from structlog.testing import capture_logs

from tests.fakes import FakeClock
from tests.integration.test_cli_why import KEYS, MODEL, POOL, pool, worker
from tests.integration.test_heartbeat import until
from tests.jobs import job_json
from worker.connections import redis_client
from worker.explain import Kind
from worker.explained import KEPT_MS, Explained, Wait
from worker.fleet import redis_time_ms
from worker.waits import Waits

GONE = "acme/without-a-worker"


def part_of(worker_id: str, redis_url: str, clock: FakeClock) -> Waits:
    """The part of one worker, that looks at once."""
    return Waits(lambda: redis_client(redis_url), KEYS, worker_id, lambda: 0.0, Explained(clock), 0.0)


@pytest.fixture
def clock() -> FakeClock:
    """What the age of a look is told by."""
    return FakeClock()


@pytest.fixture
def waits(redis_url: str, clock: FakeClock) -> Waits:
    """The part of one worker."""
    return part_of("w-1", redis_url, clock)


@pytest.fixture
def _waiting(valkey: redis.Redis) -> None:
    """A job waits since a minute: the pool is full."""
    from tasks import rfc3339

    worker(valkey, its={"waits": "slots"})
    pool(valkey, slots=3)
    valkey.lpush(KEYS.jobs(MODEL), job_json(enqueued_at=rfc3339.from_ms(redis_time_ms(valkey) - 60_000)))


@contextmanager
def waited() -> Iterator[list[Any]]:
    """Give the lines about models that wait, as they are logged."""
    with capture_logs() as logs:
        yield logs


@pytest.mark.usefixtures("_waiting")
def test_a_line_says_why_and_since_when(waits: Waits) -> None:
    """For people and for scripts; nothing of the jobs."""
    with waited() as logs:
        assert waits.look() == 60_000
    (line,) = logs
    assert 60_000 <= line.pop("oldest_ms") < 70_000
    assert line == {
        "event": "model.waited",
        "log_level": "info",
        "model": MODEL,
        "reason": "slots",
        "words": "pool gpu-a has no slot for it: 3 of 3 are taken (w-1)",
        "queued": 1,
        "running": 1,
    }


@pytest.mark.usefixtures("_waiting")
def test_one_worker_of_the_fleet_looks_in_a_minute(waits: Waits, redis_url: str, valkey: redis.Redis) -> None:
    """The others ask again when it is over."""
    other = part_of("w-2", redis_url, FakeClock())
    with waited() as logs:
        waits.look()
        assert 50_000 < other.look() <= 60_000
        assert len(logs) == 1
        valkey.delete(KEYS.explained)  # As it goes when the minute is over.
        assert other.look() == 60_000
        assert len(logs) == 2


def test_what_is_served_or_has_nothing_to_do_is_not_logged(waits: Waits, valkey: redis.Redis) -> None:
    """Neither is a paused model without jobs."""
    worker(valkey)
    valkey.lpush(KEYS.jobs(MODEL), job_json())
    valkey.sadd(KEYS.paused, "acme/other")
    with waited() as logs:
        waits.look()
    assert logs == []
    assert waits.explained.waits() == ()


@pytest.mark.usefixtures("_waiting")
def test_what_a_look_finds_is_there_for_the_metrics(waits: Waits, valkey: redis.Redis) -> None:
    """Of a model without a worker too, until the worker's next look finds it otherwise."""
    valkey.hset(KEYS.models, GONE, "{}")
    valkey.lpush(KEYS.jobs(GONE), job_json(), job_json())
    waits.look()
    assert waits.explained.waits() == (Wait(MODEL, Kind.SLOTS, 1), Wait(GONE, Kind.NO_WORKER, 2))
    worker(valkey, "w-2", model=GONE)
    valkey.delete(KEYS.explained, KEYS.jobs(MODEL), KEYS.pool_slots(POOL))
    waits.look()
    assert waits.explained.waits() == ()


@pytest.mark.usefixtures("_waiting")
def test_what_was_found_stays_until_the_worker_with_the_next_turn_shows_its_own(
    waits: Waits, clock: FakeClock, redis_url: str, valkey: redis.Redis
) -> None:
    """So that there is no moment without it; and not for longer, since here nobody hears that it is over."""
    waits.look()
    other, (found,) = part_of("w-2", redis_url, clock), waits.explained.waits()
    clock.pass_ms(KEPT_MS / 2)
    valkey.delete(KEYS.explained)  # As it goes when the minute is over.
    other.look()
    waits.look()
    assert waits.explained.waits() == other.explained.waits() == (found,)
    clock.pass_ms(KEPT_MS / 2)
    waits.look()
    assert (waits.explained.waits(), other.explained.waits()) == ((), (found,))


@pytest.mark.usefixtures("_waiting")
def test_it_looks_by_itself_and_bears_a_redis_that_refuses(waits: Waits, valkey: redis.Redis) -> None:
    """It ends with the worker, and not before."""
    with waited() as logs:
        greenlet = gevent.spawn(waits.run)
        until(lambda: logs)
        greenlet.kill()
        valkey.delete(KEYS.explained)
        valkey.acl_setuser("default", enabled=True, nopass=True, commands=["+@all", "-set"])
        try:
            greenlet = gevent.spawn(waits.run)
            until(lambda: len(logs) > 1)
            assert not greenlet.dead
            greenlet.kill()
        finally:
            valkey.acl_setuser("default", enabled=True, nopass=True, commands=["+@all"])
    assert [line["event"] for line in logs] == ["model.waited", "waits.were_not_read"]
