"""docs/commands.md, written from the commands themselves: ``python -m worker.cli.reference > docs/commands.md``."""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

import typer

from worker.cli.commands import program

_INTRO: Final = """\
<!-- Written by `python -m worker.cli.reference`; edit the commands in worker/cli/ instead. -->
# Commands

Every command has `--help`. Where Redis is, and the namespace of its keys, is said by `--redis-url` and `--namespace`, else by a worker's
configuration (`--config`, or the file that `SPEEDINFER_CONFIG` names), else by `SPEEDINFER_REDIS_URL` and `SPEEDINFER_NAMESPACE`.
A password, certificates and Sentinels: [security.md](security.md).

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the thing checked is not right |
| 2 | wrong usage, or a wrong configuration |
| 3 | Redis or Triton cannot be reached |

What is wrong is said in one line on stderr, with what to do next. `--debug` shows the traceback too.
"""

_TAKES: Final = {"<str>": "TEXT", "<int>": "N", "<int range>": "N", "<path>": "FILE", "<list[str]>": ""}
_SHARED: Final = ("--json", "--redis-url", "--namespace", "--debug", "--help")
"""Options of most commands, with one meaning: they have a table of their own."""


def render_reference() -> str:
    """The whole page as Markdown, ending in one newline."""
    root = _in_context(typer.main.get_command(program()), None, "speedinfer")
    commands = list(_beneath(root))
    parts = [
        _INTRO,
        *_contents(commands),
        "",
        *_shared(commands),
        *(part for ctx in commands for part in _command(ctx)),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _in_context(command: Any, parent: Any, name: str) -> Any:
    return command.context_class(command, info_name=name, parent=parent)


def _beneath(ctx: Any) -> Iterator[Any]:
    """Every command beneath one, in the order in which --help lists them."""
    for name in ctx.command.list_commands(ctx) if hasattr(ctx.command, "list_commands") else ():
        found = _in_context(ctx.command.get_command(ctx, name), ctx, name)
        yield found
        yield from _beneath(found)


def _contents(commands: list[Any]) -> Iterator[str]:
    yield "| command | what it does |\n|---|---|"
    for ctx in commands:
        path = ctx.command_path
        says = inspect.cleandoc(ctx.command.help).partition("\n")[0]
        yield f"| [`{path}`](#{path.replace(' ', '-')}) | {_cell(says)} |"


def _shared(commands: list[Any]) -> Iterator[str]:
    """The options of most commands, each with the commands that do not take it."""
    doers = {ctx.command_path: dict(_options(ctx, shared=True)) for ctx in commands if _does_something(ctx.command)}
    meanings = {written: meaning for of_one in doers.values() for written, meaning in of_one.items()}
    yield "## Options of most commands\n\n| option | meaning | not of |\n|---|---|---|"
    for written, meaning in meanings.items():
        without = [f"`{path.partition(' ')[2]}`" for path, of_one in doers.items() if written not in of_one]
        yield f"| `{_cell(written)}` | {_cell(meaning)} | {', '.join(without)} |"
    yield ""


def _does_something(command: Any) -> bool:
    """Whether it is no mere name for the commands beneath it."""
    return not hasattr(command, "commands") or command.invoke_without_command


def _command(ctx: Any) -> Iterator[str]:
    text, _, examples = inspect.cleandoc(ctx.command.help).partition("\n\nExamples:\n")
    pieces = re.sub(r"[{}]", "", " ".join(ctx.command.collect_usage_pieces(ctx))).replace("......", "...")
    yield f"## {ctx.command_path}\n"
    yield f"    {ctx.command_path} {pieces}\n"
    yield f"{text}\n"
    if examples:
        yield f"```sh\n{inspect.cleandoc(examples)}\n```\n"
    arguments = [_record(each, ctx) for each in ctx.command.params if each.param_type_name == "argument"]
    if arguments:
        yield from _table("argument", arguments)
    options = list(_options(ctx, shared=False))
    if options:
        yield from _table("option", options)


def _options(ctx: Any, *, shared: bool) -> Iterator[tuple[str, str]]:
    for each in ctx.command.get_params(ctx):
        if each.param_type_name == "option" and (each.opts[0] in _SHARED) == shared:
            yield _record(each, ctx)


def _record(parameter: Any, ctx: Any) -> tuple[str, str]:
    """What --help shows of it: how it is written, and what it means."""
    written, meaning = parameter.get_help_record(ctx)
    for shown, plain in _TAKES.items():
        replacement = "" if parameter.param_type_name == "argument" else plain
        written = written.replace(shown, replacement).strip()
    return written, re.sub(r"  \[(.*)\]$", r" (\1)", meaning)


def _table(head: str, records: list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {head} | meaning |\n|---|---|"
    yield from (f"| `{_cell(written)}` | {_cell(meaning)} |" for written, meaning in records)
    yield ""


def _cell(text: str) -> str:
    """Text as a table's cell holds it."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render_reference())
