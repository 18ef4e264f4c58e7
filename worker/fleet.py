"""What the health keys and the queues say: the workers, alive and lost, and how much work waits."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import redis

from worker.keys import PRIORITIES, Keys

ABLE_TO_WORK: Final = frozenset({"ready", "degraded"})


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker as its health key shows it (docs/wire-contract.md, section 5).

    ``fields`` is empty for one that is lost: the key expires three heartbeats after the last one. ``heartbeat_age_ms`` is by
    Redis' clock, None for one that is not in the registry.
    """

    worker_id: str
    heartbeat_age_ms: int | None
    fields: Mapping[str, str] = field(default_factory=dict)

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

    @property
    def models(self) -> dict[str, Any]:
        """Its public model names, each with what the worker says of it."""
        try:
            models = json.loads(self.fields.get("models", "{}"))
        except ValueError:
            return {}
        return models if isinstance(models, dict) else {}


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


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much waits where; ``queues`` is by public name, with what Celery producers put into priority lists."""

    queues: Mapping[str, int]
    waiting: int
    settlements: int
    dead_letters: int


def read_fleet(client: redis.Redis, keys: Keys) -> Fleet:
    """Return every worker of the namespace's registry."""
    pipe = client.pipeline(transaction=False)
    pipe.time()
    pipe.zrange(keys.workers, 0, -1, withscores=True)
    now, beats = pipe.execute()
    at_ms = _ms(now)
    for raw_id, _ in beats:
        pipe.hgetall(keys.worker(raw_id.decode()))
    health = [
        WorkerHealth(raw_id.decode(), max(0, at_ms - int(beat)), _decoded(fields))
        for (raw_id, beat), fields in zip(beats, pipe.execute() if beats else [], strict=True)
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
    return WorkerHealth(worker_id, age, _decoded(fields))


def read_backlog(client: redis.Redis, keys: Keys, models: Iterable[str]) -> Backlog:
    """Return how much waits, in the queues of these models and in what all of them share."""
    names = list(models)
    pipe = client.pipeline(transaction=False)
    for name in names:
        for priority in PRIORITIES:
            pipe.llen(keys.jobs(name) + priority)
    pipe.zcard(keys.waiting)
    pipe.xlen(keys.settlements)
    pipe.xlen(keys.dead_letters)
    *lengths, waiting, settlements, dead_letters = pipe.execute()
    step = len(PRIORITIES)
    queues = {name: sum(lengths[step * index : step * (index + 1)]) for index, name in enumerate(names)}
    return Backlog(queues, waiting, settlements, dead_letters)


def count_claims(client: redis.Redis, keys: Keys) -> int:
    """Return how many jobs are claimed, by workers that live or not.

    Looks through all keys of the database, a part at a time: no registry names the claims of runs that have ended.
    """
    return sum(client.hlen(key) for key in client.scan_iter(match=keys.claims("*"), count=5000))


def next_jobs(client: redis.Redis, keys: Keys, models: Iterable[str]) -> dict[str, bytes | None]:
    """Return the bytes of the job that each model's queue hands out next, None for an empty queue."""
    names = list(models)
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.lindex(keys.jobs(name), -1)
    return dict(zip(names, pipe.execute() if names else [], strict=True))


def redis_time_ms(client: redis.Redis) -> int:
    """Return Redis' clock in unix milliseconds."""
    return _ms(client.time())


def _ms(seconds_and_micros: tuple[int, int]) -> int:
    seconds, micros = seconds_and_micros
    return seconds * 1000 + micros // 1000


def _decoded(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode(errors="backslashreplace") for name, value in fields.items()}
