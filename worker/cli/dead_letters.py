"""``speedinfer dead-letters``: look at what could not become a job, and put it back or away."""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.failures import NotRight, WrongUsage
from worker.cli.options import Debug, Json, Namespace, RedisConfig, RedisUrl
from worker.cli.output import escaped, wants_json, write_json, write_note, write_table
from worker.cli.targets import RedisTarget, redis_target

if TYPE_CHECKING:
    from worker.keys import Keys
    from worker.streams import Letter

_PREVIEW_BYTES = 60

Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, as list shows it.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Their ids, as list shows them.")]


def app() -> typer.Typer:
    """Return the command with its subcommands."""
    group = typer.Typer(no_args_is_help=True)
    group.callback()(dead_letters)
    group.command("list")(list_letters)
    group.command("show")(show)
    group.command("replay")(replay)
    group.command("delete")(delete)
    return group


def dead_letters() -> None:
    """Look at what was in a queue and could not become a job; put it back, or delete it.

    Examples:
        speedinfer dead-letters list
        speedinfer dead-letters show 1764496800000-0
        speedinfer dead-letters replay 1764496800000-0 --queue acme/model-2
    """


def list_letters(
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many to show, the newest first.")] = 20,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show how the content begins. It may hold parts of prompts.")
    ] = False,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """List the newest dead letters: why each is one, and where it came from. Their content is not shown."""
    from worker.streams import newest_letters

    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        rows = [_described(letter, preview=preview) for letter in newest_letters(client, target.keys, count)]
    if wants_json(as_json):
        for row in rows:
            write_json(row)
    elif rows:
        write_table(list(rows[0]), [list(row.values()) for row in rows], right=["bytes"])
    else:
        write_note(f"speedinfer: {target.keys.dead_letters} holds no dead letter")


def show(
    letter_id: Id,
    *,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the bytes to stdout exactly as they came, and nothing else.")
    ] = False,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Show one dead letter with its content, which may hold a prompt."""
    from worker.streams import find_letter

    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        letter = find_letter(client, target.keys, _checked(letter_id))
    if letter is None:
        raise _missing(letter_id)
    if raw:
        typer.echo(letter.raw, nl=False)
    elif wants_json(as_json):
        write_json({**_described(letter, preview=False), **_content(letter.raw)})
    else:
        for name, value in _described(letter, preview=False).items():
            typer.echo(f"{name}: {escaped(str(value))}")
        typer.echo(f"content: {escaped(letter.raw)}")


def replay(
    letter_ids: Ids,
    *,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            metavar="MODEL",
            help="Put it there instead: a public model name, or a queue's key.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Put dead letters back: the bytes as they came, at the back of the queue they came from.

    Each is taken off the dead letters in the same step, so repeating the command puts nothing into the queue twice. What was
    wrong with the bytes has to be gone, such as a limit of the worker, or they come back as a new dead letter.
    """
    from worker.streams import find_letter, replay_letter

    target = redis_target(config, redis_url, namespace)
    to_queue = None if queue is None else _queue(target.keys, queue)

    def replay_one(client: Any, letter_id: str) -> str | None:
        letter = find_letter(client, target.keys, letter_id)
        if letter is None:
            return None
        destination = to_queue or _queue(target.keys, letter.queue)
        return destination if replay_letter(client, target.keys, letter_id, destination) else None

    _for_each(target, letter_ids, replay_one, done="replayed", as_json=wants_json(as_json))


def delete(
    letter_ids: Ids,
    *,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Delete dead letters for good. Save the content first with show --raw, if it may be needed."""
    from worker.streams import delete_letter

    target = redis_target(config, redis_url, namespace)

    def delete_one(client: Any, letter_id: str) -> str | None:
        return target.keys.dead_letters if delete_letter(client, target.keys, letter_id) else None

    _for_each(target, letter_ids, delete_one, done="deleted", as_json=wants_json(as_json))


def _for_each(
    target: RedisTarget, letter_ids: list[str], act: Callable[[Any, str], str | None], *, done: str, as_json: bool
) -> None:
    """Do it to each letter; those that are not there are named at the end."""
    letter_ids = [_checked(letter_id) for letter_id in letter_ids]
    missing = []
    with target.connected() as client:
        for letter_id in letter_ids:
            where = act(client, letter_id)
            if where is None:
                missing.append(letter_id)
            elif as_json:
                write_json({"id": letter_id, done: True, "queue": where})
            else:
                typer.echo(f"{done} {letter_id} ({where})")
    if missing:
        raise _missing(*missing)


def _described(letter: "Letter", *, preview: bool) -> dict[str, Any]:
    described = {
        "id": letter.stream_id,
        "at": letter.at,
        "reason": letter.reason,
        "queue": letter.queue,
        "bytes": len(letter.raw),
        "worker_id": letter.worker_id,
    }
    return {**described, "preview": escaped(letter.raw[:_PREVIEW_BYTES])} if preview else described


def _content(raw: bytes) -> dict[str, str]:
    try:
        return {"raw": raw.decode(), "raw_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"raw": base64.b64encode(raw).decode(), "raw_encoding": "base64"}


def _queue(keys: "Keys", name: str) -> str:
    """Return a queue's key from itself or from its model's public name, which holds no colon."""
    if keys.is_jobs(name):
        return name
    if ":" in name or not name:
        raise WrongUsage(
            f"{escaped(name)} is no queue of jobs of the namespace {keys.namespace}: name one with --queue MODEL"
        )
    return keys.jobs(name)


def _checked(letter_id: str) -> str:
    ms, separator, seq = letter_id.partition("-")
    if not separator or not all(part.isascii() and part.isdigit() for part in (ms, seq)):
        raise WrongUsage(
            f"{escaped(letter_id)} is no dead letter's id: ids look like 1764496800000-0; see speedinfer dead-letters list"
        )
    return letter_id


def _missing(*letter_ids: str) -> NotRight:
    return NotRight(
        f"no dead letter {', '.join(letter_ids)}: replayed or deleted before? See speedinfer dead-letters list"
    )
