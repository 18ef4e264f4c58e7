"""Looks at models that are out of order until their readiness and contract check pass, without a job at stake."""

from collections.abc import Callable, Iterable
from typing import Final

import gevent
import gevent.pool
import structlog
from gevent.event import Event

from tasks.errors import InternalError, JobError
from worker.gate import ModelGate

_LOOKS_AT_ONCE: Final = 4
"""How many models are looked at at the same time: a server that comes back is not met by all at once."""

log = structlog.get_logger()


class Recovery:
    """Looks when the gate says it is time; ``look`` raises a JobError for a model that cannot run jobs."""

    def __init__(
        self,
        gate: ModelGate,
        look: Callable[[str], None],
        learn: Callable[[str, JobError | None], None],
        on_open: Callable[[], None],
    ) -> None:
        """Keep the parts; ``learn`` is told what each look gave, ``on_open`` is called after one at a model that is open."""
        self._gate = gate
        self._look = look
        self._learn = learn
        self._on_open = on_open
        self._pool = gevent.pool.Pool(_LOOKS_AT_ONCE)
        self._looking: set[str] = set()
        self._changed = Event()

    def look_again(self) -> None:
        """Learn that the gate has changed."""
        self._changed.set()

    def run(self) -> None:
        """Look until killed."""
        while True:
            self._changed.clear()
            self.look_now(self._gate.due())
            self._changed.wait(self._rest_seconds())

    def look_now(self, models: Iterable[str]) -> None:
        """Look at these, whatever their standing; returns when the last look has begun."""
        for model in models:
            if model not in self._looking:
                self._looking.add(model)
                self._pool.spawn(self._look_at, model)

    def close(self) -> None:
        """End the looks under way."""
        self._pool.kill()

    def _rest_seconds(self) -> float | None:
        # Looks under way end with a change.
        next_look_ms = self._gate.next_look_ms(apart_from=self._looking)
        return None if next_look_ms is None else next_look_ms / 1000

    def _look_at(self, model: str) -> None:
        try:
            self._look(model)
            error: JobError | None = None
        except JobError as failure:
            error = failure
        except Exception:  # The periodic loop: a fault in a look must not end all looks
            log.exception("model.look_failed", model=model)
            error = InternalError()
        self._learn(model, error)
        self._looking.discard(model)
        if self._gate.is_open(model):
            self._on_open()
        self._changed.set()
