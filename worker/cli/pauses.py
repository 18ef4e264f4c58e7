"""``speedinfer models pause`` and ``resume``: whether workers take a model's jobs at all."""

import getpass
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.failures import WrongUsage
from worker.cli.options import Debug, Json, Namespace, RedisConfig, RedisUrl
from worker.cli.output import escaped, wants_json, write_json, write_note
from worker.cli.targets import redis_target

if TYPE_CHECKING:
    from worker.pauses import Paused

Model = Annotated[str, typer.Argument(metavar="NAME", help="The model's public name.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for those who read status.")]
ReasonOfAnEnd = Annotated[
    str | None,
    typer.Option("--reason", "-r", help="Why, for what the command writes: nothing is kept of it.", show_default=False),
]

_LONGEST_REASON = 500


def pause(
    name: Model,
    *,
    reason: Reason,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Keep all workers from taking a model's jobs: they wait in their queue. What runs goes on to its end.

    It holds until models resume, for workers that start later too. Paused again, it only changes the reason.

    Examples:
        speedinfer models pause acme/model-1 --reason "new weights at 14:00"
    """
    from worker import pauses

    model, line = public_name(name), reason_given(reason)
    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        done = pauses.pause(client, target.keys, model, reason=line, by=operator())
    words = "is paused" if done.changed else "was paused already; its reason is the new one"
    _tell(model, done, words, line, as_json=wants_json(as_json))
    if not done.is_declared:
        write_note(f"speedinfer: no worker has declared {model} in the last 7 days; is that how it is written?")


def resume(
    name: Model,
    *,
    reason: ReasonOfAnEnd = None,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Let workers take the jobs of a paused model again.

    Examples:
        speedinfer models resume acme/model-1
    """
    from worker import pauses

    model, line = public_name(name), None if reason is None else reason_given(reason)
    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        done = pauses.resume(client, target.keys, model)
    words = "is resumed" if done.changed else "was not paused"
    _tell(model, done, words, line, as_json=wants_json(as_json))


def operator() -> str:
    """Return who runs the command, for those who read status."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container may run as a user that has no name.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def reason_given(reason: str) -> str:
    """Return the reason on one line. Raises WrongUsage for one that says nothing, or too much."""
    line = " ".join(reason.split())
    if not line or len(line) > _LONGEST_REASON:
        raise WrongUsage(f"--reason takes 1 to {_LONGEST_REASON} characters: say why, for those who read status")
    return line


def public_name(name: str) -> str:
    """Return a name as the configuration takes it. Raises WrongUsage."""
    from pydantic import TypeAdapter, ValidationError

    from settings.fields import PublicName, refusals_of

    try:
        return str(TypeAdapter(PublicName).validate_python(name))
    except ValidationError as error:
        raise WrongUsage(f"{escaped(name)} is no public name: {refusals_of(error)[0].reason}") from None


def _tell(name: str, done: "Paused", words: str, reason: str | None, *, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "model": name,
                "paused": done.is_paused,
                "changed": done.changed,
                "declared": done.is_declared,
                "reason": reason,
            }
        )
    else:
        typer.echo(f"{name} {words}" + (f": {reason}" if reason else ""))
