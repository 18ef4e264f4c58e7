"""``speedinfer settlements``: look at the settlement queue, follow it, and drop what its readers are done with."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.failures import Failure, NotRight, Unreachable, WrongUsage
from worker.cli.options import Debug, Json, Namespace, RedisConfig, RedisUrl
from worker.cli.output import escaped, wants_json, write_json, write_note, write_table
from worker.cli.targets import RedisTarget, redis_target
from worker.cli.tensor_files import output_lines, units

if TYPE_CHECKING:
    from worker.streams import Settled

_HEADINGS = ("id", "job", "model", "result", "tokens in + out", "queued ms", "inference ms")
_RIGHT = _HEADINGS[4:]
_LONGEST_TEXT = 60


def app() -> typer.Typer:
    """Return the command with its subcommands."""
    group = typer.Typer(invoke_without_command=True, no_args_is_help=False)
    group.callback()(settlements)
    group.command("groups")(groups)
    group.command("trim")(trim)
    return group


def settlements(
    ctx: typer.Context,
    *,
    count: Annotated[
        int,
        typer.Option(
            "--count", "-n", min=0, help="How many to show: the newest ones, or the first ones after --after."
        ),
    ] = 20,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Only those after this stream id.", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with every new one as it comes, until Ctrl-C.")
    ] = False,
    text: Annotated[
        bool, typer.Option("--text", help="Show the start of the text or outputs too. (JSON always holds all of it.)")
    ] = False,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Show the settlement queue: one entry per job that has ended. It only reads; nothing is acknowledged or dropped.

    Examples:
        speedinfer settlements --count 5
        speedinfer settlements --follow --json | jq .result.usage
        speedinfer settlements --follow --after 1764496800000-0
        speedinfer settlements trim
    """
    if ctx.invoked_subcommand is not None:
        return
    if after is not None:
        _check_id(after)
    target = redis_target(config, redis_url, namespace)
    if wants_json(as_json):
        _show_json(target, count, after, follow=follow)
    else:
        _show_table(target, count, after, follow=follow, text=text)


def groups(
    *,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Show the consumer groups that read the settlement queue, and how far each is."""
    from dataclasses import asdict

    from worker.streams import settlement_groups

    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        found = [asdict(group) for group in settlement_groups(client, target.keys)]
    if wants_json(as_json):
        for group in found:
            write_json(group)
    elif found:
        write_table([name.replace("_", " ") for name in found[0]], [list(group.values()) for group in found])
    else:
        typer.echo(f"no consumer group reads {target.keys.settlements}; make one with XGROUP CREATE")


def trim(
    *,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Drop the settlements that every consumer group has acknowledged.

    Kept is everything from the oldest entry on that some group has not acknowledged, or has yet to read. Without a consumer
    group nothing is dropped, and the command ends with 1. A group that nobody reads any more holds everything: remove it
    with XGROUP DESTROY.
    """
    from worker.streams import NoGroups, trim_settlements

    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        try:
            trimmed = trim_settlements(client, target.keys)
        except NoGroups:
            raise NotRight(
                f"no consumer group reads {target.keys.settlements}, so nothing is known to be settled for good; nothing was "
                f"dropped. Make a group with: XGROUP CREATE {target.keys.settlements} NAME 0"
            ) from None
    if wants_json(as_json):
        write_json({"dropped": trimmed.dropped, "left": trimmed.left, "kept_from": trimmed.kept_from})
    else:
        typer.echo(f"dropped {trimmed.dropped}, left {trimmed.left}")


def _check_id(stream_id: str) -> None:
    parts = stream_id.split("-")
    if len(parts) > 2 or not all(_is_64_bits(part) for part in parts):
        raise WrongUsage(f"--after takes a stream id such as 1764496800000-0, not {escaped(stream_id)}")


def _is_64_bits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64


def _show_json(target: RedisTarget, count: int, after: str | None, *, follow: bool) -> None:
    for settled in _read(target, count, after, follow=follow):
        for each in settled:
            write_json(
                {
                    "id": each.stream_id,
                    "job_id": each.job_id,
                    "status": each.status,
                    "model": each.model,
                    "result": each.result,
                }
            )


def _show_table(target: RedisTarget, count: int, after: str | None, *, follow: bool, text: bool) -> None:
    headings = (*_HEADINGS, "text") if text else _HEADINGS
    for page, settled in enumerate(_read(target, count, after, follow=follow)):
        rows = [(*_row(each), *([_start_of(_product(each))] if text else [])) for each in settled]
        if follow and page:
            for row in rows:
                typer.echo("  ".join("-" if cell is None else escaped(str(cell)) for cell in row))
        elif rows:
            write_table(headings, rows, right=_RIGHT)
        elif not follow:
            write_note(f"speedinfer: {target.keys.settlements} holds no settlement")


def _read(target: RedisTarget, count: int, after: str | None, *, follow: bool) -> "Iterable[list[Settled]]":
    """Give what is there as the first list; then, where it is followed, each further settlement as a list of its own."""
    from worker.streams import follow_settlements, last_settlements, settlements_after

    last = after or "0-0"
    try:
        with target.connected() as client:
            found = (
                settlements_after(client, target.keys, after, count)
                if after
                else last_settlements(client, target.keys, count)
                if count
                else []
            )
            yield found
            if not follow:
                return
            last = found[-1].stream_id if found else after or _newest_id(client, target)
            for settled in follow_settlements(client, target.keys, last):
                yield [settled]
                last = settled.stream_id
    except Unreachable as failure:
        raise _resumable(failure, last) if follow else failure from None


def _newest_id(client: Any, target: RedisTarget) -> str:
    from worker.streams import last_settlements

    newest = last_settlements(client, target.keys, 1)
    return newest[-1].stream_id if newest else "0-0"


def _resumable(failure: Failure, last: str) -> Failure:
    return Unreachable(f"{failure}; then go on with --follow --after {last}")


def _row(settled: "Settled") -> tuple[Any, ...]:
    result = settled.result
    usage, timings, error = (result.get(name) or {} for name in ("usage", "timings", "error"))
    tokens = f"{usage.get('prompt_tokens')} + {usage.get('completion_tokens')}" if usage else None
    if usage and "outputs" in result:
        tokens = units(usage)
    outcome = error.get("code") or settled.status
    return (
        settled.stream_id,
        settled.job_id,
        settled.model,
        outcome,
        tokens,
        timings.get("queued_ms"),
        timings.get("inference_ms"),
    )


def _product(settled: "Settled") -> str | None:
    outputs = settled.result.get("outputs")
    return settled.result.get("text") if outputs is None else " | ".join(output_lines(outputs))


def _start_of(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
