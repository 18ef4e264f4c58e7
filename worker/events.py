"""Celery's events, where they are asked for (``-E``): what `celery events` and Flower show of workers and runs of jobs.

They are for looking at, not for accounts: they are lost while nobody listens. What became of a job is in its settlement.
"""

import time
from collections import deque
from typing import Any, Final

import gevent
import structlog
from celery.events.dispatcher import EventDispatcher
from gevent.event import Event
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import JobError

_MOST_WAITING: Final = 10_000
_LAST_SECONDS: Final = 1.0

log = structlog.get_logger()


class UnhurriedDispatcher(EventDispatcher):
    """Sends events from a greenlet of its own, so that no job waits for them; the oldest are dropped where too many wait."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Wait for something to send."""
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_MOST_WAITING)
        self._is_there = Event()
        self._sender: Any = None
        super().__init__(*args, **{**kwargs, "buffer_while_offline": False})

    def send(self, type: str, *args: Any, **fields: Any) -> None:  # noqa: A002, ARG002 - Celery's signature
        """Have an event sent soon, as of now. What Celery says of repeats and delays is left out."""
        if not self.enabled:
            return
        said = {name: value for name, value in fields.items() if name not in {"retry", "retry_policy", "blind"}}
        self._waiting.append((type, {"timestamp": time.time(), **said}))
        self._is_there.set()
        if self._sender is None:
            self._sender = gevent.spawn(self._send_for_ever)

    def close(self) -> None:
        """Send what waits, for a moment, and end."""
        if self._sender is not None:
            deadline = time.monotonic() + _LAST_SECONDS
            while self._waiting and time.monotonic() < deadline:
                gevent.sleep(0.01)
            self._sender.kill()
            self._sender = None
        super().close()

    def _send_for_ever(self) -> None:
        while True:
            self._is_there.wait()
            self._is_there.clear()
            while self._waiting:
                kind, fields = self._waiting.popleft()
                try:
                    super().send(kind, **fields)
                except (OperationalError, RedisError, OSError) as error:
                    log.debug("event.was_dropped", kind=kind, exception=type(error).__name__)


def received(delivery: Delivery) -> dict[str, Any]:
    """Return what is told of a job that was claimed: never its content."""
    return {
        "args": "()",
        "kwargs": "{}",
        "retries": len(delivery.attempts),
        "queue": delivery.queue_model,
    }


def ended(outcome: Outcome, seconds: float) -> tuple[str, dict[str, Any]]:
    """Return what is told of a run that has ended after so many seconds: the event's type and its fields."""
    match outcome:
        case Settlement(error=None):
            return "task-succeeded", {"result": "settled", "runtime": seconds}
        case Settlement(error=JobError() as error):
            return "task-failed", {"exception": error.code.value, "traceback": ""}
        case Retry(error=error) | Return(error=error):
            return "task-retried", {"exception": error.code.value, "traceback": ""}
        case DeadLetter(reason=reason):
            return "task-failed", {"exception": f"dead letter: {reason.value}", "traceback": ""}
        case Duplicate():
            return "task-rejected", {"requeue": False}
    raise AssertionError("unreachable")


def name_of(delivery: Delivery) -> str:
    """Return what a run is called where runs are shown: by its job's id, or by its claim where that is unknown."""
    return delivery.job_id or delivery.tag
