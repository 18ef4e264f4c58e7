"""Connections to Redis: made in one place, so that none of them repeats a command by itself."""

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def redis_client(url: str, *, socket_timeout: float = 5.0) -> redis.Redis:
    """Return a client that answers in bytes and waits at most ``socket_timeout`` seconds for any reply.

    It never sends a command twice: after a lost reply that would push a job or settle it a second time.
    """
    return redis.Redis.from_url(
        url,
        decode_responses=False,
        socket_timeout=socket_timeout,
        socket_connect_timeout=socket_timeout,
        retry=Retry(NoBackoff(), 0),
    )
