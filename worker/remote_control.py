"""Celery's remote control: what reads is answered, what would change something is refused, and a lost connection comes back."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import gevent
import structlog
from celery.worker import control, pidbox
from celery.worker.consumer.control import Control
from redis.exceptions import NoPermissionError

if TYPE_CHECKING:
    from greenlet import greenlet

READ: Final = frozenset(
    {
        "active",
        "active_queues",
        "clock",
        "conf",
        "memsample",
        "ping",
        "query_task",
        "registered",
        "report",
        "reserved",
        "revoked",
        "scheduled",
        "stats",
    }
)
"""What only reads. Of what Celery calls inspecting, ``hello`` takes over revoked ids, and ``objgraph`` and ``memdump`` hold up jobs."""

_WHY: Final = (
    "refused: a job ends by its outcome, a worker by SIGTERM, and its configuration says the rest (docs/deployment.md)"
)

_AS_STARTED: Final = "refused: events are sent where celery_events is set, or the worker was started with -E"
_QUIET: Final = frozenset({"disable_events", "enable_events", "heartbeat"})
"""What Flower and ``celery events`` send again and again, whether they are answered or not."""

log = structlog.get_logger()


def _refuse(name: str, _state: Any, **_: Any) -> dict[str, str]:
    if name in _QUIET:
        return {"error": _AS_STARTED}
    log.warning("remote_control.was_refused", command=name)
    return {"error": _WHY}


def handlers() -> dict[str, Callable[..., Any]]:
    """Return what answers each of Celery's commands: those that end or change something only say no."""
    return {
        name: handler if handler.__name__ in READ else partial(_refuse, name)
        for name, handler in control.Panel.data.items()
    }


class SteadyPidbox(pidbox.gPidbox):
    """Remote control that comes back after a lost connection, and takes only commands that read.

    Celery's own greenlet ends with its first connection. Its commands that change something (revoke, shutdown, pool_restart, …)
    end jobs in ways of which nothing would be settled.
    """

    def __init__(self, consumer: Any) -> None:
        """Put our handlers in place."""
        super().__init__(consumer)
        self._listener: greenlet | None = None
        self.node.handlers = handlers()

    def loop(self, consumer: Any) -> None:
        """Listen until the consumer closes."""
        self._listener = gevent.getcurrent()
        while consumer.connection:
            try:
                super().loop(consumer)
            except consumer.connection_errors as error:
                log.warning("remote_control.was_interrupted", exception=type(error).__name__)
            except NoPermissionError:
                log.warning("remote_control.was_refused", reason="this Redis user may not use its channels")
                return
            else:
                return

    def on_stop(self) -> None:
        """End the listening now. Celery waits for its poll to end, a second of every drain, or for a Redis that is away."""
        if self._listener is not None:
            gevent.kill(self._listener)  # Its connection closes with it, and so the consumer and the channel.
            self._listener = self.consumer = self.node.channel = None


class SteadyControl(Control):
    """The step that starts remote control, with ours in place of Celery's."""

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        """Put our mailbox in place, as Celery's step does with its own."""
        super().__init__(consumer, **kwargs)
        box = SteadyPidbox(consumer)
        self.__dict__.update(box=box, start=box.start, stop=box.stop, shutdown=box.shutdown)
