"""Asking Redis what became of a batch's own jobs. Nobody else's settlements are read."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from tasks.result import GenerateResult
from worker.keys import Keys

_BYTES_AT_ONCE: Final = 8 << 20
"""Of results in one reply, so that what is held does not depend on how many are ready."""

_LETTERS_AT_ONCE: Final = 10
"""Dead letters in one reply: what was too large to be a job is in there too."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What Redis knows of a job: the size of its result, 0 where there is none, and its marker if it has ended."""

    result_bytes: int
    status: str | None = None
    stream_id: str | None = None

    @property
    def has_ended(self) -> bool:
        """Tell whether the job has been settled, whether or not its result is still there."""
        return self.status is not None


@dataclass(frozen=True, slots=True)
class LostJob:
    """A job of the batch that a worker put among the dead letters, and why."""

    job_id: str
    reason: str


def result_sizes(client: redis.Redis, keys: Keys, job_ids: Sequence[str]) -> list[int]:
    """Return the size of each job's result in bytes, 0 where there is none (yet)."""
    pipe = client.pipeline(transaction=False)
    for job_id in job_ids:
        pipe.strlen(keys.result(job_id))
    return list(pipe.execute())


def standings(client: redis.Redis, keys: Keys, job_ids: Sequence[str]) -> list[Standing]:
    """Return what is known of each job.

    The marker is asked for before the result, and both are written in one step: a marker without a result means that the
    result has expired.
    """
    pipe = client.pipeline(transaction=False)
    for job_id in job_ids:
        pipe.hmget(keys.settled(job_id), "status", "stream_id")
        pipe.strlen(keys.result(job_id))
    replies = pipe.execute()
    return [_standing(marker, size) for marker, size in zip(replies[::2], replies[1::2], strict=True)]


def results(client: redis.Redis, keys: Keys, job_ids: Sequence[str]) -> list[tuple[str, bytes | None]]:
    """Return each job's result, None for one that has just expired."""
    found: Any = client.mget([keys.result(job_id) for job_id in job_ids])
    return list(zip(job_ids, found, strict=True))


def groups(ready: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Yield the jobs, given with the sizes of their results, in groups that may be asked for at once."""
    group: list[str] = []
    gathered = 0
    for job_id, size in ready:
        if group and gathered + size > _BYTES_AT_ONCE:
            yield group
            group, gathered = [], 0
        group.append(job_id)
        gathered += size
    if group:
        yield group


def settlement(client: redis.Redis, keys: Keys, stream_id: str) -> bytes | None:
    """Return the result that an entry of the settlement queue holds, None where its readers have trimmed it."""
    try:
        entries: Any = client.xrange(keys.settlements, min=stream_id, max=stream_id)
    except redis.exceptions.NoPermissionError:
        return None
    return entries[0][1].get(b"result") if entries else None


def read_result(raw: bytes | None) -> GenerateResult | None:
    """Return the result that the bytes are, None where they are none."""
    try:
        return None if raw is None else GenerateResult.model_validate_json(raw)
    except ValueError:
        return None


@dataclass(slots=True)
class DeadLetters:
    """Reads on in the dead letters, from a moment on (Redis' unix milliseconds), and finds the batch's own jobs."""

    batch_id: str
    since_ms: int
    _last: str = field(default="", init=False)
    _may_read: bool = field(default=True, init=False)

    def read_on(self, client: redis.Redis, keys: Keys) -> list[LostJob]:
        """Return those that have come since the last call."""
        found: list[LostJob] = []
        while self._may_read:
            try:
                entries: Any = client.xrange(keys.dead_letters, min=self._start(), count=_LETTERS_AT_ONCE)
            except redis.exceptions.NoPermissionError:
                # A user who may only enqueue and read results; then a job of this kind is waited for until Ctrl-C.
                self._may_read = False
                return found
            for stream_id, fields in entries:
                self._last = stream_id.decode()
                found += self._own(fields)
            if len(entries) < _LETTERS_AT_ONCE:
                return found
        return found

    def _start(self) -> str:
        return f"({self._last}" if self._last else f"{self.since_ms}-0"

    def _own(self, fields: dict[bytes, bytes]) -> Iterator[LostJob]:
        raw = fields.get(b"raw", b"")
        if self.batch_id.encode() not in raw:
            return
        try:
            job_id = json.loads(raw).get("job_id")
        except (ValueError, AttributeError):
            return
        if isinstance(job_id, str) and job_id.startswith(f"{self.batch_id}:"):
            yield LostJob(job_id, fields.get(b"reason", b"").decode(errors="replace"))


def _standing(marker: list[bytes | None], size: int) -> Standing:
    status, stream_id = (None if value is None else value.decode() for value in marker)
    return Standing(size, status, stream_id)
