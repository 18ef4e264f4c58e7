"""How Celery runs a delivered job: in a greenlet of the pool, without Celery's trace.

``Task.Strategy`` is Celery's own hook for this. The trace would build a context, a result and signals for each job that nobody
reads; what `celery inspect` shows is kept, and its events where they are asked for.
"""

import time
from collections.abc import Callable
from typing import Any

from celery.worker import state

from tasks.delivery import Delivery
from worker import events
from worker.transport import DELIVERY_HEADER


class JobRequest:
    """A running job, as Celery's worker state and `inspect` know it."""

    __slots__ = ("__weakref__", "acknowledged", "hostname", "id", "model", "name", "task", "time_start")

    def __init__(self, task: Any, delivery: Delivery, hostname: str) -> None:
        """Take what is shown; the job itself, with its prompt, is not."""
        self.task = task
        self.name = task.name
        self.id = events.name_of(delivery)
        self.model = delivery.queue_model
        self.hostname = hostname
        self.time_start: float | None = None
        self.acknowledged = False

    def info(self, safe: Any = None) -> dict[str, Any]:  # noqa: ARG002 - Celery's signature
        """Return what `inspect active` shows."""
        return {
            "id": self.id,
            "name": self.name,
            "args": [],
            "kwargs": {},
            "type": self.name,
            "hostname": self.hostname,
            "time_start": self.time_start,
            "acknowledged": self.acknowledged,
            "delivery_info": {"routing_key": self.model},
            "worker_pid": None,
        }

    def cancel(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: a job ends by its outcome or goes back to its queue."""

    def terminate(self, *args: Any, **kwargs: Any) -> None:
        """Refuse, as ``cancel`` does."""


def run_in_pool(task: Any, app: Any, consumer: Any) -> Callable[..., None]:  # noqa: ARG001 - Celery's signature
    """Return the handler of a delivered message: it has the task's ``run`` called in a greenlet of the pool."""
    pool, hostname, crew = consumer.pool, consumer.hostname, task.crew

    def run(request: JobRequest, delivery: Delivery) -> None:
        request.time_start = time.time()
        state.task_accepted(request)
        tell("task-started", request)
        started = time.monotonic()
        try:
            outcome = task.run(delivery)
        finally:
            state.task_ready(request)
        if outcome is not None:
            kind, fields = events.ended(outcome, time.monotonic() - started)
            tell(kind, request, **fields)

    def tell(kind: str, request: JobRequest, **fields: Any) -> None:
        # There is none unless events were asked for; it is another one after a connection was lost.
        if (dispatcher := consumer.event_dispatcher) is not None and dispatcher.enabled:
            dispatcher.send(kind, uuid=request.id, **fields)

    def on_message(message: Any, _body: Any, _ack: Any, _reject: Any, _callbacks: Any) -> None:
        delivery = message.headers[DELIVERY_HEADER]
        request = JobRequest(task, delivery, hostname)
        state.task_reserved(request)
        tell("task-received", request, name=request.name, **events.received(delivery))
        crew.run(pool, run, request, delivery)

    return on_message
