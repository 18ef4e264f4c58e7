"""``speedinfer status`` beside a Redis that answers and takes no writes: that is why jobs wait, not the workers that look lost."""

from collections.abc import Iterator

import pytest
import redis

from tests.integration.command import lines, objects, run
from tests.integration.unhappy_servers import Unhappiness, full, replica, unable_to_save, without_replicas
from tests.jobs import MODEL, job_json
from worker.keys import Keys
from worker.redis_writes import is_full, read_refusal_of_writes
from worker.sandbox.valkey_server import ValkeyServer

KEYS = Keys("speedinfer")
REFUSALS = [
    (full, "full (OOM)"),
    (replica, "(READONLY)"),
    (unable_to_save, "(MISCONF)"),
    (without_replicas, "(NOREPLICAS)"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """A Valkey of these tests' own, to be made unhappy."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[redis.Redis]:
    """A client of it: a job waits, and a worker has shown no life for long."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.lpush(KEYS.jobs(MODEL), job_json(job_id="waits"))
        client.hset(KEYS.models, MODEL, "{}")
        client.zadd(KEYS.workers, {"silent": 1})
        yield client


@pytest.mark.parametrize(("unhappy", "word"), REFUSALS, ids=[way.__name__ for way, _ in REFUSALS])
def test_that_it_takes_no_writes_is_why_jobs_wait(
    client: redis.Redis, server: ValkeyServer, unhappy: Unhappiness, word: str
) -> None:
    """To people and to scripts, with what to do about it; and no longer when it takes writes again."""
    with unhappy(client, server):
        (status,) = objects(run("status", "--redis-url", server.url), 1)
        first, *rest = lines(run("status", "--no-json", "--redis-url", server.url), 1)
    assert status["models"][0]["why"] == {"kind": "no_writes", "words": f"Redis takes no writes: {status['no_writes']}"}
    assert word in status["no_writes"]
    assert "takes no writes, so no worker can show that it lives" in first
    assert any(status["no_writes"] in line for line in rest if line.startswith(MODEL))
    (later,) = objects(run("status", "--redis-url", server.url), 1)  # No worker serves what is queued.
    assert (later["no_writes"], later["models"][0]["why"]["kind"]) == (None, "no_worker")


def test_who_may_not_ask_is_told_nothing(client: redis.Redis, server: ValkeyServer) -> None:
    """A user that may only read has its status all the same."""
    client.acl_setuser("reader", enabled=True, passwords=["+secret"], categories=["+@read"], keys=["*"], reset=True)
    with redis.Redis(port=server.port, username="reader", password="secret") as reader:
        assert read_refusal_of_writes(reader, KEYS) is None


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({"maxmemory": 100, "used_memory": 101, "maxmemory_policy": "noeviction"}, True),
        ({"maxmemory": 100, "used_memory": 100, "maxmemory_policy": "noeviction"}, False),
        ({"maxmemory": 0, "used_memory": 101, "maxmemory_policy": "noeviction"}, False),
        ({"maxmemory": 100, "used_memory": 101, "maxmemory_policy": "allkeys-lru"}, False),
        (
            {"maxmemory": 100, "used_memory": 101, "mem_not_counted_for_evict": 1, "maxmemory_policy": "noeviction"},
            False,
        ),
        ({}, False),
    ],
)
def test_full_is_what_has_no_room_and_may_evict_nothing(memory: dict[str, object], expected: bool) -> None:
    """By the server's own count, which leaves its buffers out."""
    assert is_full(memory) is expected
