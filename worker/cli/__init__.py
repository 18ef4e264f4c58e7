"""The command ``speedinfer``: one module a command, put together in :mod:`worker.cli.commands`."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from worker.cli.commands import program

    program()()
