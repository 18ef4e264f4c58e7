"""What ``speedinfer status`` says to scripts."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.fleet import WorkerHealth
    from worker.fleet_views import CircuitView, ModelView, Pause
    from worker.pool_use import PoolUse
    from worker.snapshot import Snapshot

_NUMBERS = (
    "consecutive_failures",
    "in_flight",
    "concurrency",
    "pool_max_concurrency",
    "pool_requests_per_minute",
    "pool_tokens_per_minute",
    "pid",
)


def snapshot_as_json(snapshot: "Snapshot", claims: int | None) -> dict[str, Any]:
    """Return the whole fleet as one object; times are RFC 3339."""
    return {
        "at": _time(snapshot.fleet.at_ms),
        "no_writes": snapshot.no_writes,
        "workers": [worker_as_json(worker) for worker in snapshot.fleet.workers],
        "pools": [_pool(pool, snapshot) for pool in snapshot.pools],
        "models": [_model(view, snapshot) for view in snapshot.models],
        "waiting": snapshot.backlog.waiting,
        "claims": claims,
        "settlements": snapshot.backlog.settlements,
        "dead_letters": snapshot.backlog.dead_letters,
    }


def worker_as_json(worker: "WorkerHealth") -> dict[str, Any]:
    """Return one worker with all fields of its health key."""
    fields = {
        name: _number(value) if name in _NUMBERS or name.endswith("_total") else value
        for name, value in worker.fields.items()
    }
    known = {"worker_id": worker.worker_id, "state": worker.state, "heartbeat_age_ms": worker.heartbeat_age_ms}
    return {**fields, **known, "models": worker.models}


def _pool(pool: "PoolUse", snapshot: "Snapshot") -> dict[str, Any]:
    workers = [worker for worker in snapshot.fleet.workers if worker.is_live and worker.pool == pool.name]
    differing = {worker.worker_id: list(pool.differences(worker.fields)) for worker in workers}
    return {
        "pool": pool.name,
        "slots": pool.slots,
        "slots_limit": pool.slots_limit,
        "max_concurrency": pool.max_concurrency,
        "requests": pool.requests,
        "requests_limit": pool.requests_limit,
        "tokens": pool.tokens,
        "tokens_limit": pool.tokens_limit,
        "level": pool.level,
        "set_by": pool.set_by or None,
        "configured_otherwise": {worker_id: words for worker_id, words in differing.items() if words},
    }


def _model(view: "ModelView", snapshot: "Snapshot") -> dict[str, Any]:
    reason = snapshot.reasons[view.model]
    return {
        "model": view.model,
        "queued": view.queued,
        "running": view.running,
        "oldest_ms": view.oldest_ms,
        "workers": len(view.runners),
        "able": view.able,
        "paused": None if view.pause is None else _pause(view.pause),
        "circuits": [_circuit(circuit) for circuit in view.circuits],
        "why": {"kind": reason.kind, "words": reason.words},
    }


def _pause(pause: "Pause") -> dict[str, Any]:
    return {"reason": pause.reason, "by": pause.by, "at": _time(pause.at_ms)}


def _circuit(circuit: "CircuitView") -> dict[str, Any]:
    return {
        "endpoint_id": circuit.endpoint_id,
        "triton_model": circuit.triton_model,
        "state": circuit.state,
        "reason": circuit.reason,
        "failures": circuit.failures,
        "opened_at": _time(circuit.opened_ms),
        "retry_at": _time(circuit.retry_ms),
        "forced": circuit.is_forced,
        "forced_by": circuit.forced_by or None,
    }


def _time(at_ms: int | None) -> str | None:
    from tasks import rfc3339

    return None if at_ms is None else rfc3339.from_ms(at_ms)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text
