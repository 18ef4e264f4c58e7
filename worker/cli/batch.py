"""``speedinfer batch``: run the lines of a file as jobs, and write a line for each."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from worker.cli.failures import NOT_RIGHT
from worker.cli.options import Debug, Json, Namespace, RedisUrl
from worker.cli.output import wants_json
from worker.cli.targets import optional_settings, redis_target

_LINES = "What lines say"
_FILES = "Files"


class Form(StrEnum):
    """How the input is written."""

    JSONL = "jsonl"
    CSV = "csv"


def batch(
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="The file of lines: JSON lines, or CSV with a heading.")
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where result lines go. A journal is kept beside it.",
            rich_help_panel=_FILES,
        ),
    ],
    errors: Annotated[
        Path | None,
        typer.Option(
            "--errors",
            metavar="FILE",
            help="Where the lines of failures go. Default: into the output.",
            show_default=False,
            rich_help_panel=_FILES,
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="How the input is written. Default: csv where its name ends so, else jsonl.",
            show_default=False,
            rich_help_panel=_FILES,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="The model of lines that name none. Default: the configuration's, if it has one.",
            show_default=False,
            rich_help_panel=_LINES,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            "-n",
            min=1,
            help="Tokens to generate at most for lines that do not say.",
            show_default=False,
            rich_help_panel=_LINES,
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant", help="Whose lines they are that do not say.", show_default=False, rich_help_panel=_LINES
        ),
    ] = None,
    prompt_column: Annotated[
        str, typer.Option("--prompt-column", metavar="NAME", help="CSV's column of prompts.", rich_help_panel=_LINES)
    ] = "prompt",
    ignore_column: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore-column",
            metavar="NAME",
            help="A column of CSV that means nothing. May be repeated.",
            show_default=False,
            rich_help_panel=_LINES,
        ),
    ] = None,
    window: Annotated[
        int, typer.Option("--window", min=1, max=100_000, help="Lines between the input and the output at most.")
    ] = 1000,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Write lines in the input's order. Default: as they are done.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Read all lines first, and send nothing if one is bad.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            help="Go on with the batch that the output holds, or drop it and run every line anew.",
        ),
    ] = True,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="Show how far it is. Default where stderr is a terminal.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="A worker's configuration file, for its Redis, limits and chat templates. Without it: SPEEDINFER_CONFIG.",
            show_default=False,
        ),
    ] = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Run the lines of a file as jobs, and write a line for each.

    Lines are OpenAI's batch lines or plain ones with prompt or messages; what is written for them is as OpenAI's batches
    write it. Ended in whatever way, the same command goes on where it was: nothing is run or written twice.
    Exit 1 if any line failed.

    Examples:
        speedinfer batch prompts.jsonl --output results.jsonl
        speedinfer batch prompts.csv -o results.jsonl --model acme/model-1 --max-tokens 64
        speedinfer batch chats.jsonl -o results.jsonl --errors errors.jsonl --config worker.json --keep-order
    """
    from worker.cli.batch_screen import BatchScreen
    from worker.cli.batch_work import Asked, carried_out

    asked = Asked(
        source=source,
        output=output,
        errors=errors,
        form=None if form is None else form.value,
        model=model,
        max_tokens=max_tokens,
        tenant=tenant,
        prompt_column=prompt_column,
        ignored_columns=tuple(sorted(ignore_column or ())),
        window=window,
        keep_order=keep_order,
        strict=strict,
        resume=resume,
    )
    settings = optional_settings(config)
    target = redis_target(config, redis_url, namespace)
    with BatchScreen(shown=progress) as screen:
        done = carried_out(asked, target, settings, screen)
    screen.summary(done, as_json=wants_json(as_json))
    if done.counts.failed:
        raise typer.Exit(NOT_RIGHT)
