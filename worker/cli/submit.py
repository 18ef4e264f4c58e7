"""``speedinfer submit``: put one job into a model's queue, and wait for its result if wanted."""

import json
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.failures import WrongUsage
from worker.cli.options import Debug, Json, Namespace, RedisConfig, RedisUrl
from worker.cli.output import escaped, wants_json, write_json, write_note
from worker.cli.results import awaited, show_result, told_where_it_will_be
from worker.cli.targets import RedisTarget, optional_settings, redis_target
from worker.cli.tensor_files import tensor_fields

if TYPE_CHECKING:
    import redis

    from tasks.tensors import Job
    from worker.submit import EnqueueReply


def submit(
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT|-]", help="The prompt; - reads it from stdin.", show_default=False)
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="The model's public name. Default: the configuration's, if it has one.",
            show_default=False,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-n", help="Tokens to generate at most. Default: 64.", show_default=False),
    ] = None,
    tensors: Annotated[
        str | None,
        typer.Option(
            "--tensors",
            metavar="FILE|-",
            help="Submit a tensor job instead: a JSON file, or stdin, with its inputs, outputs and inference_parameters.",
            show_default=False,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="A generation parameter; the value is JSON, or else text. May be repeated.",
            show_default=False,
        ),
    ] = None,
    job_id: Annotated[
        str | None, typer.Option("--job-id", help="The job's id. Default: a new one.", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Echoed in the result.", show_default=False)] = None,
    batch_id: Annotated[
        str | None, typer.Option("--batch-id", help="Echoed in the result.", show_default=False)
    ] = None,
    custom_id: Annotated[
        str | None, typer.Option("--custom-id", help="Echoed in the result.", show_default=False)
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", metavar="NAME=TEXT", help="Echoed in the result. May be repeated.", show_default=False
        ),
    ] = None,
    expires_in: Annotated[
        float | None,
        typer.Option(
            "--expires-in",
            metavar="SECONDS",
            min=0,
            max=315_360_000,
            help="Do not start the job later than this.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the result and show it; exit 1 if the job failed.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="Wait no longer than this. Default: without end.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Put one job into its model's queue; with --wait, show its text (or outputs) and usage.

    The job is put there once, even where Redis' answer is lost and the command asks again.

    Examples:
        speedinfer submit "Name three rivers." --model acme/model-1 --wait
        speedinfer submit - --model acme/model-1 --max-tokens 200 < prompt.txt
        speedinfer submit "Hi" -m acme/model-1 -p temperature=0.2 -p 'stop=["."]' --wait --json
        speedinfer submit --tensors request.json -m acme/embeddings --wait
    """
    from worker.submit import enqueue

    content = _text(prompt, max_tokens, param) if tensors is None else _tensors(tensors, prompt, max_tokens, param)
    given = {"job_id": job_id, "model": model, "tenant": tenant, "batch_id": batch_id, "custom_id": custom_id}
    fields = {**content, **{name: value for name, value in given.items() if value is not None}}
    if metadata:
        fields["metadata"] = dict(_pair("--metadata", each, str) for each in metadata)
    fields = {"job_id": str(uuid.uuid4()), "model": fields.get("model") or _only_model(config), **fields}
    _job(fields)
    target = redis_target(config, redis_url, namespace)
    with target.connected() as client:
        job = _job({**fields, **_times(client, expires_in)})
        reply = enqueue(client, target.keys, job)
        with told_where_it_will_be(target.keys, job):
            _warn_where_nobody_serves(client, target, job)
            result = awaited(client, target.keys, job, timeout) if wait else None
    if result is None:
        _show_queued(target, job, reply, as_json=wants_json(as_json))
    else:
        show_result(result, as_json=wants_json(as_json))


def _only_model(config: Path | None) -> str:
    settings = optional_settings(config)
    if settings is None:
        raise WrongUsage("which model? Name it with --model NAME, or a configuration that has one with --config FILE")
    if len(settings.supported_models) > 1:
        raise WrongUsage(f"which model? Name one with --model: {', '.join(settings.supported_models)}")
    return settings.supported_models[0]


def _text(prompt: str | None, max_tokens: int | None, param: list[str] | None) -> dict[str, Any]:
    return {
        "prompt": _prompt(prompt),
        "max_tokens": 64 if max_tokens is None else max_tokens,
        "parameters": dict(_pair("--param", each, _json_or_text) for each in param or ()),
    }


def _tensors(file: str, *of_texts: object) -> dict[str, Any]:
    if any(of_texts):
        raise WrongUsage(
            "a tensor job has no prompt, no --max-tokens and no --param: all of it is in the --tensors file"
        )
    return tensor_fields(file)


def _prompt(argument: str | None) -> str:
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        raise WrongUsage("there is no prompt: give it as the argument, or - to read it from stdin")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise WrongUsage("the prompt on stdin is not UTF-8: convert it first") from None


def _pair(option: str, text: str, read: Any) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise WrongUsage(f"{option} takes NAME=VALUE, as in {option} temperature=0.2")
    return name, read(value)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _times(client: "redis.Redis", expires_in: float | None) -> dict[str, str]:
    """Return the job's times by Redis' clock, which is the one that the worker compares them with."""
    from tasks import rfc3339
    from worker.fleet import redis_time_ms

    now = redis_time_ms(client)
    times = {"enqueued_at": rfc3339.from_ms(now)}
    if expires_in is not None:
        times["expires_at"] = rfc3339.from_ms(now + round(expires_in * 1000))
    return times


def _job(fields: dict[str, Any]) -> "Job":
    from pydantic import ValidationError

    from tasks.job import GenerateJob
    from tasks.tensors import TensorJob

    try:
        return (TensorJob if "inputs" in fields else GenerateJob).model_validate(fields)
    except ValidationError as error:
        # Never the value: this line may end in a log, and the value may be a prompt.
        problems = {
            ".".join(map(str, each["loc"])): each["msg"]
            for each in error.errors(include_url=False, include_input=False, include_context=False)
        }
        raise WrongUsage("\n".join(f"{name}: {escaped(message)}" for name, message in problems.items())) from None


def _warn_where_nobody_serves(client: "redis.Redis", target: RedisTarget, job: "Job") -> None:
    from worker.fleet import read_fleet

    if not read_fleet(client, target.keys).serving(job.model):
        write_note(f"speedinfer: no live worker serves {job.model}; the job stays in its queue until one does")


def _show_queued(target: RedisTarget, job: "Job", reply: "EnqueueReply", *, as_json: bool) -> None:
    queue = target.keys.jobs(job.model)
    if as_json:
        write_json({"job_id": job.job_id, "queue": queue, "queue_length": reply.queue_length})
    else:
        typer.echo(
            f"job {job.job_id} is in {queue} (jobs in it: {reply.queue_length}); its result will be at {target.keys.result(job.job_id)}"
        )
