"""Reading the two streams, settlements and dead letters, and the few changes that their readers and operators make."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import redis

from worker import lua
from worker.keys import Keys

_TRIM_AT_ONCE: Final = 10_000
"""Entries; some milliseconds of the server's time."""

_LETTERS_AT_ONCE: Final = 10
"""Dead letters read in one call: what was too large to be a job is in there too."""

BLOCK_MS: Final = 2_000
"""How long one read waits for a new settlement; well below the client's socket timeout."""


@dataclass(frozen=True, slots=True)
class Settled:
    """One entry of the settlement queue; ``result`` is its JSON (docs/wire-contract.md, section 3)."""

    stream_id: str
    job_id: str
    model: str
    status: str
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of the settlement queue; ``lag`` is how many entries it has yet to read, None where unknown."""

    name: str
    consumers: int
    unacknowledged: int
    lag: int | None
    last_delivered: str


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim did; ``kept_from`` is the id of the oldest entry that some group still needs or has yet to read."""

    dropped: int
    left: int
    kept_from: str


class NoGroups(Exception):
    """Nobody reads the settlement queue with a consumer group, so nothing in it is acknowledged."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter: the bytes as they came, from which queue, why, when, and which worker met them."""

    stream_id: str
    queue: str
    reason: str
    raw: bytes
    worker_id: str
    at: str


def last_settlements(client: redis.Redis, keys: Keys, count: int) -> list[Settled]:
    """Return the newest ``count`` settlements, oldest first."""
    return [_settled(entry) for entry in reversed(client.xrevrange(keys.settlements, count=count) or [])]


def settlements_after(client: redis.Redis, keys: Keys, stream_id: str, count: int) -> list[Settled]:
    """Return the first ``count`` settlements after an id, oldest first."""
    return [_settled(entry) for entry in client.xrange(keys.settlements, min=f"({stream_id}", count=count) or []]


def follow_settlements(client: redis.Redis, keys: Keys, stream_id: str) -> Iterator[Settled]:
    """Yield every settlement after an id, as it comes, without end."""
    while True:
        streams = client.xread({keys.settlements: stream_id}, count=100, block=BLOCK_MS)
        for _, entries in _pairs(streams):
            for entry in entries:
                settled = _settled(entry)
                stream_id = settled.stream_id
                yield settled


def settlement_groups(client: redis.Redis, keys: Keys) -> list[Group]:
    """Return the consumer groups of the settlement queue."""
    if not client.exists(keys.settlements):
        return []
    return [
        Group(
            name=_text(group["name"]),
            consumers=group["consumers"],
            unacknowledged=group["pending"],
            lag=group.get("lag"),
            last_delivered=_text(group["last-delivered-id"]),
        )
        for group in client.xinfo_groups(keys.settlements)
    ]


def trim_settlements(client: redis.Redis, keys: Keys) -> Trimmed:
    """Drop the settlements that every consumer group has acknowledged. Raises NoGroups."""
    run = client.register_script(lua.load("trim_acknowledged"))
    dropped, done = 0, 0
    kept_from = b""
    while not done:
        reply = run(keys=[keys.settlements], args=[_TRIM_AT_ONCE])
        if reply is None:
            raise NoGroups
        now_dropped, done, kept_from = reply
        dropped += now_dropped
    return Trimmed(dropped=dropped, left=client.xlen(keys.settlements), kept_from=_text(kept_from))


def newest_letters(client: redis.Redis, keys: Keys, count: int) -> list[Letter]:
    """Return the newest ``count`` dead letters, newest first."""
    letters: list[Letter] = []
    end = "+"
    while len(letters) < count:
        page = client.xrevrange(keys.dead_letters, max=end, count=min(_LETTERS_AT_ONCE, count - len(letters))) or []
        if not page:
            break
        letters += [_letter(entry) for entry in page]
        end = f"({letters[-1].stream_id}"
    return letters


def find_letter(client: redis.Redis, keys: Keys, stream_id: str) -> Letter | None:
    """Return the dead letter with this id, None where there is none (any more)."""
    found = client.xrange(keys.dead_letters, min=stream_id, max=stream_id) or []
    return _letter(found[0]) if found else None


def replay_letter(client: redis.Redis, keys: Keys, stream_id: str, queue: str) -> bool:
    """Move a dead letter's bytes to the back of a queue; False where the letter is not there (any more)."""
    run = client.register_script(lua.load("replay_if_present"))
    return bool(run(keys=[keys.dead_letters, queue], args=[stream_id]) == 1)


def delete_letter(client: redis.Redis, keys: Keys, stream_id: str) -> bool:
    """Delete a dead letter for good; False where it is not there (any more)."""
    return client.xdel(keys.dead_letters, stream_id) == 1


def _settled(entry: Any) -> Settled:
    stream_id, fields = entry
    return Settled(
        stream_id=_text(stream_id),
        job_id=_text(fields.get(b"job_id", b"")),
        model=_text(fields.get(b"model", b"")),
        status=_text(fields.get(b"status", b"")),
        result=json.loads(fields.get(b"result", b"{}")),
    )


def _letter(entry: Any) -> Letter:
    stream_id, fields = entry
    return Letter(
        stream_id=_text(stream_id),
        queue=_text(fields.get(b"queue", b"")),
        reason=_text(fields.get(b"reason", b"")),
        raw=fields.get(b"raw", b""),
        worker_id=_text(fields.get(b"worker_id", b"")),
        at=_text(fields.get(b"at", b"")),
    )


def _pairs(streams: Any) -> list[Any]:
    """Return what XREAD gave as pairs of stream and entries: a mapping in RESP3, a list in RESP2, or nothing."""
    return list(streams.items()) if isinstance(streams, dict) else list(streams or [])


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
