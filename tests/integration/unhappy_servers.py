"""Ways in which a real Valkey takes no writes, or answers nothing: full, a replica, loading, busy, unable to save."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import redis
from redis.exceptions import ResponseError

from tests.waiting import wait_until
from worker.sandbox.valkey_server import ValkeyServer

Unhappiness = Callable[[redis.Redis, ValkeyServer], AbstractContextManager[None]]


@contextmanager
def full(client: redis.Redis, _: ValkeyServer) -> Iterator[None]:
    """Let there be no memory left."""
    client.config_set("maxmemory", 1)
    yield
    client.config_set("maxmemory", 0)


@contextmanager
def replica(client: redis.Redis, _: ValkeyServer) -> Iterator[None]:
    """Make it a replica of a primary that is away."""
    client.replicaof("127.0.0.1", "1")
    yield
    client.replicaof("NO", "ONE")


@contextmanager
def silent_replica(client: redis.Redis, server: ValkeyServer) -> Iterator[None]:
    """Make it a replica that answers nothing without its primary."""
    client.config_set("replica-serve-stale-data", "no")
    with replica(client, server):
        yield
    client.config_set("replica-serve-stale-data", "yes")


@contextmanager
def unable_to_save(client: redis.Redis, server: ValkeyServer) -> Iterator[None]:
    """Let it find a folder where its file goes."""
    folder = server.directory / "dump.rdb"
    folder.mkdir()
    client.config_set("save", "3600 1000000")
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", description="saving has failed")
    yield
    client.config_set("save", "")
    folder.rmdir()


@contextmanager
def without_replicas(client: redis.Redis, _: ValkeyServer) -> Iterator[None]:
    """Ask for a replica that is not there before anything is written."""
    client.config_set("min-replicas-to-write", 1)
    yield
    client.config_set("min-replicas-to-write", 0)


@contextmanager
def busy(client: redis.Redis, server: ValkeyServer) -> Iterator[None]:
    """Let somebody's script never end."""
    client.config_set("busy-reply-threshold", 1)

    def spin() -> None:
        with redis.Redis.from_url(server.url, socket_timeout=60) as other, pytest.raises(ResponseError):
            other.eval("while true do end", 0)

    thread = threading.Thread(target=spin)
    thread.start()
    wait_until(lambda: _refuses(client, "BUSY"), description="the server is busy")
    yield
    client.script_kill()
    thread.join()


@contextmanager
def loading(client: redis.Redis, server: ValkeyServer) -> Iterator[None]:
    """Let it read its data anew, so slowly that it is not done before the test is."""
    client.config_set("key-load-delay", 5_000)
    client.config_set("loading-process-events-interval-bytes", 1024)
    for n in range(2000):
        client.set(f"filling:{n}", "x" * 200)

    def reload() -> None:
        with redis.Redis.from_url(server.url, socket_timeout=60) as other:
            other.execute_command("DEBUG", "RELOAD")

    thread = threading.Thread(target=reload)
    thread.start()
    wait_until(lambda: _refuses(client, "LOADING"), description="the server is loading", interval=0.001)
    yield
    client.config_set("key-load-delay", 0)
    thread.join()


def _refuses(client: redis.Redis, word: str) -> bool:
    try:
        client.get("x")
    except redis.RedisError as error:
        return word in f"{type(error).__name__} {error}".upper()
    return False


UNHAPPY: list[Unhappiness] = [
    *(full, replica, silent_replica, unable_to_save, without_replicas, busy, loading),
]
