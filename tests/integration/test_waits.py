"""Once a minute the fleet logs why jobs of a model wait, on a real Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
import redis
from structlog.testing import capture_logs

from tests.integration.test_cli_why import KEYS, MODEL, pool, worker
from tests.integration.test_heartbeat import until
from tests.jobs import job_json
from worker.connections import redis_client
from worker.fleet import redis_time_ms
from worker.waits import Waits


@pytest.fixture
def waits(redis_url: str) -> Waits:
    """The part of one worker."""
    return Waits(lambda: redis_client(redis_url), KEYS, "w-1", lambda: 0.0, first_look_seconds=0.0)


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
    other = Waits(lambda: redis_client(redis_url), KEYS, "w-2", lambda: 0.0, first_look_seconds=0.0)
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
