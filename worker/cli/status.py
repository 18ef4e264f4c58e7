"""``speedinfer status``: the whole fleet, and why jobs wait."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.failures import Unreachable
from worker.cli.options import Debug, Json, Namespace, RedisConfig, RedisUrl
from worker.cli.output import console, wants_json, write_json, write_note
from worker.cli.targets import RedisTarget, optional_settings, redis_target, target_of, worker_settings

if TYPE_CHECKING:
    from rich.console import Group

    from worker.snapshot import Snapshot

Taken = tuple["Snapshot", int | None]
"""A snapshot, and how many jobs are claimed where that was asked for."""


def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on showing it, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How often, with --watch.")] = 2.0,
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
    """Show the workers, the GPU pools beside their limits, and each model: what waits, what runs, and why jobs wait.

    Exit 1 where something has to be mended: Redis takes no writes, a live worker takes no jobs, or jobs wait for what is
    neither load nor a start nor an operator's own word. With --watch always 0.

    A worker is lost when it has shown no life for three heartbeats, by Redis' clock. "oldest" is how long the job that is next
    in line has been in its queue, by its own enqueued_at; "workers" are those that take the model's jobs now, of those that serve it.

    Examples:
        speedinfer status
        speedinfer status --watch
        speedinfer status --json | jq '.models[] | select(.queued > 0) | {model, why: .why.words}'
        speedinfer status --config worker.json --this-worker
    """
    if this_worker:
        _show_this_worker(config, as_json=wants_json(as_json))
        return
    settings = optional_settings(config)
    target = redis_target(config, redis_url, namespace)
    looks = _looks(target, settings.supported_models if settings else (), claims=claims)
    if wants_json(as_json):
        from worker.cli.status_json import snapshot_as_json

        _show(looks, lambda taken: write_json(snapshot_as_json(*taken)), every if watch else None)
    elif watch and console().is_terminal:
        _watch_live(target, looks, every)
    else:
        _show(looks, lambda taken: console().print(_group(target, taken)), every if watch else None)


def _looks(target: RedisTarget, models: Iterable[str], *, claims: bool) -> "Iterator[Taken | Unreachable]":
    """Give what is so, whenever the next one is asked for; Unreachable, where Redis does not answer any more."""
    from worker.fleet import count_claims
    from worker.redis_writes import read_refusal_of_writes
    from worker.snapshot import read_snapshot

    has_answered = False
    while True:
        try:
            with target.connected() as client:
                taken = (
                    read_snapshot(client, target.keys, models, no_writes=read_refusal_of_writes(client, target.keys)),
                    count_claims(client, target.keys) if claims else None,
                )
        except Unreachable as failure:
            if not has_answered:
                raise
            yield failure
        else:
            has_answered = True
            yield taken


def _show(looks: "Iterator[Taken | Unreachable]", write: "Callable[[Taken], None]", every: float | None) -> None:
    """Show one look, or one after the other until Ctrl-C."""
    try:
        for taken in looks:
            if isinstance(taken, Unreachable):
                write_note(f"speedinfer: {taken}")
            else:
                write(taken)
            if every is None:
                break
            time.sleep(every)
    except KeyboardInterrupt:
        return
    if not isinstance(taken, Unreachable) and not taken[0].is_well:
        raise typer.Exit(1)


def _watch_live(target: RedisTarget, looks: "Iterator[Taken | Unreachable]", every: float) -> None:
    """Show each look in the place of the one before; the last one stays on the screen."""
    from rich.console import Group
    from rich.live import Live

    last: Group = Group()
    try:
        with Live(console=console(), screen=True, auto_refresh=False) as live:
            for taken in looks:
                if isinstance(taken, Unreachable):
                    live.update(Group(f"{taken}; what was last seen:", "", last), refresh=True)
                else:
                    last = _group(target, taken)
                    live.update(last, refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        console().print(last)


def _group(target: RedisTarget, taken: "Taken") -> "Group":
    from rich.console import Group

    from worker.cli.status_screen import screen

    return Group(*screen(target, *taken))


def _show_this_worker(config: Path | None, *, as_json: bool) -> None:
    from worker.cli.status_json import worker_as_json
    from worker.fleet import read_worker

    settings = worker_settings(config)
    target = target_of(settings)
    with target.connected() as client:
        worker = read_worker(client, target.keys, settings.worker_id)
    if as_json:
        write_json(worker_as_json(worker))
    else:
        typer.echo(f"{worker.worker_id}: {worker.state}")
    if not worker.is_able_to_work:
        raise typer.Exit(1)
