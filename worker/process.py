"""This process: which it is, for the health key, and how it collects its garbage."""

import gc
import os
from importlib.metadata import version
from socket import gethostname
from typing import Final

from settings.digest import config_digest
from settings.schema import Settings
from worker import DISTRIBUTION
from worker.health import Process

_OBJECTS_A_COLLECTION: Final = 10_000
"""More than these new objects without an end start one; Python's own number is 700."""


def this_process(settings: Settings, started_at: str) -> Process:
    """Return this process, started at an RFC 3339 time of Redis' clock."""
    return Process(
        version=version(DISTRIBUTION),
        config_digest=config_digest(settings),
        hostname=gethostname(),
        pid=os.getpid(),
        started_at=started_at,
    )


def collect_garbage_seldom() -> None:
    """Leave what the start has made out of every later collection, and do one for every some hundreds of jobs, not some tens."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION, *gc.get_threshold()[1:])
