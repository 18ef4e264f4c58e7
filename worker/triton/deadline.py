"""A bound on how long a block may take, whatever it waits for."""

from collections.abc import Iterator
from contextlib import contextmanager

import gevent


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError when the block takes longer; bounds may stand within each other, and be shorter or longer."""
    timer = gevent.Timeout(seconds)
    timer.start()
    try:
        yield
    except gevent.Timeout as passed:
        # Another block's time may have passed, further out.
        if passed is not timer:
            raise
        raise TimeoutError from None
    finally:
        timer.close()
