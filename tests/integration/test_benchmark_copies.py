"""Jobs of other queues are enqueued by copies of what the queue's own library wrote for one."""

import json
import pickle
import uuid
from typing import Any

import redis

from benchmarks.copying import MARKER, Copied, job_id


def library_enqueues(client: redis.Redis, name: str) -> None:
    """Write what libraries write: a pickled call with its length, a hash under a drawn number, a list, a set, scores, a stream."""
    drawn = str(uuid.uuid4())
    client.set(f"call:{name}", pickle.dumps({"job": {"job_id": name}}), px=60_000)
    client.hset("messages", drawn, json.dumps({"id": drawn, "args": [{"job_id": name}]}))
    client.rpush("queue", drawn)
    client.zadd("due", {name: 1_796_032_800_123})
    client.sadd("queues", "queue")
    client.xadd("stream", {"data": json.dumps({"task": uuid.uuid4().hex, "job_id": name})})


def test_a_copy_is_what_the_library_would_have_written(valkey: Any) -> None:
    """For each job under its own id and under numbers of its own, readable by the library: lengths included."""
    library_enqueues(valkey, MARKER)
    copied = Copied.of(valkey)
    valkey.flushdb()
    copied.enqueue(valkey, [7, 8])
    assert [pickle.loads(valkey.get(f"call:{job_id(n)}")) for n in (7, 8)] == [  # noqa: S301 - our own
        {"job": {"job_id": job_id(n)}} for n in (7, 8)
    ]
    assert 0 < valkey.pttl(f"call:{job_id(7)}") <= 60_000
    queued = valkey.lrange("queue", 0, -1)
    assert len(set(queued)) == 2
    messages = [json.loads(valkey.hget("messages", drawn)) for drawn in queued]
    assert [message["args"] for message in messages] == [[{"job_id": job_id(n)}] for n in (7, 8)]
    assert [message["id"].encode() for message in messages] == queued
    assert all(str(uuid.UUID(message["id"])) == message["id"] for message in messages)
    assert valkey.zrange("due", 0, -1, withscores=True) == [(job_id(n).encode(), 1_796_032_800_123) for n in (7, 8)]
    entries = [json.loads(fields[b"data"]) for _, fields in valkey.xrange("stream")]
    assert [entry["job_id"] for entry in entries] == [job_id(7), job_id(8)]
    assert len({entry["task"] for entry in entries} | {message["id"].replace("-", "") for message in messages}) == 4
    valkey.flushdb()


def test_all_ids_are_as_long_as_the_one_that_was_watched() -> None:
    """A length that a library wrote beside it stays true."""
    assert {len(job_id(number)) for number in (1, 999_999_999)} == {len(MARKER)}
