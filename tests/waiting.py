"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], *, description: str, timeout: float = 30.0, interval: float = 0.01) -> T:
    """Return the predicate's first true value; fail the test, saying what was waited for, after ``timeout`` seconds.

    Without a ``timeout`` nothing is said of how long it may take: a busy machine stalls any process for seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        is_late = time.monotonic() > deadline  # Before the look: a test that was stalled itself looks once more.
        value = predicate()
        if value:
            return value
        if is_late:
            raise AssertionError(f"waited {timeout:g} s in vain until {description}; last seen: {value!r}")
        time.sleep(interval)
