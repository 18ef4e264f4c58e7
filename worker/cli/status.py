"""``speedinfer status``: the workers from their health keys, and how much work waits."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.options import Debug, Json, Namespace, RedisConfig, RedisUrl
from worker.cli.output import duration, wants_json, write_json, write_table
from worker.cli.targets import RedisTarget, optional_settings, redis_target, target_of, worker_settings

if TYPE_CHECKING:
    from worker.fleet import Backlog, Fleet, WorkerHealth

_NUMBERS = ("consecutive_failures", "in_flight", "concurrency", "pool_max_concurrency", "pid")


def status(
    *,
    this_worker: Annotated[
        bool,
        typer.Option(
            "--this-worker",
            help="Only the configuration's own worker: exit 0 if it lives and takes jobs, else 1. For health checks.",
        ),
    ] = False,
    claims: Annotated[
        bool,
        typer.Option(
            "--claims",
            help="Count the jobs that are claimed, also by workers that are lost. Looks through all keys of the database.",
        ),
    ] = False,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Show the workers, and how many jobs wait in which queue.

    A worker is lost when it has shown no life for three heartbeats, by Redis' clock.

    Examples:
        speedinfer status
        speedinfer status --json | jq '.workers[] | select(.state == "lost")'
        speedinfer status --config worker.json --this-worker
    """
    if this_worker:
        _show_this_worker(config, as_json=wants_json(as_json))
        return
    from worker.fleet import count_claims, read_backlog, read_fleet

    settings = optional_settings(config)
    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        fleet = read_fleet(client, target.keys)
        models = sorted({*fleet.models, *(settings.supported_models if settings else ())})
        backlog = read_backlog(client, target.keys, models)
        claimed = count_claims(client, target.keys) if claims else None
    if wants_json(as_json):
        write_json(_as_json(fleet, backlog, claimed))
    else:
        _show(target, fleet, backlog, claimed)


def _show_this_worker(config: Path | None, *, as_json: bool) -> None:
    from worker.fleet import read_worker

    settings = worker_settings(config)
    target = target_of(settings)
    with target.connected() as client:
        worker = read_worker(client, target.keys, settings.worker_id)
    if as_json:
        write_json(_worker_as_json(worker))
    else:
        typer.echo(f"{worker.worker_id}: {worker.state}")
    if not worker.is_able_to_work:
        raise typer.Exit(1)


def _as_json(fleet: "Fleet", backlog: "Backlog", claimed: int | None) -> dict[str, Any]:
    from tasks import rfc3339

    return {
        "at": rfc3339.from_ms(fleet.at_ms),
        "workers": [_worker_as_json(worker) for worker in fleet.workers],
        "queues": [
            {"model": model, "length": length, "workers": len(fleet.serving(model))}
            for model, length in backlog.queues.items()
        ],
        "waiting": backlog.waiting,
        "claims": claimed,
        "settlements": backlog.settlements,
        "dead_letters": backlog.dead_letters,
    }


def _worker_as_json(worker: "WorkerHealth") -> dict[str, Any]:
    fields = {
        name: _number(value) if name in _NUMBERS or name.endswith("_total") else value
        for name, value in worker.fields.items()
    }
    known = {"worker_id": worker.worker_id, "state": worker.state, "heartbeat_age_ms": worker.heartbeat_age_ms}
    return {**fields, **known, "models": worker.models}


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


def _show(target: RedisTarget, fleet: "Fleet", backlog: "Backlog", claimed: int | None) -> None:
    if fleet.workers:
        headings = (
            "worker",
            "state",
            "circuit",
            "in flight",
            "succeeded",
            "failed",
            "last error",
            "heartbeat",
            "not ready",
        )
        write_table(headings, [_row(worker, fleet.at_ms) for worker in fleet.workers], right=headings[3:6])
    else:
        typer.echo(
            f"no worker has registered in {target.namespace} at {target.address}; start one: speedinfer worker --config FILE"
        )
    if backlog.queues:
        typer.echo("")
        rows = [(model, length, len(fleet.serving(model))) for model, length in backlog.queues.items()]
        write_table(("model", "jobs in queue", "live workers"), rows, right=("jobs in queue", "live workers"))
    counts = {
        "waiting for a retry": backlog.waiting,
        "claimed": claimed,
        "settlements": backlog.settlements,
        "dead letters": backlog.dead_letters,
    }
    typer.echo("")
    typer.echo(" · ".join(f"{name}: {count}" for name, count in counts.items() if count is not None))


def _row(worker: "WorkerHealth", now_ms: int) -> tuple[Any, ...]:
    fields = worker.fields
    heartbeat = duration(worker.heartbeat_age_ms)
    return (
        worker.worker_id,
        worker.state,
        fields.get("circuit"),
        f"{fields.get('in_flight', '-')}/{fields.get('concurrency', '-')}" if worker.is_live else None,
        fields.get("succeeded_total"),
        fields.get("failed_total"),
        _last_error(fields.get("last_error_code"), fields.get("last_error_at"), now_ms),
        f"{heartbeat} ago" if heartbeat else None,
        ", ".join(_out_of_order(worker)),
    )


def _out_of_order(worker: "WorkerHealth") -> Iterator[str]:
    """Yield the models that the worker takes no jobs of, each with what it says of it."""
    for name, said in sorted(worker.models.items()):
        state, reason = (said.get("state"), said.get("reason")) if isinstance(said, dict) else (None, None)
        if state not in {None, "ready"}:
            yield f"{name}: {state} ({reason})" if reason else f"{name}: {state}"


def _last_error(code: str | None, at: str | None, now_ms: int) -> str | None:
    from tasks import rfc3339

    if not code or not at:
        return code
    try:
        return f"{code} {duration(max(0, now_ms - rfc3339.to_ms(rfc3339.parse(at))))} ago"
    except ValueError:
        return code
