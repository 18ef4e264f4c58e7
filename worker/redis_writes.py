"""Whether a Redis takes writes: where it does not, no worker can claim a job, or even say that it lives."""

from collections.abc import Mapping
from typing import Any, Final

import redis
from redis.exceptions import NoPermissionError, ReadOnlyError, ResponseError

from worker.keys import Keys

_REFUSALS: Final = (
    ("MISCONF", "it cannot write to its disk (MISCONF): see its disk and its log"),
    ("NOREPLICAS", "it has fewer replicas than its min-replicas-to-write (NOREPLICAS): see them and its log"),
)
_READ_ONLY: Final = "it is a replica (READONLY): give redis_url its primary, or the Sentinels that know it"
_FULL: Final = "it is full (OOM): raise its maxmemory, or let results and markers expire sooner"


def read_refusal_of_writes(client: redis.Redis, keys: Keys) -> str | None:
    """Return why the server takes no writes, in words for operators; None where it does, or this user may not ask."""
    try:
        # No job has this name: nothing is deleted, and it is refused where every write is.
        client.delete(keys.cancel(""))
        # A full server deletes: that one says so itself.
        return _FULL if is_full(client.info("memory")) else None
    except NoPermissionError:
        return None
    except ReadOnlyError:
        return _READ_ONLY
    except ResponseError as error:
        words = next((words for said, words in _REFUSALS if str(error).startswith(said)), None)
        if words is None:
            raise
        return words


def is_full(memory: Mapping[str, Any]) -> bool:
    """Tell from INFO's section on memory whether nothing can be added. Pure."""
    most = int(memory.get("maxmemory", 0))
    used = int(memory.get("used_memory", 0)) - int(memory.get("mem_not_counted_for_evict", 0))
    return memory.get("maxmemory_policy") == "noeviction" and 0 < most < used
