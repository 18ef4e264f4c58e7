"""All commands as one.

What a command needs is imported when it runs: ``--help`` is quick, and the worker's process is patched for gevent before
the clients of Redis and Triton are loaded.
"""

import typer

from worker.cli.batch import batch
from worker.cli.check import check
from worker.cli.dead_letters import app as dead_letters
from worker.cli.demo import demo
from worker.cli.models import app as models
from worker.cli.program import Program, show_version
from worker.cli.settlements import app as settlements
from worker.cli.status import status
from worker.cli.submit import submit
from worker.cli.worker import worker

_ENDING = "Exit codes: 0 done, 1 the thing checked is not right, 2 wrong usage or configuration, 3 Redis or Triton unreachable."


def program() -> typer.Typer:
    """Return the whole command."""
    app = typer.Typer(
        name="speedinfer",
        cls=Program,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=_ENDING,
    )
    app.callback()(show_version)
    app.command("worker")(worker)
    app.command("check")(check)
    app.add_typer(models(), name="models")
    app.command("status")(status)
    app.command("submit")(submit)
    app.command("batch")(batch)
    app.add_typer(settlements(), name="settlements")
    app.add_typer(dead_letters(), name="dead-letters")
    app.command("demo")(demo)
    return app
