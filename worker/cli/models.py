"""``speedinfer models``: the public names of a configuration, the Triton model behind each, and what waits for it."""

from typing import TYPE_CHECKING, Any

import typer

from worker.cli.circuits import app as circuit
from worker.cli.failures import UNREACHABLE, Unreachable
from worker.cli.options import Config, Debug, Json
from worker.cli.output import duration, wants_json, write_json, write_note, write_table
from worker.cli.pauses import pause, resume
from worker.cli.targets import target_of, worker_settings

if TYPE_CHECKING:
    from settings.schema import Settings
    from worker.backlog import Queue


def app() -> typer.Typer:
    """Return the command with its subcommands."""
    group = typer.Typer(invoke_without_command=True, no_args_is_help=False)
    group.callback()(models)
    group.command("pause")(pause)
    group.command("resume")(resume)
    group.add_typer(circuit(), name="circuit")
    return group


def models(
    ctx: typer.Context,
    *,
    config: Config = None,
    as_json: Json = None,
    _debug: Debug = False,
) -> None:
    """Show the configured public names: the Triton model behind each, whether it is ready, and what waits in its queue.

    Exit 3 if Triton or Redis cannot be reached.

    Examples:
        speedinfer models --config worker.json
        speedinfer models --config worker.json --json | jq 'select(.ready | not)'
        speedinfer models pause acme/model-1 --reason "new weights at 14:00"
    """
    if ctx.invoked_subcommand is not None:
        return
    from worker.backlog import read_backlog
    from worker.fleet import count_able, redis_time_ms

    settings = worker_settings(config)
    target, names = target_of(settings), settings.supported_models
    with target.connected() as client:
        able = count_able(client, target.keys, names, settings.heartbeat_seconds)
        queues = read_backlog(client, target.keys, names, redis_time_ms(client)).queues
    ready = _ready(settings)
    rows = [_row(name, settings, queues[name], able[name], None if ready is None else ready[name]) for name in names]
    if wants_json(as_json):
        for row in rows:
            write_json(row)
    else:
        _show(rows)
    if ready is None:
        raise typer.Exit(UNREACHABLE)


def _ready(settings: "Settings") -> "dict[str, bool] | None":
    """Return whether the Triton model behind each public name is ready, None where Triton does not say."""
    from worker.cli.ask_triton import readiness

    try:
        return readiness(settings)
    except Unreachable as failure:
        write_note(f"speedinfer: {failure}")
        return None


def _row(name: str, settings: "Settings", queue: "Queue", able: int, ready: bool | None) -> dict[str, Any]:
    runtime = settings.runtime_for(name)
    return {
        "model": name,
        "triton_model": runtime.model_name,
        "version": runtime.model_version,
        "ready": ready,
        "queue_length": queue.length,
        "next_job_age_ms": queue.oldest_ms,
        "workers": able,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    headings = (
        "model",
        "triton model",
        "version",
        "ready",
        "jobs in queue",
        "next job waits since",
        "workers that take them",
    )
    words = {None: "unknown", True: "ready", False: "not ready"}
    write_table(
        headings,
        [
            (
                row["model"],
                row["triton_model"],
                row["version"] or "policy",
                words[row["ready"]],
                row["queue_length"],
                duration(row["next_job_age_ms"]),
                row["workers"],
            )
            for row in rows
        ],
        right=headings[4:],
    )
