"""Pausing and resuming models over all workers."""

import json
from dataclasses import dataclass
from typing import Any

import redis

from tasks import rfc3339
from worker.fleet import redis_time_ms
from worker.keys import Keys


@dataclass(frozen=True, slots=True)
class Paused:
    """How it is now, whether that is a change, and whether any worker declares such a model."""

    is_paused: bool
    changed: bool
    is_declared: bool


def pause(client: redis.Redis, keys: Keys, model: str, *, reason: str, by: str) -> Paused:
    """Keep all workers from taking the model's jobs; its registry is empty at once. A second pause replaces the reason."""
    said = {"reason": reason, "by": by, "at": rfc3339.from_ms(redis_time_ms(client))}
    pipe = client.pipeline(transaction=True)
    pipe.sadd(keys.paused, model)
    pipe.hset(keys.pauses, model, json.dumps(said))
    # Workers leave it with their next heartbeat, which writes nobody into it any more; routing need not wait for that.
    pipe.delete(keys.model_workers(model))
    return _done(pipe, keys, model, is_paused=True)


def resume(client: redis.Redis, keys: Keys, model: str) -> Paused:
    """Let workers take the model's jobs again: each does from its next heartbeat on, or as soon as it hears of it."""
    pipe = client.pipeline(transaction=True)
    pipe.srem(keys.paused, model)
    pipe.hdel(keys.pauses, model)
    return _done(pipe, keys, model, is_paused=False)


def _done(pipe: Any, keys: Keys, model: str, *, is_paused: bool) -> Paused:
    pipe.hexists(keys.models, model)
    changed, *_, is_declared = pipe.execute()
    return Paused(is_paused, bool(changed), bool(is_declared))
