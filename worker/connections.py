"""Connections to Redis: made in one place from one URL, so that none of them repeats a command by itself.

Behind Sentinels each new connection asks them who the primary is; one that finds itself with a replica is given up.
"""

from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from settings.addresses import sentinels_of

_FOR_SENTINELS = ("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile")


def redis_client(url: str, *, socket_timeout: float = 5.0) -> redis.Redis:
    """Return a client that answers in bytes and waits at most ``socket_timeout`` seconds for any reply.

    It never sends a command twice: after a lost reply that would push a job or settle it a second time.
    """
    # Taken as its own, so that the client's close() closes the connections too.
    return redis.Redis.from_pool(
        connection_pool(url, socket_timeout=socket_timeout, socket_connect_timeout=socket_timeout)
    )


def connection_pool(url: str, **options: Any) -> redis.ConnectionPool:
    """Return what makes connections to the Redis at this URL (``settings.redis.whole_url``); nothing is connected yet.

    What the URL says of timeouts goes before ``options``, which are redis-py's. Nothing is ever sent twice.
    """
    options = {"retry": Retry(NoBackoff(), 0), **options}
    if urlsplit(url).scheme.endswith("+sentinel"):
        return _behind_sentinels(url, options)
    return redis.ConnectionPool.from_url(url, **options)


def _behind_sentinels(url: str, options: dict[str, Any]) -> SentinelConnectionPool:
    addresses, service, database = sentinels_of(url)
    said = _options_of(url)
    is_tls = url.startswith("rediss")
    timeouts = {name: value for name, value in {**options, **said}.items() if name.startswith("socket_")}
    # redis-py keeps the timeouts of a Sentinel that is away to its own, and would ask it ten times.
    asking = {
        "username": said.pop("sentinel_username", None),
        "password": said.pop("sentinel_password", None),
        "retry": Retry(NoBackoff(), 0),
        "ssl": is_tls,
        **timeouts,
        **{name: said[name] for name in _FOR_SENTINELS if name in said},
    }
    sentinel: Any = Sentinel(addresses, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]  # redis-py's has no types
    pool: Any = SentinelConnectionPool  # no types either
    return pool(service, sentinel, ssl=is_tls, **{**options, "db": database, **said})  # type: ignore[no-any-return]  # as above


def _options_of(url: str) -> dict[str, Any]:
    """Return user, password and options as redis-py reads them of an address that is none of Sentinels."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    read: Any = parse_url  # without types in redis-py
    said = dict(read(f"{parts.scheme.removesuffix('+sentinel')}://{user}{at}host?{parts.query}"))
    return {name: value for name, value in said.items() if name not in {"host", "port", "connection_class"}}
