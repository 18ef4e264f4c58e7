"""The greenlets that run jobs: each keeps its place in Celery's pool from job to job.

One greenlet a job would cost more than most of what else a job costs this process: to be made, linked, counted and forgotten.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import gevent
from greenlet import greenlet


class Pool(Protocol):
    """What a crew needs of Celery's pool."""

    @property
    def num_processes(self) -> int:
        """How many greenlets it holds."""
        ...

    def apply_async(self, target: Callable[..., None], args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Run ``target`` in a greenlet; waits while there is no room for one."""
        ...


class Crew:
    """Runs jobs in greenlets of a pool, as many at once as it holds; more wait for their turn.

    A member that is killed takes only its own job with it: another is hired for what waits.
    """

    def __init__(self) -> None:
        """Hire nobody yet."""
        self._jobs: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._idle: list[greenlet] = []
        self._members = 0
        self._dismissed = False

    def run(self, pool: Pool, job: Callable[..., None], *args: Any) -> None:
        """Have ``job(*args)`` done soon, by a greenlet of ``pool``."""
        self._jobs.append((job, args))
        if self._idle:
            _wake(self._idle.pop())
        elif self._members < pool.num_processes:
            self._hire(pool)

    def dismiss(self) -> None:
        """Let its members go, each after its job: the pool waits for its greenlets to end."""
        self._dismissed = True
        while self._idle:
            _wake(self._idle.pop())

    def _hire(self, pool: Pool) -> None:
        self._members += 1
        pool.apply_async(self._work, args=(pool,), callback=_ignore, accept_callback=_ignore)

    def _work(self, pool: Pool) -> None:
        myself = gevent.getcurrent()
        try:
            while self._jobs or not self._dismissed:
                if self._jobs:
                    job, args = self._jobs.popleft()
                    job(*args)
                    del job, args  # Else it would keep the last job's prompt while it waits.
                else:
                    self._idle.append(myself)
                    gevent.get_hub().switch()
        finally:
            self._members -= 1
            if myself in self._idle:
                self._idle.remove(myself)
            if self._jobs:
                # By another greenlet: until this one has ended, the pool may have no room for the next.
                gevent.spawn(self._hire, pool)


def break_off(running: Mapping[str, greenlet], names: Iterable[str]) -> None:
    """Kill those of ``running`` that have these names. To be called by the hub: no greenlet goes on to another job meanwhile."""
    for name in names:
        if name in running:
            running[name].throw(gevent.GreenletExit)


def _wake(member: greenlet) -> None:
    # Called once for each time that a member was idle: woken twice, it would break into its next job's waiting.
    gevent.get_hub().loop.run_callback(member.switch)


def _ignore(*_: Any) -> None:
    """Do nothing: the pool insists on being told what to call."""
