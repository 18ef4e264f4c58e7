"""``speedinfer models``: the public names of a configuration, the Triton model behind each, and what waits for it."""

import json
from typing import TYPE_CHECKING, Any

import typer

from worker.cli.failures import UNREACHABLE, Unreachable
from worker.cli.options import Config, Debug, Json
from worker.cli.output import duration, wants_json, write_json, write_note, write_table
from worker.cli.targets import target_of, worker_settings

if TYPE_CHECKING:
    from settings.schema import Settings
    from worker.fleet import Backlog, Fleet


def app() -> typer.Typer:
    """Return the command; further verbs on models are subcommands of it."""
    group = typer.Typer(invoke_without_command=True, no_args_is_help=False)
    group.callback()(models)
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
    """
    if ctx.invoked_subcommand is not None:
        return
    from worker.fleet import next_jobs, read_backlog, read_fleet

    settings = worker_settings(config)
    target = target_of(settings)
    with target.connected() as client:
        fleet = read_fleet(client, target.keys)
        backlog = read_backlog(client, target.keys, settings.supported_models)
        heads = next_jobs(client, target.keys, settings.supported_models)
    ready = _ready(settings)
    rows = [_row(name, settings, fleet, backlog, heads[name], ready) for name in settings.supported_models]
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


def _row(
    name: str,
    settings: "Settings",
    fleet: "Fleet",
    backlog: "Backlog",
    head: bytes | None,
    ready: dict[str, bool] | None,
) -> dict[str, Any]:
    runtime = settings.runtime_for(name)
    return {
        "model": name,
        "triton_model": runtime.model_name,
        "version": runtime.model_version,
        "ready": None if ready is None else ready[name],
        "queue_length": backlog.queues[name],
        "next_job_age_ms": _age_ms(head, fleet.at_ms),
        "workers": len(fleet.serving(name)),
    }


def _show(rows: list[dict[str, Any]]) -> None:
    headings = ("model", "triton model", "version", "ready", "jobs in queue", "next job waits since", "live workers")
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


def _age_ms(raw: bytes | None, now_ms: int) -> int | None:
    """Return how long ago the job was enqueued, None where it does not say."""
    from tasks import rfc3339

    try:
        job = json.loads(raw or b"null")
        return max(0, now_ms - rfc3339.to_ms(rfc3339.parse(job["enqueued_at"])))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
