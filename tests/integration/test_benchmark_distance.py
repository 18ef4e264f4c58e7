"""The proxy that puts Redis further away: it adds its time to a round trip, and to no more than that."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from benchmarks.slow_link import SlowLink
from worker.connections import redis_client

MS = 40.0


@pytest.fixture
def near(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the Redis itself."""
    client = redis_client(redis_url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def link(valkey_server: Any) -> Iterator[SlowLink]:
    """The same Redis, 40 ms away."""
    with SlowLink(valkey_server.url, MS) as link:
        yield link


@pytest.fixture
def far(link: SlowLink) -> Iterator[redis.Redis]:
    """A client of the Redis that is 40 ms away."""
    client = redis_client(link.url)
    client.ping()
    yield client
    client.close()


def took_ms(function: Any) -> float:
    """Return how long a call took."""
    began = time.monotonic()
    function()
    return (time.monotonic() - began) * 1000


def test_a_round_trip_takes_as_much_longer(far: redis.Redis) -> None:
    """No less, ever; what a busy machine adds is not the proxy's."""
    assert min(took_ms(far.ping) for _ in range(5)) >= MS


def test_what_is_on_its_way_holds_nothing_else_up(link: SlowLink) -> None:
    """Ten clients at once are each as far away as one is alone."""
    clients = [redis_client(link.url) for _ in range(10)]
    for client in clients:
        client.ping()

    def ping_all() -> None:
        threads = [threading.Thread(target=client.ping) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # One after the other they never take less than ten times as long; what a busy machine adds is not in all of the times.
    assert MS <= min(took_ms(ping_all) for _ in range(10)) < 5 * MS
    for client in clients:
        client.close()


def test_what_is_large_arrives_whole(near: redis.Redis, far: redis.Redis) -> None:
    """In either direction, more than a socket holds."""
    value = bytes(range(256)) * 40_000
    far.set("large", value)
    assert near.get("large") == value
    assert far.get("large") == value
    near.delete("large")
