"""Reads what processes and Redis have used so far."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

import psutil
import redis


@dataclass(frozen=True, slots=True)
class RedisUse:
    """What Redis has done since it started."""

    commands: int
    round_trips: int
    bytes_moved: int
    cpu_seconds: float

    @classmethod
    def of(cls, client: redis.Redis) -> Self:
        """Ask Redis. ``commands`` are those of the client's own database but its own, the others are of all."""
        pipe = client.pipeline(transaction=False)
        pipe.client_id()
        pipe.client_list()
        pipe.info("all")
        own, clients, info = pipe.execute()
        database = str(client.connection_pool.connection_kwargs.get("db", 0))
        return cls(
            sum(int(one["tot-cmds"]) for one in clients if one["db"] == database and int(one["id"]) != own),
            info["total_writes_processed"],
            info["total_net_input_bytes"] + info["total_net_output_bytes"],
            info["used_cpu_user"] + info["used_cpu_sys"],
        )

    def since(self, before: Self, *, asked: int) -> Self:
        """Return what was done between two looks, without the ``asked`` replies that the one who looked got."""
        return replace(
            self,
            commands=self.commands - before.commands,
            round_trips=self.round_trips - before.round_trips - asked,
            bytes_moved=self.bytes_moved - before.bytes_moved,
            cpu_seconds=self.cpu_seconds - before.cpu_seconds,
        )


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a process has used since it started, with all that it started itself."""

    cpu_seconds: float
    rss_bytes: int
    """Resident memory. Of several processes, what they share is counted once."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """Ask the system."""
        process = psutil.Process(pid)
        children = process.children(recursive=True)
        cpu, memory = 0.0, 0
        for one in (process, *children):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                # Those that have ended are in what their parent says of its children.
                cpu += times.user + times.system + times.children_user + times.children_system
                memory += one.memory_full_info().pss if children else one.memory_info().rss
        return cls(cpu, memory)
