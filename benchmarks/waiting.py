"""Waiting for what a benchmark needs, and giving up on it."""

import time
from collections.abc import Callable


class Stuck(Exception):
    """Something that had to happen did not."""


def wait_until(is_so: Callable[[], bool], description: str, *, seconds: float = 60.0, every: float = 0.01) -> None:
    """Return as soon as it is so; raise Stuck if it is not after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise Stuck(f"waited {seconds:g} s in vain until {description}")
        time.sleep(every)
