"""Where everything is that was ever pushed: nothing may be in no place, and nothing in two, whatever happened in between."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import redis

from tasks.reading import read_job
from worker.envelope import Readable, read_envelope
from worker.keys import Keys

_ANY_SIZE = 2**31


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The raw bytes in queues, claims, waiting retries and dead letters; the job_ids of settlements."""

    queued: Counter[bytes]
    claimed: Counter[bytes]
    waiting: Counter[bytes]
    dead: Counter[bytes]
    settled: Counter[str]

    @property
    def unfinished(self) -> Counter[bytes]:
        """What somebody still has to do something about."""
        return self.queued + self.claimed + self.waiting


def whereabouts(client: redis.Redis, keys: Keys) -> Whereabouts:
    """Return where everything of a namespace is, in one atomic look as long as the set of keys does not change."""
    lists = _names(client, keys.jobs("*"))
    claims = _names(client, keys.claims("*"))
    pipe = client.pipeline(transaction=True)
    for name in lists:
        pipe.lrange(name, 0, -1)
    for name in claims:
        pipe.hvals(name)
    pipe.zrange(keys.waiting, 0, -1)
    pipe.xrange(keys.dead_letters)
    pipe.xrange(keys.settlements)
    *found, waiting, dead, settled = pipe.execute()
    return Whereabouts(
        Counter(raw for items in found[: len(lists)] for raw in items),
        Counter(_after_lines(record, 4) for records in found[len(lists) :] for record in records),
        Counter(_after_lines(record, 2) for record in waiting),
        Counter(fields[b"raw"] for _, fields in dead),
        Counter(fields[b"job_id"].decode() for _, fields in settled),
    )


def assert_conserved(now: Whereabouts, pushed: Iterable[bytes]) -> None:
    """Fail unless each of the ``pushed`` bytes is in a queue, a claim, a retry or a dead letter, or its job is settled.

    What was pushed once must be in one place; a settlement may stand for any number of jobs under one id.
    """
    everything = list(pushed)
    job_ids = [_job_id(raw) for raw in everything]
    times_of = Counter(job_ids)
    places = now.unfinished + now.dead
    lost = [raw for raw, job_id in zip(everything, job_ids, strict=True) if not places[raw] and not now.settled[job_id]]
    assert not lost, f"{len(lost)} in no place, such as {lost[0][:200]!r}"
    twice = [job_id for job_id, times in now.settled.items() if times > 1]
    assert not twice, f"{len(twice)} settled more than once, such as {twice[0]}"
    wanted = Counter(everything)
    more = [raw for raw, times in places.items() if times > wanted[raw]]
    assert not more, f"{len(more)} in more places than they were pushed, such as {more[0][:200]!r}"
    ended = [
        raw
        for raw, job_id in zip(everything, job_ids, strict=True)
        if now.settled[job_id] and places[raw] and times_of[job_id] == 1
    ]
    assert not ended, f"{len(ended)} settled and still somewhere else, such as {ended[0][:200]!r}"


def _names(client: redis.Redis, pattern: str) -> list[bytes]:
    return sorted(_all(client.scan_iter(match=pattern, count=1000)))


def _all(found: Iterator[Any]) -> set[bytes]:
    return set(found)


def _after_lines(record: bytes, lines: int) -> bytes:
    return record.split(b"\n", lines)[lines]


def _job_id(raw: bytes) -> str:
    """Return the id a job is settled under, '' for what has none."""
    opened = read_envelope(raw, _ANY_SIZE)
    if isinstance(opened, Readable):
        return opened.job_id
    read = read_job(raw, queue_model="", limits=None, max_job_bytes=_ANY_SIZE)
    return getattr(getattr(read, "identity", None), "job_id", "")
