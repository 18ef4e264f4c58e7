"""``speedinfer demo``: all of it on this machine."""


def demo() -> None:
    """Show all of it on this machine, without a GPU."""
