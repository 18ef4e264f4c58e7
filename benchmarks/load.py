"""Puts a side under load for one window, and looks what became of its jobs."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import redis

from benchmarks.figures import Window
from benchmarks.gauges import ProcessUse, RedisUse
from benchmarks.sides import QueueSide

_DRAIN_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.02


class RanDry(Exception):
    """The queue was empty before the window ended, so what was measured is not the side."""


class NotAllSettled(Exception):
    """After the load, the side has settled more or fewer jobs than it was given."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was done and used until a moment."""

    at: float
    settled: int
    processes: tuple[ProcessUse, ...]
    redis_use: RedisUse

    @classmethod
    def of(cls, client: redis.Redis, settlements: str, pids: Sequence[int]) -> Self:
        """Look at Redis, with the stream of settlements there, and at processes."""
        length: Any = client.xlen(settlements)
        return cls(time.monotonic(), int(length), tuple(map(ProcessUse.of, pids)), RedisUse.of(client))

    def window_until(self, after: Self, *, missing: int = 0, asked: int = 0) -> Window:
        """Return what was done between two moments, without ``asked`` replies that were given to this program."""
        # Between the looks at Redis lie the reply to the first of them, and that to the second count of settlements.
        use = after.redis_use.since(self.redis_use, asked=2 + asked)
        return Window(
            jobs=after.settled - self.settled,
            seconds=after.at - self.at,
            cpu_seconds=sum(one.cpu_seconds for one in after.processes)
            - sum(one.cpu_seconds for one in self.processes),
            rss_bytes=max(one.rss_bytes for one in after.processes),
            redis_commands=use.commands,
            redis_round_trips=use.round_trips,
            redis_bytes=use.bytes_moved,
            redis_cpu_seconds=use.cpu_seconds,
            left_jobs=missing,
        )


@contextmanager
def started(side: QueueSide) -> Iterator["Loaded"]:
    """Start a side in an empty database, and end it without waiting for what it has in hand."""
    side.client.flushdb()
    try:
        side.process.start()
        yield Loaded(side, settled(side))
        if side.process.is_running():
            side.process.kill()
    finally:
        side.process.stop()
        side.client.flushdb()


@dataclass(slots=True)
class Loaded:
    """A side that runs, with the count of what it was given and what it had settled before."""

    side: QueueSide
    settled_before: int = 0
    given: int = 0

    def window(self, jobs: int, in_flight: int, warm_seconds: float, seconds: float) -> Window:
        """Give it ``jobs``, and return what it does in ``seconds`` after ``warm_seconds`` with them.

        Raises:
            RanDry: they were too few.
            NotAllSettled: it lost one, or settled one twice, and is none that may leave jobs.
        """
        self.push(jobs)
        time.sleep(warm_seconds)
        before = self._sample()
        time.sleep(seconds)
        after = self._sample()
        if self.given - self._settled() <= in_flight:
            raise RanDry(
                f"{self.side.name} emptied its queue within the window: raise the side's most_per_second, or the workload's"
            )
        missing = self._missing()
        if missing and not self.side.may_leave_jobs:
            raise NotAllSettled(f"{self.side.name} settled {self.given - missing} of {self.given} jobs")
        return before.window_until(after, missing=abs(missing))

    def push(self, jobs: int) -> None:
        """Enqueue so many jobs."""
        self.side.enqueue(range(self.given + 1, self.given + jobs + 1))
        self.given += jobs

    def _settled(self) -> int:
        return settled(self.side) - self.settled_before

    def _sample(self) -> Sample:
        return Sample.of(self.side.client, self.side.settlements, [self.side.process.pid or 0])

    def _missing(self) -> int:
        """Take back what waits; return how many of the others it has not settled after a while, negative where it put some back."""
        if self.side.queue is None:
            return 0
        pipe = self.side.client.pipeline(transaction=True)
        pipe.llen(self.side.queue)
        pipe.delete(self.side.queue)
        left, _ = pipe.execute()
        self.given -= left
        give_up = time.monotonic() + _DRAIN_SECONDS
        while (missing := self.given - self._settled()) > 0 and time.monotonic() < give_up:
            time.sleep(_LOOK_SECONDS)
        return missing


def settled(side: QueueSide) -> int:
    """Return how many jobs a side has settled."""
    length: Any = side.client.xlen(side.settlements)
    return int(length)


@dataclass(frozen=True, slots=True)
class Span:
    """From a moment to another, in nanoseconds of the monotonic clock, which all processes of a machine share."""

    began_ns: int
    ended_ns: int

    @property
    def milliseconds(self) -> float:
        """Return how long it is."""
        return (self.ended_ns - self.began_ns) / 1e6


def next_settlement(
    side: QueueSide, listener: redis.Redis, number: int, *, pause_seconds: float = _LOOK_SECONDS
) -> Span:
    """Return the time from enqueueing one job, after a pause, to reading its settlement; nothing else may be under way."""
    # By the connection itself: a client would wait for the reply before the job can be enqueued.
    connection: Any = listener.connection_pool.get_connection()
    try:
        connection.send_command("XREAD", "BLOCK", 30_000, "STREAMS", side.settlements, "$")
        time.sleep(pause_seconds)
        began_ns = time.monotonic_ns()
        side.enqueue([number])
        if connection.read_response() is None:
            raise NotAllSettled(f"{side.name} did not settle a single job within 30 s")
        return Span(began_ns, time.monotonic_ns())
    finally:
        listener.connection_pool.release(connection)
