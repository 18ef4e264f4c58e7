"""Enqueues jobs by the thousand as another queue's own library does: one is watched, and copied.

The library would be the slower side of the measurement. What it writes for one job is read back from Redis, and written again for
each job, with the job's id in place of the first one's, and with every number that the library drew by chance drawn anew.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis

MARKER: Final = "bench-000000000"
"""The job_id of the job that is watched. All others have as many digits: a length that was written beside it stays true."""

_HEX: Final = rb"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}"
_DRAWN: Final = re.compile(rb"(?<![0-9a-f])" + _HEX + rb"(?![0-9a-f])")
_AT_ONCE: Final = 500


def job_id(number: int) -> str:
    """Return the id of a job from 1 on."""
    return f"bench-{number:09}"


@dataclass(frozen=True, slots=True)
class Copied:
    """What enqueues one job, as commands in which the job's id and the drawn numbers are holes."""

    commands: tuple[tuple["Part", ...], ...]

    @classmethod
    def of(cls, client: redis.Redis) -> "Copied":
        """Read what one job's enqueueing has left in an otherwise empty database."""
        keys: list[bytes] = sorted(client.scan_iter())
        commands = [command for key in keys for command in _written(client, key)]
        drawn = sorted({found[0] for part in _flat(commands) for found in _DRAWN.finditer(part)})
        return cls(tuple(tuple(Part.of(part, drawn) for part in command) for command in commands))

    def enqueue(self, client: redis.Redis, numbers: Sequence[int]) -> int:
        """Enqueue the jobs of these numbers; returns how many replies there were."""
        starts = range(0, len(numbers), _AT_ONCE)
        for start in starts:
            pipe: Any = client.pipeline(transaction=False)
            for number in numbers[start : start + _AT_ONCE]:
                for command in self.commands:
                    pipe.execute_command(*(part.of_job(number) for part in command))
            pipe.execute()
        return len(starts)


@dataclass(frozen=True, slots=True)
class Part:
    """A word of a command: literal pieces, with a hole between each two; -1 is the job's id, others are drawn numbers."""

    pieces: tuple[bytes, ...]
    holes: tuple[int, ...]
    drawn: tuple[bytes, ...]

    @classmethod
    def of(cls, part: bytes, drawn: Sequence[bytes]) -> "Part":
        """Return a word with its holes."""
        fillers = [MARKER.encode(), *drawn]
        pieces = re.split(b"(" + b"|".join(map(re.escape, fillers)) + b")", part)
        return cls(tuple(pieces[::2]), tuple(fillers.index(hole) - 1 for hole in pieces[1::2]), tuple(drawn))

    def of_job(self, number: int) -> bytes:
        """Return the word for one job."""
        if not self.holes:
            return self.pieces[0]
        filled = [self.pieces[0]]
        for hole, piece in zip(self.holes, self.pieces[1:], strict=True):
            filled += [job_id(number).encode() if hole < 0 else self._redrawn(hole, number), piece]
        return b"".join(filled)

    def _redrawn(self, hole: int, number: int) -> bytes:
        was = self.drawn[hole]
        digits = b"%032x" % (number * len(self.drawn) + hole)
        if b"-" not in was:
            return digits
        return b"-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])


def _flat(commands: Iterable[Sequence[bytes]]) -> list[bytes]:
    return [part for command in commands for part in command]


def _written(client: redis.Redis, key: bytes) -> list[tuple[bytes, ...]]:
    """Return the commands that write a key as it is."""
    kind: Any = client.type(key)
    written: Any
    match kind:
        case b"list":
            written = client.lrange(key, 0, -1)
            commands = [(b"RPUSH", key, *written)]
        case b"hash":
            written = client.hgetall(key)
            commands = [(b"HSET", key, *_flat(written.items()))]
        case b"set":
            written = client.smembers(key)
            commands = [(b"SADD", key, *written)]
        case b"zset":
            written = client.zrange(key, 0, -1, withscores=True)
            commands = [(b"ZADD", key, *_flat((b"%r" % score, member) for member, score in written))]
        case b"stream":
            written = client.xrange(key)
            commands = [(b"XADD", key, b"*", *_flat(fields.items())) for _, fields in written]
        case _:
            written = client.get(key)
            commands = [(b"SET", key, written)]
    left: Any = client.pttl(key)
    return [*commands, (b"PEXPIRE", key, b"%d" % left)] if left > 0 else commands
