"""``speedinfer check --suggest NAME``: a configuration for a model that nobody has described yet."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from worker.cli.failures import NOT_RIGHT, NotRight, Unreachable
from worker.cli.output import shown, write_json, write_note

if TYPE_CHECKING:
    from settings.schema import Settings
    from worker.cli.probing import ProbeFindings
    from worker.triton.suggesting import Suggestion

_PUBLIC_NAME = "suggested"


def suggest(model_name: str, config: Path | None, endpoint: str | None, *, prompt: str | None, as_json: bool) -> None:
    """Write a ``runtime_config`` for a model of Triton's, tried with one inference where a prompt is given.

    Raises NotRight where Triton does not have the model, Unreachable where it does not answer. Exits 1 where no
    configuration could work, or the inference failed.
    """
    settings = _settings(model_name, config, endpoint)
    suggestion = _suggestion(model_name, settings)
    probed = _probed(suggestion, settings, prompt) if prompt and suggestion.works else None
    if as_json:
        write_json(_as_json(model_name, suggestion, probed))
    else:
        _show(suggestion, probed)
    if not suggestion.works or (probed is not None and not probed.ok):
        raise typer.Exit(NOT_RIGHT)


def _settings(model_name: str, config: Path | None, endpoint: str | None) -> "Settings":
    """Return settings of that one model, on the endpoint or on the configuration's with its headers and certificates."""
    from settings.load import settings_from
    from worker.cli.targets import worker_settings

    fields: dict[str, Any] = {"model_name": model_name}
    if endpoint is not None:
        return settings_from(
            {
                "worker_id": "check",
                "runtime_endpoint": endpoint,
                "supported_models": [_PUBLIC_NAME],
                "runtime_config": fields,
            },
            source="--suggest",
        )
    return _with(worker_settings(config), fields)


def _with(settings: "Settings", fields: dict[str, Any]) -> "Settings":
    from pydantic import ValidationError

    from settings.fields import refusals_of
    from settings.load import ConfigurationError
    from settings.problems import problem
    from settings.runtime import RuntimeConfig

    try:
        runtime_config = RuntimeConfig.model_validate(fields)
    except ValidationError as error:
        raise ConfigurationError([problem(refusal, "--suggest") for refusal in refusals_of(error)]) from None
    changes = {"supported_models": (_PUBLIC_NAME,), "runtime_config": runtime_config, "models": {}}
    return settings.model_copy(update=changes)


def _suggestion(model_name: str, settings: "Settings") -> "Suggestion":
    from tasks.errors import JobError, ModelNotReady
    from worker.cli.ask_triton import triton_of
    from worker.triton.failures import reason_of
    from worker.triton.suggesting import suggest

    with triton_of(settings) as triton:
        try:
            return suggest(triton.describe(model_name))
        except ModelNotReady:
            raise NotRight(f"Triton at {settings.runtime_endpoint} has not loaded a model {model_name}") from None
        except JobError as error:
            raise Unreachable(f"Triton at {settings.runtime_endpoint} cannot be asked: {reason_of(error)}") from error


def _probed(suggestion: "Suggestion", settings: "Settings", prompt: str) -> "ProbeFindings":
    from worker.cli.ask_triton import triton_of
    from worker.cli.probing import probe

    tried = _with(settings, dict(suggestion.fields))
    with triton_of(tried) as triton:
        model = triton.describe(tried.runtime_config.model_name)
        return probe(_PUBLIC_NAME, tried.runtime_config, model, triton, prompt)


def _as_json(model_name: str, suggestion: "Suggestion", probed: "ProbeFindings | None") -> dict[str, Any]:
    from worker.cli import probing

    return {
        "triton_model": model_name,
        "works": suggestion.works,
        "runtime_config": dict(suggestion.fields),
        "notes": list(suggestion.notes),
        "missing": list(suggestion.missing),
        "probe": probing.as_json(probed),
    }


def _show(suggestion: "Suggestion", probed: "ProbeFindings | None") -> None:
    """Write the configuration to stdout, so that it can be put into a file, and all else beside it."""
    from worker.cli import probing

    typer.echo(json.dumps({"runtime_config": dict(suggestion.fields)}, indent=2, ensure_ascii=False))
    for note in suggestion.notes:
        write_note(shown(f"note: {note}"))
    for reason in suggestion.missing:
        write_note(shown(f"DOES NOT WORK: {reason}"))
    for line in probing.lines(probed) if probed else ():
        write_note(line)
