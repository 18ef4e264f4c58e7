"""What Redis keeps of a settled job, and so how much memory a rate needs."""

from dataclasses import dataclass
from typing import Any, Final

import redis

from benchmarks.ours import KEYS
from benchmarks.plan import EMPTY
from benchmarks.scale.bed import Bed, MadeUp, Say, bed
from benchmarks.stage import valkey

_LOOKS: Final = 200
_TEXTS: Final = (256, 4096)
_LONG_NAMES: Final = 48


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of Redis' memory that one settled job takes, beside the length of its result as JSON, which is in two of them."""

    json_bytes: float
    result: float
    marker: float
    entry: float

    def megabytes(self, rate: float, result_seconds: float, settled_seconds: float, unread_seconds: float) -> float:
        """Return the megabytes that so many jobs a second take: results and markers until they expire, entries until trimmed."""
        return rate * (self.result * result_seconds + self.marker * settled_seconds + self.entry * unread_seconds) / 1e6


@dataclass(frozen=True, slots=True)
class Checked:
    """What Redis said it used for so many settled jobs, and what the formula says."""

    jobs: int
    kept: Kept
    used_bytes: int

    @property
    def said_by_formula(self) -> float:
        """Return the bytes that the formula gives for jobs of which nothing has expired."""
        return self.jobs * (self.kept.result + self.kept.marker + self.kept.entry)


def measure_memory(triton_url: str, jobs: int, say: Say) -> list[Checked]:
    """Return what is kept of jobs with a text, checked against all that Redis uses for them."""
    found = []
    for text_bytes in _TEXTS:
        made_up = MadeUp(text_bytes=text_bytes)
        with valkey("everysec") as server, bed(server.url, triton_url, EMPTY, made_up=made_up) as one:
            one.push(_LOOKS)  # What is taken once (scripts, clients, a first table of keys) is there before.
            _wait(one)
            before = _used(one.client)
            one.push(jobs)
            _wait(one)
            used = _used(one.client) - before
            found.append(Checked(jobs, _kept(one.client), used))
        say(f"memory, texts of {text_bytes} bytes: {used / jobs:,.0f} bytes a settled job")
    return found


def _wait(one: Bed) -> None:
    while one.settled() < one.given:
        one.window(0.0, 0.2)


def _used(client: redis.Redis) -> int:
    info: Any = client.info("memory")
    return int(info["used_memory_dataset"])


def _kept(client: redis.Redis) -> Kept:
    """Return the mean of some jobs."""
    entries: Any = client.xrevrange(KEYS.settlements, count=_LOOKS)
    names = [fields[b"job_id"].decode() for _, fields in entries]

    def mean(of: list[int]) -> float:
        return sum(of) / len(of)

    def taken(key: str) -> int:
        asked: Any = client.memory_usage(key, samples=0)
        return int(asked)

    length: Any = client.xlen(KEYS.settlements)
    return Kept(
        json_bytes=mean([len(fields[b"result"]) for _, fields in entries]),
        # With what a key and its time to live take in Redis' two tables, which MEMORY USAGE leaves out.
        result=mean([taken(KEYS.result(name)) for name in names]) + _LONG_NAMES,
        marker=mean([taken(KEYS.settled(name)) for name in names]) + _LONG_NAMES,
        entry=taken(KEYS.settlements) / int(length),
    )
