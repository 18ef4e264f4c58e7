"""``speedinfer check``: does the configuration fit the Triton and the Redis that it names?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli import probing
from worker.cli.failures import NOT_RIGHT, UNREACHABLE, WrongUsage
from worker.cli.options import Config, Debug, Json
from worker.cli.output import shown, wants_json, write_json, write_table
from worker.cli.targets import target_of, worker_settings
from worker.cli.tensor_table import HEADINGS

if TYPE_CHECKING:
    from worker.cli.ask_redis import RedisFindings
    from worker.cli.ask_triton import ModelFindings, TritonFindings
    from worker.triton.model_contract import Comparison

_VERDICTS = {"fits": "fits", "mismatch": "DOES NOT FIT", "not_ready": "NOT READY", "unknown": "NOT CHECKED"}


def check(
    *,
    config: Config = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on warnings and doubts too.")] = False,
    probe: Annotated[bool, typer.Option("--probe", help="Run one real inference of each model.")] = False,
    prompt: Annotated[str, typer.Option("--prompt", metavar="TEXT", help="What --probe asks.")] = probing.PROMPT,
    suggest: Annotated[
        str | None,
        typer.Option("--suggest", metavar="NAME", help="Write a runtime_config for this model of Triton's instead."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="URL", help="Triton that --suggest asks. Without it: the configuration's."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Write what each model's presets stand for instead; connects to nothing.")
    ] = False,
    as_json: Json = None,
    _debug: Debug = False,
) -> None:
    """Hold a configuration beside the Triton and the Redis that it names, and say what to change where it does not fit.

    Exit 0 if a worker can run every configured model, 1 if not, 3 if Triton or Redis cannot be reached.

    Examples:
        speedinfer check --config worker.json
        speedinfer check --config worker.json --probe
        speedinfer check --config worker.json --strict --json
        speedinfer check --suggest ensemble --endpoint http://triton:8000
    """
    _refuse_what_goes_not_together(suggest, endpoint, prompt, explain=explain, probe=probe)
    if explain:
        from worker.cli.explaining import explain as write_explanation

        write_explanation(config, as_json=wants_json(as_json))
    elif suggest is not None:
        from worker.cli.suggestion import suggest as write_suggestion

        asked = prompt if probe else None
        write_suggestion(suggest, config, endpoint, prompt=asked, as_json=wants_json(as_json))
    else:
        _check(config, prompt if probe else None, strict=strict, as_json=wants_json(as_json))


def _refuse_what_goes_not_together(
    suggest: str | None, endpoint: str | None, prompt: str, *, explain: bool, probe: bool
) -> None:
    if explain and (probe or suggest is not None):
        raise WrongUsage("--explain connects to nothing: use it without --probe and --suggest")
    if endpoint is not None and suggest is None:
        raise WrongUsage("--endpoint goes with --suggest; else the configuration's runtime_endpoint is asked")
    if prompt != probing.PROMPT and not probe:
        raise WrongUsage("--prompt goes with --probe")
    if not prompt:
        raise WrongUsage("--prompt must not be empty")


def _check(config: Path | None, prompt: str | None, *, strict: bool, as_json: bool) -> None:
    from worker.cli.ask_redis import about_redis
    from worker.cli.ask_triton import about_model, about_triton, triton_of

    settings = worker_settings(config)
    with triton_of(settings) as triton:
        server = about_triton(settings, triton)
        names = settings.supported_models if server.reachable else ()
        models = [about_model(name, settings, triton, prompt) for name in names]
    redis, failure = about_redis(target_of(settings))
    exit_code = _exit_code(server, models, redis, failure.exit_code if failure else 0, strict=strict)
    if as_json:
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
    wrong = bool(redis.errors) or not all(model.is_right for model in models)
    if strict:
        wrong = wrong or bool(redis.warnings) or any(model.is_doubtful for model in models)
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
    for each in model.comparisons:
        if each.reason:
            _say(f"  {_complaint(each)}")
    if model.verdict == "mismatch":
        _say(f"  speedinfer check --suggest {model.triton_model} writes a configuration that fits, where there is one")
    if model.tensors:
        # Of a model that fits, what nobody uses is of no interest.
        rows = [row.cells() for row in model.tensors if row.is_used or model.verdict != "fits"]
        write_table(HEADINGS, rows)
    for line in probing.lines(model.probe) if model.probe else ():
        typer.echo(f"  {line}")


def _complaint(comparison: "Comparison") -> str:
    doubt = "doubtful: " if comparison.is_doubt else ""
    remedy = f": {comparison.remedy}" if comparison.remedy else ""
    configured = "" if comparison.configured == "-" else f" = {comparison.configured}"
    return f"{doubt}{comparison.field}{configured} {comparison.reason}{remedy}"


def _say(line: str) -> None:
    typer.echo(shown(line) if line else "")
