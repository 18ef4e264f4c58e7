"""Reads what a process and Redis have used so far."""

from dataclasses import dataclass
from typing import Any, Self

import psutil
import redis


@dataclass(frozen=True, slots=True)
class RedisUse:
    """What Redis has done since it started."""

    commands: int
    round_trips: int
    cpu_seconds: float

    @classmethod
    def of(cls, client: redis.Redis) -> Self:
        """Ask Redis. ``commands`` are those of the client's own database, the others are of all."""
        clients: list[dict[str, str]] = _answer(client.client_list())
        info: dict[str, Any] = _answer(client.info("all"))
        database = str(client.connection_pool.connection_kwargs.get("db", 0))
        own = _answer(client.client_id())
        return cls(
            sum(int(one["tot-cmds"]) for one in clients if one["db"] == database and int(one["id"]) != own),
            info["total_writes_processed"],
            info["used_cpu_user"] + info["used_cpu_sys"],
        )


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a process has used since it started."""

    cpu_seconds: float
    rss_bytes: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Ask the system."""
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return cls(times.user + times.system, process.memory_info().rss)


def _answer(reply: Any) -> Any:
    """Return a reply of a client that is not asynchronous, whose type redis-py leaves open."""
    return reply
