"""The promise that nothing without an end is left in Redis: what a test may leave behind."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import redis

# What the wire contract lets live without a time to live; each after the namespace.
LASTING = (
    "jobs:*",
    "settlements",
    "dead-letters",
    "workers",
    "models",
    "model:*:workers",
    "declared",
    "paused",
    "pauses",
)

# What is empty when nothing runs, whatever its time to live.
OF_CLAIMS = ("claims", "claims:*", "running")


def leftovers(client: redis.Redis, allowed: Iterable[str] = ()) -> list[str]:
    """The keys that nothing will ever remove, and what is left of claims that nobody ended, but for the allowed patterns.

    Patterns are of the key after its namespace, such as ``claims:*``; one that starts with ``/`` is of the whole key. Whoever may
    leave claims may leave what goes with them.
    """
    may_leave = set(allowed)
    patterns = (*LASTING, *may_leave, *(OF_CLAIMS if "claims:*" in may_leave else ()))
    return sorted(key for key in _suspects(client) if not any(_matches(key, pattern) for pattern in patterns))


def _suspects(client: redis.Redis) -> Iterator[str]:
    for raw in client.scan_iter(count=1000):
        key = raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else str(raw)
        if client.ttl(raw) == -1 or any(_matches(key, pattern) for pattern in OF_CLAIMS):
            yield key


def _matches(key: str, pattern: str) -> bool:
    if pattern.startswith("/"):
        return fnmatchcase(key, pattern[1:])
    return fnmatchcase(key.partition(":")[2], pattern)
