"""``speedinfer check --explain``: what a configuration says of each model once its presets are written out."""

import json
from pathlib import Path

import typer

from worker.cli.output import write_json
from worker.cli.targets import worker_settings


def explain(config: Path | None, *, as_json: bool) -> None:
    """Write the plain ``runtime_config`` of each public name; nothing is connected to. Raises ConfigurationError."""
    settings = worker_settings(config)
    models = {name: settings.runtime_for(name).plain() for name in settings.supported_models}
    if as_json:
        for name, fields in models.items():
            write_json({"model": name, "runtime_config": fields})
    else:
        typer.echo(json.dumps(models, indent=2, ensure_ascii=False))
