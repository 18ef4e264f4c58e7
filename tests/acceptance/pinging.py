"""Celery's remote control as an operator asks for it: a command of its own."""

import json
from pathlib import Path

from tests.acceptance.fleet import run
from tests.waiting import wait_until


def wait_until_pinged(config: Path) -> None:
    """Return when ``celery inspect ping``, with this configuration, is answered by one worker, and rightly.

    What is asked while the worker does not listen yet, or again, is lost; and one that is stalled answers too late.
    """
    words = ("celery", "-A", "worker.celery", "inspect", "ping", "--json", "--timeout", "1")

    def is_answered() -> bool:
        asked = run(*words, environment={"SPEEDINFER_CONFIG": str(config)})
        return asked.code == 0 and list(json.loads(asked.out).values()) == [{"ok": "pong"}]

    wait_until(is_answered, description="the worker answers celery inspect ping", timeout=60)
