"""Options that several commands take, each with one help text."""

from pathlib import Path
from typing import Annotated

import typer

from worker.cli.program import remember_debug

_REDIS = "Redis"

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The worker's configuration file. Without it: SPEEDINFER_CONFIG.",
        show_default=False,
    ),
]

RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="Where Redis is. Without it: the configuration's, SPEEDINFER_REDIS_URL, or redis://127.0.0.1:6379/0.",
        show_default=False,
        rich_help_panel=_REDIS,
    ),
]

Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="What every key starts with. Without it: the configuration's, SPEEDINFER_NAMESPACE, or speedinfer.",
        show_default=False,
        rich_help_panel=_REDIS,
    ),
]

RedisConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="A worker's configuration file, for its Redis and namespace. Without it: SPEEDINFER_CONFIG.",
        show_default=False,
        rich_help_panel=_REDIS,
    ),
]

Json = Annotated[
    bool | None,
    typer.Option(
        "--json/--no-json",
        help="Write JSON, one object a line. Default where stdout is no terminal.",
        show_default=False,
    ),
]

Debug = Annotated[
    bool,
    typer.Option("--debug", callback=remember_debug, expose_value=False, help="Show tracebacks."),
]
