"""How the worker and its models stand, as samples: the same words that its health key shows. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from worker.exchange import Limit
from worker.explained import Wait
from worker.gate import Standing
from worker.health import WorkerState
from worker.metrics import families
from worker.metrics.families import Family
from worker.metrics.samples import Sample
from worker.metrics.watch import Seen
from worker.pool_use import PoolUse

CIRCUIT_STATES: Final = ("closed", "open", "half_open")
CONSUMING: Final = frozenset({WorkerState.READY, WorkerState.DEGRADED})
"""The states in which jobs of at least one model are taken."""


def standing_samples(worker_id: str, health: Mapping[str, str]) -> Iterator[Sample]:
    """Return what the fields of a health key say; before there are any, that the worker is starting."""
    yield from _one_of(families.WORKER_STATE, (), tuple(WorkerState), health.get("state", WorkerState.STARTING))
    if not health:
        return
    said = ("pool", "endpoint_id", "version", "config_digest")
    yield Sample(families.WORKER_INFO, (worker_id, *(health.get(name, "") for name in said)), 1)
    yield Sample(families.CONCURRENCY, (), float(health.get("concurrency", "nan")))
    models: dict[str, Any] = json.loads(health.get("models", "{}"))
    for model, its in models.items():
        yield Sample(families.IN_FLIGHT, (model,), its.get("in_flight", 0))
        yield from _one_of(families.MODEL_STATE, (model,), tuple(Standing), its.get("state"))
        yield from _one_of(families.CIRCUIT_STATE, (model,), CIRCUIT_STATES, its.get("circuit"))
        yield from _one_of(families.WAITS, (model,), tuple(Limit), its.get("waits"))


def _one_of(family: Family, labels: tuple[str, ...], words: tuple[str, ...], word: str | None) -> Iterator[Sample]:
    for each in words:
        yield Sample(family, (*labels, each), int(each == word))


def seen_samples(pool: str, seen: Seen | None) -> Iterator[Sample]:
    """Return what the last look at Redis found; where it was not answered, that alone."""
    yield Sample(families.REDIS_UP, (), int(seen is not None))
    if seen is None:
        return
    for model, queue in seen.queues.items():
        yield Sample(families.QUEUE_JOBS, (model,), queue.jobs)
        yield Sample(families.OLDEST_JOB_SECONDS, (model,), queue.oldest_ms / 1000)
        yield Sample(families.MODEL_PAUSED, (model,), int(queue.is_paused))
    yield Sample(families.WAITING_JOBS, (), seen.waiting)
    yield Sample(families.SETTLEMENTS, (), seen.settlements)
    yield Sample(families.DEAD_LETTER_ENTRIES, (), seen.dead_letters)
    yield from _pool_samples(pool, seen.pool)


def why_samples(waits: Iterable[Wait]) -> Iterator[Sample]:
    """Return how many jobs wait of each model and why; there are hundreds of models, so nothing of those whose jobs do not."""
    for wait in waits:
        yield Sample(families.WHY, (wait.model, wait.kind), wait.queued)


def _pool_samples(name: str, pool: PoolUse) -> Iterator[Sample]:
    requests = None if pool.requests_limit is None else pool.requests
    for family, value in (
        (families.POOL_SLOTS, pool.slots),
        (families.POOL_SLOTS_LIMIT, pool.max_concurrency),
        (families.POOL_LEVEL, pool.level),
        (families.POOL_REQUESTS, requests),
        (families.POOL_REQUESTS_LIMIT, pool.requests_limit),
        (families.POOL_TOKENS, pool.tokens),
        (families.POOL_TOKENS_LIMIT, pool.tokens_limit),
    ):
        if value is not None:
            yield Sample(family, (name,), value)
