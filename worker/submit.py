"""The client's side of a queue: putting a job into it once, and reading what became of the job."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, repeat
from typing import Any, Final

import redis

from tasks import rfc3339
from tasks.fingerprint import fingerprint
from tasks.tensor_result import Result
from tasks.tensor_result import read_result as result_from
from tasks.tensors import Job
from worker import lua
from worker.keys import Keys

MARKER_TTL_MS: Final = 3_600_000
"""An hour: a repeat of a call comes within seconds."""

_TRIES: Final = 3
_FIRST_POLL_SECONDS: Final = 0.01
_LONGEST_POLL_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class EnqueueReply:
    """What became of a call; ``enqueued`` is False where an earlier send of the same call had done it."""

    enqueued: bool
    queue_length: int


class AnotherJob(Exception):
    """The job_id belongs to a job with other content, which has been settled."""


def enqueue(client: redis.Redis, keys: Keys, job: Job, *, token: str | None = None) -> EnqueueReply:
    """Put a job at the back of its model's queue, once, even where Redis' reply is lost and the call is sent again.

    A call is what has the same ``token``; without one, this call has its own. Raises redis.ConnectionError or
    redis.TimeoutError where Redis did not answer several times: then it is not known whether the job was enqueued, and
    calling again with the same token is safe for an hour.
    """
    token = token or uuid.uuid4().hex
    run = client.register_script(lua.load("enqueue_once"))
    for tries_left in reversed(range(_TRIES)):
        try:
            pushed, length = run(
                keys=[keys.jobs(job.model), keys.enqueued(job.job_id)], args=[token, encode(job), MARKER_TTL_MS]
            )
        except (redis.ConnectionError, redis.TimeoutError):
            if not tries_left:
                raise
        else:
            return EnqueueReply(enqueued=pushed == 1, queue_length=length)
    raise AssertionError("unreachable")


def enqueue_all(client: redis.Redis, keys: Keys, jobs: Iterable[Job], *, token: str) -> None:
    """Put jobs at the backs of their queues, in one round trip, each of them once for this ``token``.

    Raises redis.ConnectionError or redis.TimeoutError where Redis did not answer: then some of the jobs may be there, and calling
    again with the same token and jobs is safe for an hour.
    """
    run = client.register_script(lua.load("enqueue_once"))
    pipe = client.pipeline(transaction=False)
    for job in jobs:
        run(
            keys=[keys.jobs(job.model), keys.enqueued(job.job_id)],
            args=[token, encode(job), MARKER_TTL_MS],
            client=pipe,
        )
    pipe.execute()


def encode(job: Job) -> bytes:
    """Return the job as it stands in a queue: JSON without the fields that have their default."""
    return json.dumps(_content(job), ensure_ascii=False, allow_nan=False).encode()


def read_result(client: redis.Redis, keys: Keys, job: Job) -> Result | None:
    """Return the job's result, or None while it has not ended. Raises AnotherJob."""
    pipe = client.pipeline(transaction=True)
    pipe.get(keys.result(job.job_id))
    pipe.hget(keys.settled(job.job_id), "fingerprint")
    result, settled_as = pipe.execute()
    if settled_as is not None and settled_as.decode() != fingerprint(_content(job)):
        raise AnotherJob
    return None if result is None else result_from(result)


def follow_result(
    client: redis.Redis,
    keys: Keys,
    job: Job,
    *,
    now: Callable[[], float],
    sleep: Callable[[float], None],
    timeout: float | None,
) -> Result | None:
    """Return the job's result as soon as it is there, or None after ``timeout`` seconds. Raises AnotherJob.

    It asks for the result itself, more and more rarely, and does not read the settlement queue: every settlement of every
    job would pass through this process, and one that its readers have trimmed would be missed.
    """
    deadline = None if timeout is None else now() + timeout
    for pause in _pauses():
        result = read_result(client, keys, job)
        if result is not None or (deadline is not None and now() >= deadline):
            return result
        sleep(pause if deadline is None else max(0.0, min(pause, deadline - now())))
    raise AssertionError("unreachable")


def _pauses() -> Iterator[float]:
    doubling = [_FIRST_POLL_SECONDS * 1.5**step for step in range(8)]
    return chain(doubling, repeat(_LONGEST_POLL_SECONDS))


def _content(job: Job) -> dict[str, Any]:
    fields = job.model_dump(exclude_defaults=True)
    return {name: _as_wire(value) if isinstance(value, datetime) else value for name, value in fields.items()}


def _as_wire(moment: datetime) -> str:
    return rfc3339.from_ms(rfc3339.to_ms(moment))
