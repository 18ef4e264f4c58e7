"""An adaptive pool as its workers find it in Redis."""

from typing import Any, Final

import redis

from tests.committer_contract import KEYS
from tests.jobs import MODEL
from worker.fleet import redis_time_ms
from worker.ledger_terms import PoolTerms
from worker.pool import Pool
from worker.redis_link import RedisLink

POOL: Final = "triton:8000"
"""The pool of the bench's workers, and of the seed configuration: its endpoint."""


def enter(link: RedisLink, most: int = 32, *, adaptive: bool = True, requests: int | None = None) -> dict[str, str]:
    """Start a worker with such a pool; returns the limits that it replaces."""
    return Pool(link, KEYS, PoolTerms(POOL, most, requests, adaptive=adaptive), "starting").enter()


def level(client: redis.Redis) -> int:
    """The level as Redis has it."""
    return int(client.hget(KEYS.pool(POOL), "level") or 0)


def at(client: redis.Redis, standing: int, taken: int | None = None) -> None:
    """Let the pool stand at a level that it has just come to, with all of it taken, or so much."""
    now_ms = redis_time_ms(client)
    stands: dict[Any, Any] = {
        "level": standing,
        "level_changed_ms": now_ms - 1,
        "level_flight": "",
        "level_version": f"v-{now_ms}",
    }
    client.hset(KEYS.pool(POOL), mapping=stands)
    client.zadd(KEYS.pool_slots(POOL), {f"{MODEL}\n{n}": now_ms + 60_000 for n in range(taken or standing)})
    client.expire(KEYS.pool_slots(POOL), 60)


def answers_counted(client: redis.Redis) -> int:
    """How many answers the flight has so far."""
    return int((client.hget(KEYS.pool(POOL), "level_flight") or b"0").split()[0])
