"""Which process this is, for the health key."""

import os
from importlib.metadata import version
from socket import gethostname

from settings.digest import config_digest
from settings.schema import Settings
from worker import DISTRIBUTION
from worker.health import Process


def this_process(settings: Settings, started_at: str) -> Process:
    """Return this process, started at an RFC 3339 time of Redis' clock."""
    return Process(
        version=version(DISTRIBUTION),
        config_digest=config_digest(settings),
        hostname=gethostname(),
        pid=os.getpid(),
        started_at=started_at,
    )
