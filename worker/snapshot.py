"""The whole fleet at one time: workers, pools, models with what waits, and why."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from tasks import rfc3339
from worker.backlog import Backlog, read_backlog
from worker.circuit import Circuit
from worker.circuit_record import from_fields
from worker.explain import NEEDS_MENDING, Kind, Reason, why
from worker.fleet import Fleet, WorkerHealth, read_fleet
from worker.fleet_views import CircuitView, ModelView, Pause, Runner
from worker.keys import Keys
from worker.pool_use import PoolUse, answered, ask_for_pool

Endpoint = tuple[str, str]
"""An endpoint_id and a Triton model of it: what a circuit is of."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What ``speedinfer status`` shows; models and pools by name."""

    fleet: Fleet
    models: tuple[ModelView, ...]
    reasons: Mapping[str, Reason]
    pools: tuple[PoolUse, ...]
    backlog: Backlog
    no_writes: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether every live worker takes jobs, or was told not to, and none waits for something that has to be mended."""
        standing_still = any(worker.is_live and worker.state == "unavailable" for worker in self.fleet.workers)
        return self.no_writes is None and not standing_still and not any(map(self._is_stuck, self.models))

    def _is_stuck(self, view: ModelView) -> bool:
        kind = self.reasons[view.model].kind
        if kind is Kind.CIRCUIT and any(circuit.is_forced for circuit in view.circuits):
            return False
        return view.queued > 0 and kind in NEEDS_MENDING


@dataclass(frozen=True, slots=True)
class _Shared:
    """What workers share: their pools by name, and the circuits that are not missing."""

    pools: Mapping[str, PoolUse]
    circuits: Mapping[Endpoint, CircuitView]


def read_snapshot(
    client: redis.Redis, keys: Keys, also: Iterable[str] = (), *, no_writes: str | None = None
) -> Snapshot:
    """Return what is so now, of all models that are declared, served or paused, and of ``also``.

    ``no_writes`` is why Redis takes no writes, where that was asked and found.
    """
    fleet = read_fleet(client, keys)
    declared, pauses = _registered(client, keys)
    names = sorted({*fleet.models, *declared, *pauses, *also})
    shared = _read_shared(client, keys, fleet)
    backlog = read_backlog(client, keys, names, fleet.at_ms)
    lost = tuple(worker.worker_id for worker in fleet.workers if not worker.is_live)
    views = tuple(
        ModelView(
            model=name,
            queued=backlog.queues[name].length,
            oldest_ms=backlog.queues[name].oldest_ms,
            runners=tuple(_runner(worker, name, shared) for worker in fleet.serving(name)),
            pause=pauses.get(name),
            lost=lost,
        )
        for name in names
    )
    reasons = {view.model: why(view, fleet.at_ms, no_writes) for view in views}
    return Snapshot(fleet, views, reasons, tuple(shared.pools.values()), backlog, no_writes)


def circuit_view(endpoint: Endpoint, circuit: Circuit) -> CircuitView:
    """Return what status shows of a circuit."""
    return CircuitView(
        *endpoint,
        state=circuit.state,
        reason=circuit.reason,
        failures=circuit.row.total,
        opened_ms=circuit.opened_ms,
        retry_ms=circuit.retry_ms,
        is_forced=circuit.forced,
        forced_by=circuit.by,
    )


def pause_of(raw: bytes | None) -> Pause:
    """Return why a model is paused, by its entry in ``pauses``; without one, nothing is known."""
    try:
        said = json.loads(raw or b"null")
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return Pause()
    reason, by = (text if isinstance(text := said.get(name), str) else "" for name in ("reason", "by"))
    return Pause(reason, by, _unix_ms(said.get("at")))


def _registered(client: redis.Redis, keys: Keys) -> tuple[list[str], dict[str, Pause]]:
    """Return the public names that are declared, and those that are paused."""
    pipe = client.pipeline(transaction=False)
    pipe.hkeys(keys.models)
    pipe.smembers(keys.paused)
    pipe.hgetall(keys.pauses)
    declared, paused, pauses = pipe.execute()
    return [name.decode() for name in declared], {name.decode(): pause_of(pauses.get(name)) for name in paused}


def _read_shared(client: redis.Redis, keys: Keys, fleet: Fleet) -> _Shared:
    live = [worker for worker in fleet.workers if worker.is_live]
    pools = sorted({worker.pool for worker in live})
    endpoints = sorted({_endpoint(worker, name) for worker in live for name in worker.models})
    pipe = client.pipeline(transaction=False)
    for pool in pools:
        ask_for_pool(pipe, keys, pool, fleet.at_ms)
    for endpoint in endpoints:
        pipe.hgetall(keys.circuit(*endpoint))
    replies = iter(pipe.execute() if live else [])
    return _Shared(
        {pool: answered(pool, (next(replies), next(replies), next(replies)), fleet.at_ms) for pool in pools},
        {endpoint: circuit_view(endpoint, from_fields(raw)) for endpoint in endpoints if (raw := next(replies))},
    )


def _runner(worker: WorkerHealth, model: str, shared: _Shared) -> Runner:
    said = worker.model(model)
    endpoint = _endpoint(worker, model)
    # Workers of an earlier release know no circuits, and a closed one has no key for long.
    circuit = shared.circuits.get(endpoint) or CircuitView(*endpoint, state=str(said.get("circuit") or "closed"))
    return Runner(
        worker_id=worker.worker_id,
        state=worker.state,
        in_flight=worker.number("in_flight"),
        concurrency=worker.number("concurrency"),
        runtime_endpoint=worker.fields.get("runtime_endpoint", ""),
        pool=shared.pools[worker.pool],
        circuit=circuit,
        standing=str(said.get("state") or "ready"),
        reason=_text(said.get("reason")),
        cause=_text(said.get("cause")),
        waits=_text(said.get("waits")),
        model_in_flight=in_flight if isinstance(in_flight := said.get("in_flight"), int) else 0,
        triton_version=_text(said.get("triton_version")),
    )


def _endpoint(worker: WorkerHealth, model: str) -> Endpoint:
    return worker.fields.get("endpoint_id", ""), str(worker.model(model).get("triton_model") or "")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _unix_ms(text: Any) -> int | None:
    try:
        return rfc3339.to_ms(rfc3339.parse(text)) if isinstance(text, str) else None
    except ValueError:
        return None
