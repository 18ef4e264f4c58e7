"""``speedinfer check``: does the configuration fit the Triton and the Redis that it names?"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli.failures import NOT_RIGHT, UNREACHABLE
from worker.cli.options import Config, Debug, Json
from worker.cli.output import shown, wants_json, write_json, write_table
from worker.cli.targets import target_of, worker_settings

if TYPE_CHECKING:
    from worker.cli.ask_redis import RedisFindings
    from worker.cli.ask_triton import ModelFindings, TritonFindings
    from worker.triton.model_contract import Comparison

_VERDICTS = {"fits": "fits", "mismatch": "DOES NOT FIT", "not_ready": "NOT READY", "unknown": "NOT CHECKED"}


def check(
    *,
    config: Config = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings too.")] = False,
    as_json: Json = None,
    _debug: Debug = False,
) -> None:
    """Hold a configuration beside the Triton and the Redis that it names, and show both sides of what does not fit.

    Exit 0 if a worker can run every configured model, 1 if not, 3 if Triton or Redis cannot be reached.

    Examples:
        speedinfer check --config worker.json
        speedinfer check --config worker.json --strict --json
    """
    from worker.cli.ask_redis import about_redis
    from worker.cli.ask_triton import about_model, about_triton, triton_of

    settings = worker_settings(config)
    with triton_of(settings) as triton:
        server = about_triton(settings, triton)
        models = [about_model(name, settings, triton) for name in settings.supported_models] if server.reachable else []
    redis, failure = about_redis(target_of(settings))
    exit_code = _exit_code(server, models, redis, failure.exit_code if failure else 0, strict=strict)
    if wants_json(as_json):
        write_json(_as_json(server, models, redis, ok=exit_code == 0))
    else:
        _show(server, models, redis)
    if exit_code:
        raise typer.Exit(exit_code)


def _exit_code(
    server: "TritonFindings", models: "list[ModelFindings]", redis: "RedisFindings", redis_code: int, *, strict: bool
) -> int:
    """Return the gravest of what was found: what is unreachable hides whether the rest is right."""
    if not server.reachable:
        return UNREACHABLE
    wrong = any(model.verdict != "fits" for model in models) or bool(redis.errors) or (strict and bool(redis.warnings))
    return redis_code or (NOT_RIGHT if wrong else 0)


def _as_json(
    server: "TritonFindings", models: "list[ModelFindings]", redis: "RedisFindings", *, ok: bool
) -> dict[str, Any]:
    from worker.cli.ask_triton import as_json

    loaded = [{"name": name, "version": version} for name, version in server.models]
    return {
        "ok": ok,
        "triton": {**as_json(server), "models": loaded},
        "models": [as_json(model) for model in models],
        "redis": as_json(redis),
    }


def _show(server: "TritonFindings", models: "list[ModelFindings]", redis: "RedisFindings") -> None:
    _say(f"Triton  {server.endpoint}: {_server_line(server)}")
    if server.models:
        _say(
            "        loaded: "
            + ", ".join(f"{name} ({version})" if version else name for name, version in server.models)
        )
    _say(f"Redis   {redis.address}: " + (f"{redis.server} {redis.version}" if redis.reachable else "NOT REACHABLE"))
    for error in redis.errors:
        _say(f"        error: {error}")
    for warning in redis.warnings:
        _say(f"        warning: {warning}")
    for model in models:
        _show_model(model)


def _server_line(server: "TritonFindings") -> str:
    if not server.reachable:
        return f"NOT REACHABLE ({server.error})"
    state = "ready" if server.ready else "not ready as a whole (one of its models may be loading, or have failed)"
    return f"{server.name} {server.version}, {state}"


def _show_model(model: "ModelFindings") -> None:
    versions = f", version {', '.join(model.versions)}" if model.versions else ""
    _say("")
    _say(f"{model.model} -> {model.triton_model}{versions}: {_VERDICTS[model.verdict]}")
    if model.hint:
        _say(f"  {model.hint}")
    if model.comparisons:
        rows = [(each.field, each.configured, each.actual, _verdict(each)) for each in model.comparisons]
        write_table(("field", "configuration says", "model has", "verdict"), rows)


def _verdict(comparison: "Comparison") -> str:
    return f"doubtful: {comparison.reason}" if comparison.is_doubt else comparison.reason or "ok"


def _say(line: str) -> None:
    typer.echo(shown(line) if line else "")
