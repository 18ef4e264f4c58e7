"""How much work waits, and since when."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis

from worker.envelope import Readable, read_envelope
from worker.keys import Keys, lists_of

_LARGEST_READ_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Queue:
    """One model's queue, with what Celery producers put into its priority lists.

    ``oldest_ms`` is how long the job that is next in line has been there, by its own word; None where it does not say.
    """

    length: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much waits where; ``queues`` is by public name, ``waiting`` are jobs that wait for a retry."""

    queues: Mapping[str, Queue]
    waiting: int
    settlements: int
    dead_letters: int


def read_backlog(client: redis.Redis, keys: Keys, models: Iterable[str], now_ms: int) -> Backlog:
    """Return how much waits at Redis' unix ms ``now_ms``, in the queues of these models and in what all of them share."""
    lists = {name: lists_of(keys, name) for name in models}
    every = [one for its in lists.values() for one in its]
    pipe = client.pipeline(transaction=False)
    for one in every:
        pipe.llen(one)
    pipe.zcard(keys.waiting)
    pipe.xlen(keys.settlements)
    pipe.xlen(keys.dead_letters)
    *found, waiting, settlements, dead_letters = pipe.execute(raise_on_error=False)
    lengths = {one: _count(length) for one, length in zip(every, found, strict=True)}
    ages = _ages(client, [one for one, length in lengths.items() if length], now_ms)
    queues = {name: _queue(its, lengths, ages) for name, its in lists.items()}
    return Backlog(queues, _count(waiting), _count(settlements), _count(dead_letters))


def enqueued_ms(raw: bytes | None) -> int | None:
    """Return when a job was enqueued (unix ms), bare or in a Celery message; None where it does not say."""
    read = read_envelope(raw, _LARGEST_READ_BYTES) if raw else None
    return read.enqueued_ms if isinstance(read, Readable) else None


def _ages(client: redis.Redis, lists: list[str], now_ms: int) -> dict[str, int]:
    """Return how long the job next in line of each list waits, where it says so."""
    pipe = client.pipeline(transaction=False)
    for one in lists:
        pipe.lindex(one, -1)
    heads: list[Any] = pipe.execute(raise_on_error=False) if lists else []
    since = {one: enqueued_ms(head) for one, head in zip(lists, heads, strict=True) if isinstance(head, bytes)}
    return {one: max(0, now_ms - at_ms) for one, at_ms in since.items() if at_ms is not None}


def _queue(lists: Sequence[str], lengths: Mapping[str, int], ages: Mapping[str, int]) -> Queue:
    return Queue(sum(lengths[one] for one in lists), max((ages[one] for one in lists if one in ages), default=None))


def _count(reply: Any) -> int:
    """Return a count, 0 for what Redis refused: a key that is of another type holds no jobs."""
    return reply if isinstance(reply, int) else 0
