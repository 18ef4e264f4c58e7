"""Puts a side under load for one window, and sees to it that every job was settled once before the next."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from benchmarks.figures import Window
from benchmarks.gauges import ProcessUse, RedisUse
from benchmarks.sides import QueueSide

_PUSHED_AT_ONCE: Final = 1_000
_DRAIN_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.02


class RanDry(Exception):
    """The queue was empty before the window ended, so what was measured is not the side."""


class NotAllSettled(Exception):
    """After the load, the side has settled more or fewer jobs than it was given."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    settled: int
    process: ProcessUse
    redis: RedisUse


@dataclass(slots=True)
class Loaded:
    """A side that runs, with the count of what it was given."""

    side: QueueSide
    given: int = 0
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def window(self, jobs: int, warm_seconds: float, seconds: float) -> Window:
        """Give it ``jobs``, and return what it does in ``seconds`` after ``warm_seconds`` with them.

        Raises:
            RanDry: they were too few.
            NotAllSettled: it lost one, or settled one twice. A side that may leave jobs is started afresh instead.
        """
        self.push(jobs)
        time.sleep(warm_seconds)
        before = self._sample()
        time.sleep(seconds)
        after = self._sample()
        self._take_back()
        missing = self._missing()
        if missing:
            self._start_afresh(missing)
        return _between(before, after, abs(missing))

    def push(self, jobs: int) -> None:
        """Enqueue so many jobs."""
        for left in range(jobs, 0, -_PUSHED_AT_ONCE):
            elements = [self.side.encode(f"bench-{next(self._ids)}") for _ in range(min(left, _PUSHED_AT_ONCE))]
            self.side.client.lpush(self.side.queue, *elements)
        self.given += jobs

    def settled(self) -> int:
        """Return how many jobs it has settled."""
        length: Any = self.side.client.xlen(self.side.settlements)
        return int(length)

    def _sample(self) -> _Sample:
        pid = self.side.process.pid or 0
        settled = self.settled()
        return _Sample(time.monotonic(), settled, ProcessUse.of(pid), RedisUse.of(self.side.client))

    def _take_back(self) -> None:
        pipe = self.side.client.pipeline(transaction=True)
        pipe.llen(self.side.queue)
        pipe.delete(self.side.queue)
        left, _ = pipe.execute()
        if not left:
            raise RanDry(
                f"{self.side.name} emptied its queue within the window: raise the side's most_per_second, or the workload's"
            )
        self.given -= left

    def _missing(self) -> int:
        """Return how many of the jobs it took it has not settled after a while; negative where it put running ones back."""
        give_up = time.monotonic() + _DRAIN_SECONDS
        while (missing := self.given - self.settled()) > 0 and time.monotonic() < give_up:
            time.sleep(_LOOK_SECONDS)
        return missing

    def _start_afresh(self, missing: int) -> None:
        if not self.side.may_leave_jobs:
            raise NotAllSettled(f"{self.side.name} settled {self.given - missing} of {self.given} jobs")
        self.side.process.kill()
        self.side.client.flushdb()
        self.given = 0
        self.side.process.restart()


def _between(before: _Sample, after: _Sample, missing: int) -> Window:
    # Between the looks at Redis lie the reply to the first of them, and that to the second count of settlements.
    use = after.redis.since(before.redis, asked=2)
    return Window(
        jobs=after.settled - before.settled,
        seconds=after.at - before.at,
        cpu_seconds=after.process.cpu_seconds - before.process.cpu_seconds,
        rss_bytes=after.process.rss_bytes,
        redis_commands=use.commands,
        redis_round_trips=use.round_trips,
        redis_cpu_seconds=use.cpu_seconds,
        left_jobs=missing,
    )


def next_settlement_ms(side: QueueSide, listener: redis.Redis, job_id: str) -> float:
    """Return the milliseconds from enqueueing one job to reading its settlement; nothing else may be under way."""
    # By the connection itself: a client would wait for the reply before the job can be enqueued.
    connection: Any = listener.connection_pool.get_connection()
    try:
        connection.send_command("XREAD", "BLOCK", 30_000, "STREAMS", side.settlements, "$")
        time.sleep(_LOOK_SECONDS)  # The listener must be blocked before the job is there.
        element = side.encode(job_id)
        began = time.perf_counter()
        side.client.lpush(side.queue, element)
        if connection.read_response() is None:
            raise NotAllSettled(f"{side.name} did not settle a single job within 30 s")
        return (time.perf_counter() - began) * 1000
    finally:
        listener.connection_pool.release(connection)
