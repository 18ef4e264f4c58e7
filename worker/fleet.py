"""What the health keys say: the workers, alive and lost."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import redis

from worker.keys import Keys
from worker.registration import BEATS_TO_LIVE

ABLE_TO_WORK: Final = frozenset({"ready", "degraded"})

_READ_AT_ONCE: Final = 50
"""Health keys with hundreds of models are large: a worker that reads a whole fleet has jobs to run meanwhile."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker as its health key shows it (docs/wire-contract.md, section 5).

    ``fields`` is empty for one that is lost: the key expires three heartbeats after the last one. ``heartbeat_age_ms`` is by
    Redis' clock, None for one that is not in the registry. ``models`` is what the worker says of each public name.
    """

    worker_id: str
    heartbeat_age_ms: int | None
    fields: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, worker_id: str, heartbeat_age_ms: int | None, raw: Mapping[bytes, bytes]) -> Self:
        """Return a worker by the content of its health key."""
        fields = {name.decode(): value.decode(errors="backslashreplace") for name, value in raw.items()}
        return cls(worker_id, heartbeat_age_ms, fields, _models(fields.get("models", "{}")))

    @property
    def is_live(self) -> bool:
        """Whether the worker has shown life within three heartbeats."""
        return bool(self.fields)

    @property
    def state(self) -> str:
        """Its state, ``lost`` for a worker that no longer shows life."""
        return self.fields.get("state", "unknown") if self.is_live else "lost"

    @property
    def is_able_to_work(self) -> bool:
        """Whether it takes jobs of at least one model."""
        return self.state in ABLE_TO_WORK

    def model(self, name: str) -> Mapping[str, Any]:
        """What the worker says of one model, empty where that is nothing."""
        return self.models.get(name, {})

    @property
    def pool(self) -> str:
        """The name of its GPU pool."""
        return self.fields.get("pool", "")

    def number(self, name: str) -> int:
        """A field that is a count, 0 where it is none."""
        text = self.fields.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Every worker that is known, those that show life first, each by name; ``at_ms`` is Redis' clock."""

    at_ms: int
    workers: tuple[WorkerHealth, ...]

    @property
    def models(self) -> list[str]:
        """The public names that live workers serve, sorted."""
        return sorted({name for worker in self.workers if worker.is_live for name in worker.models})

    def serving(self, model: str) -> list[WorkerHealth]:
        """Return the live workers that may run a model."""
        return [worker for worker in self.workers if worker.is_live and model in worker.models]


def read_fleet(client: redis.Redis, keys: Keys) -> Fleet:
    """Return every worker of the namespace's registry."""
    pipe = client.pipeline(transaction=False)
    pipe.time()
    pipe.zrange(keys.workers, 0, -1, withscores=True)
    now, beats = pipe.execute()
    at_ms = _ms(now)
    health: list[WorkerHealth] = []
    for first in range(0, len(beats), _READ_AT_ONCE):
        some = beats[first : first + _READ_AT_ONCE]
        pipe = client.pipeline(transaction=False)
        for raw_id, _ in some:
            pipe.hgetall(keys.worker(raw_id.decode()))
        health += [
            WorkerHealth.of(raw_id.decode(), max(0, at_ms - int(beat)), fields)
            for (raw_id, beat), fields in zip(some, pipe.execute(), strict=True)
        ]
    return Fleet(at_ms, tuple(sorted(health, key=lambda worker: (not worker.is_live, worker.worker_id))))


def read_worker(client: redis.Redis, keys: Keys, worker_id: str) -> WorkerHealth:
    """Return one worker's health in one round trip, as a container's health check wants it."""
    pipe = client.pipeline(transaction=False)
    pipe.time()
    pipe.zscore(keys.workers, worker_id)
    pipe.hgetall(keys.worker(worker_id))
    now, beat, fields = pipe.execute()
    age = None if beat is None else max(0, _ms(now) - int(beat))
    return WorkerHealth.of(worker_id, age, fields)


def count_claims(client: redis.Redis, keys: Keys) -> int:
    """Return how many jobs are claimed, by workers that live or not.

    Looks through all keys of the database, a part at a time: no registry names the claims of runs that have ended.
    """
    return sum(client.hlen(key) for key in client.scan_iter(match=keys.claims("*"), count=5000))


def count_able(client: redis.Redis, keys: Keys, models: Iterable[str], beat_seconds: float) -> dict[str, int]:
    """Return by public name how many workers take jobs of it, as routing counts them: who missed three heartbeats is skipped."""
    oldest_ms = redis_time_ms(client) - round(BEATS_TO_LIVE * beat_seconds * 1000)
    names = list(models)
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.zcount(keys.model_workers(name), oldest_ms, "+inf")
    return dict(zip(names, pipe.execute() if names else [], strict=True))


def redis_time_ms(client: redis.Redis) -> int:
    """Return Redis' clock in unix milliseconds."""
    return _ms(client.time())


def _ms(seconds_and_micros: tuple[int, int]) -> int:
    seconds, micros = seconds_and_micros
    return seconds * 1000 + micros // 1000


def _models(text: str) -> dict[str, dict[str, Any]]:
    try:
        models = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(models, dict):
        return {}
    return {name: said if isinstance(said, dict) else {} for name, said in models.items()}
