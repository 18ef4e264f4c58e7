"""``speedinfer worker``: run a worker in this process."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from worker.cli.options import Config, Debug


class LogLevel(StrEnum):
    """Least severe log lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def worker(
    *,
    config: Config = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            "--log-level",
            help="Least severe log lines that are written. Default: the configuration's.",
            show_default=False,
        ),
    ] = None,
    _debug: Debug = False,
) -> None:
    """Take jobs of the configured models, run them on Triton and settle them, until SIGTERM or Ctrl-C.

    Whatever is wrong with the configuration is said before anything connects. On SIGTERM the worker takes no more jobs and
    lets running ones end, for drain_seconds at most.

    Examples:
        speedinfer check --config worker.json
        speedinfer worker --config worker.json
        SPEEDINFER_CONCURRENCY=8 speedinfer worker --config worker.json --log-level debug
    """
    # Before anything imports sockets, Redis' client or Celery: what they took of the unpatched modules would block.
    from gevent import monkey

    monkey.patch_all()
    from worker.cli.targets import worker_settings

    settings = worker_settings(config)
    if log_level is not None:
        settings = settings.model_copy(update={"log_level": log_level.value})
    from worker.app import run_worker
    from worker.tracing.wanted import traces_wanted

    raise typer.Exit(run_worker(settings, traces_wanted(os.environ)))
