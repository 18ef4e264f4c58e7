"""What all commands share: ``--version``, ``--debug``, and errors as one line with an exit code."""

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from worker import DISTRIBUTION
from worker.cli.failures import WRONG_USAGE, Failure, failure_of, is_output_error

_DEBUG = "debug"
_ORDER = ("demo", "check", "worker", "models", "status", "submit", "batch", "settlements", "dead-letters")


class Program(TyperGroup):
    """The root command: whatever goes wrong beneath it becomes one line on stderr and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; in standalone mode end the process with its exit code."""
        try:
            code = super().main(
                args, prog_name, complete_var, standalone_mode=False, windows_expand_args=windows_expand_args, **extra
            )
        except typer.TyperException as error:
            _say_usage(error)
            code = WRONG_USAGE
        except OSError as error:  # --help and --version write before there is a command.
            if not is_output_error(error):
                raise
            code = _say_failure(failure_of(error))
        if standalone_mode:
            sys.exit(code)
        return code

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is typer's
        """Return the commands in the order in which they are needed."""
        return [name for name in _ORDER if name in self.commands]

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand, and translate what it raises."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - the last boundary: people get one line, whatever went wrong
            if ctx.meta.get(_DEBUG):
                traceback.print_exception(error)
            raise typer.Exit(_say_failure(failure_of(error))) from None


def show_version(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda wanted: _show_version(wanted=wanted),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Run SpeedInfer's text generation jobs on NVIDIA Triton, and look at what runs.

    A worker takes jobs from a Redis list per model, runs each as one inference on Triton, and puts the result with its true
    token usage into the settlement queue.

    Start here: [bold]speedinfer demo[/bold] shows all of it on this machine, without a GPU.
    """


def remember_debug(ctx: typer.Context, wanted: bool) -> None:
    """Note that the user wants tracebacks."""
    if wanted:
        ctx.meta[_DEBUG] = True


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"speedinfer {version(DISTRIBUTION)}")
        raise typer.Exit


def _say_failure(failure: Failure) -> int:
    for line in str(failure).splitlines():
        typer.echo(f"speedinfer: {line}", err=True)
    return failure.exit_code


def _say_usage(error: typer.TyperException) -> None:
    message = error.format_message()
    if message:
        ctx = getattr(error, "ctx", None)
        command = ctx.command_path if ctx is not None else "speedinfer"
        typer.echo(f"{command}: {' '.join(message.split()).rstrip('.')}. See {command} --help.", err=True)
