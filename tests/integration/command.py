"""Running a command of ``speedinfer`` in the test's own process."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from worker.cli.commands import program


def run(*arguments: str, stdin: str | bytes | None = None, **environment: str) -> Result:
    """Run the command with nothing configured but by the arguments and these variables."""
    known = {"SPEEDINFER_CONFIG": None, "SPEEDINFER_REDIS_URL": None, "SPEEDINFER_NAMESPACE": None}
    env = {**known, "TERM": "dumb", "COLUMNS": "200", **environment}
    return CliRunner().invoke(program(), list(arguments), input=stdin, env=env)


def objects(result: Result, exit_code: int = 0) -> list[Any]:
    """What the command wrote, a JSON object a line; it has to have ended with this code."""
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def lines(result: Result, exit_code: int = 0) -> list[str]:
    """The lines that the command wrote to stdout; it has to have ended with this code."""
    assert result.exit_code == exit_code, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]
