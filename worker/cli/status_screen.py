"""What ``speedinfer status`` says to people: tables of workers, pools and models, and in words why jobs wait."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from worker.cli.output import duration, shown, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from worker.cli.targets import RedisTarget
    from worker.fleet import WorkerHealth
    from worker.fleet_views import CircuitView, ModelView
    from worker.pool_use import PoolUse
    from worker.snapshot import Snapshot

_MOST_NAMED = 3
_WORKERS = ("worker", "state", "circuit", "in flight", "succeeded", "failed", "last error", "heartbeat", "not ready")
_POOLS = ("pool", "slots", "requests in 60 s", "tokens left", "adaptive level", "limits set by")
_MODELS = ("model", "queued", "running", "oldest", "workers", "circuit", "why jobs wait")


def screen(target: "RedisTarget", snapshot: "Snapshot", claims: int | None) -> "Iterator[RenderableType]":
    """Yield the parts of the screen, from top to bottom."""
    now_ms = snapshot.fleet.at_ms
    if snapshot.no_writes is not None:
        yield shown(
            f"Redis at {target.address} takes no writes, so no worker can show that it lives: {snapshot.no_writes}"
        )
        yield ""
    if snapshot.fleet.workers:
        yield table(_WORKERS, [_worker(worker, now_ms) for worker in snapshot.fleet.workers], right=_WORKERS[3:6])
    else:
        yield shown(
            f"no worker has registered in {target.namespace} at {target.address}; start one: speedinfer worker --config FILE"
        )
    if snapshot.pools:
        yield ""
        yield table(_POOLS, [_pool(pool) for pool in snapshot.pools], right=_POOLS[1:5])
        yield from _configured_otherwise(snapshot)
    if snapshot.models:
        yield ""
        yield table(_MODELS, [_model(view, snapshot) for view in snapshot.models], right=_MODELS[1:5])
    yield ""
    yield _counts(snapshot, claims)


def _counts(snapshot: "Snapshot", claims: int | None) -> str:
    counts = {
        "waiting for a retry": snapshot.backlog.waiting,
        "claimed": claims,
        "settlements": snapshot.backlog.settlements,
        "dead letters": snapshot.backlog.dead_letters,
    }
    return " · ".join(f"{name}: {count}" for name, count in counts.items() if count is not None)


def _worker(worker: "WorkerHealth", now_ms: int) -> tuple[Any, ...]:
    fields = worker.fields
    return (
        worker.worker_id,
        worker.state,
        fields.get("circuit"),
        f"{fields.get('in_flight', '-')}/{fields.get('concurrency', '-')}" if worker.is_live else None,
        fields.get("succeeded_total"),
        fields.get("failed_total"),
        _last_error(fields.get("last_error_code"), fields.get("last_error_at"), now_ms),
        None if worker.heartbeat_age_ms is None else f"{duration(worker.heartbeat_age_ms)} ago",
        _some(_out_of_order(worker)),
    )


def _out_of_order(worker: "WorkerHealth") -> Iterator[str]:
    """Yield the models that the worker takes no jobs of, each with what it says of it."""
    for name, said in sorted(worker.models.items()):
        if said.get("state") not in {None, "ready"}:
            because = ", ".join(str(said[part]) for part in ("reason", "cause") if said.get(part))
            yield f"{name}: {said['state']} ({because})" if because else f"{name}: {said['state']}"
        elif said.get("circuit") == "open":
            yield f"{name}: circuit open"


def _last_error(code: str | None, at: str | None, now_ms: int) -> str | None:
    from tasks import rfc3339

    if not code or not at:
        return code
    try:
        return f"{code} {duration(max(0, now_ms - rfc3339.to_ms(rfc3339.parse(at))))} ago"
    except ValueError:
        return code


def _pool(pool: "PoolUse") -> tuple[Any, ...]:
    is_adaptive = pool.level is not None
    return (
        pool.name,
        _of(pool.slots, pool.slots_limit),
        _of(pool.requests, pool.requests_limit),
        _of(None if pool.tokens is None else round(pool.tokens), pool.tokens_limit),
        f"{pool.level:.1f} of {pool.max_concurrency}" if is_adaptive else "off",
        pool.set_by,
    )


def _of(used: int | None, limit: int | None) -> str:
    return "off" if limit is None else f"{used}/{limit}"


def _configured_otherwise(snapshot: "Snapshot") -> Iterator[str]:
    pools = {pool.name: pool for pool in snapshot.pools}
    for worker in snapshot.fleet.workers:
        differences = list(pools[worker.pool].differences(worker.fields)) if worker.is_live else []
        if differences:
            yield shown(f"{worker.worker_id} is configured otherwise than pool {worker.pool}: {', '.join(differences)}")


def _model(view: "ModelView", snapshot: "Snapshot") -> tuple[Any, ...]:
    reason = snapshot.reasons[view.model]
    return (
        view.model,
        view.queued,
        view.running,
        duration(view.oldest_ms) or ("unknown" if view.queued else None),
        f"{view.able}/{len(view.runners)}",
        _some(_circuit(circuit) for circuit in view.circuits if circuit.state != "closed" or circuit.is_forced)
        or "closed",
        reason.words or None,
    )


def _circuit(circuit: "CircuitView") -> str:
    if circuit.is_forced:
        return f"forced {circuit.state} ({circuit.reason or 'no reason given'})"
    return f"{circuit.state} ({circuit.reason})" if circuit.reason else circuit.state


def _some(words: Iterable[str]) -> str:
    found = list(words)
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more
