"""The jobs that run in this process now, each in a greenlet, and how they are broken off."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import gevent

from worker.crew import break_off

if TYPE_CHECKING:
    from greenlet import greenlet


class Runs:
    """The greenlets that run jobs, by tag."""

    def __init__(self) -> None:
        """Begin with none."""
        self._greenlets: dict[str, greenlet] = {}

    def __contains__(self, tag: str) -> bool:
        """Tell whether a job has been started and has not ended."""
        return tag in self._greenlets

    @contextmanager
    def of(self, tag: str) -> Iterator[None]:
        """Know this greenlet as the one that runs a job, meanwhile."""
        self._greenlets[tag] = gevent.getcurrent()
        try:
            yield
        finally:
            del self._greenlets[tag]

    def kill(self) -> None:
        """Break all of them off, now."""
        gevent.killall(list(self._greenlets.values()), block=False)

    def break_off_after(self, seconds: float) -> None:
        """Break off those that run now and will still run then."""
        late: Iterable[str] = tuple(self._greenlets)
        gevent.spawn_later(seconds, gevent.get_hub().loop.run_callback, break_off, self._greenlets, late)
