"""Says once a minute why jobs of a model wait, while they do, in log and metrics: one worker of the fleet looks for all."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import gevent
import redis
import structlog

from settings.schema import Settings
from worker.connections import redis_client
from worker.explained import Explained, Wait
from worker.keys import Keys
from worker.registration import BEATS_TO_LIVE
from worker.snapshot import read_snapshot

_EVERY_MS: Final = 60_000
_LATE_SECONDS: Final = 1.0
"""How much later than the minute's end each worker asks for its turn at the most, so that they do not ask as one."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Waits:
    """One worker's part in it. ``connect`` makes a client, which is closed after each look; ``draw`` gives a number in [0, 1).

    ``explained`` takes what each look finds, for the metrics.
    """

    connect: Callable[[], redis.Redis]
    keys: Keys
    worker_id: str
    draw: Callable[[], float]
    explained: Explained
    first_look_seconds: float
    """How long after the start the first look is: what the workers say of themselves has to be there."""

    @classmethod
    def of(cls, settings: Settings, keys: Keys, draw: Callable[[], float], explained: Explained) -> Self:
        """Return the part of a worker with these settings."""
        connect = partial(redis_client, settings.redis_url.get_secret_value())
        return cls(connect, keys, settings.worker_id, draw, explained, BEATS_TO_LIVE * settings.heartbeat_seconds)

    def run(self) -> None:
        """Look until killed. While Redis is away there is nothing to be seen."""
        gevent.sleep(self.first_look_seconds)
        while True:
            try:
                next_ms = self.look()
            except redis.RedisError as error:
                log.debug("waits.were_not_read", exception=type(error).__name__)
                next_ms = _EVERY_MS
            gevent.sleep(next_ms / 1000 + _LATE_SECONDS * self.draw())

    def look(self) -> int:
        """Tell of each model whose jobs wait, unless another worker has in this minute; returns in how many ms to ask again.

        Raises:
            redis.RedisError: Redis did not answer, or refused.
        """
        client = self.connect()
        try:
            if not client.set(self.keys.explained, self.worker_id, nx=True, px=_EVERY_MS):
                return max(0, client.pttl(self.keys.explained))
            self._explain(client)
        finally:
            client.close()
        return _EVERY_MS

    def _explain(self, client: redis.Redis) -> None:
        snapshot = read_snapshot(client, self.keys)
        queued = [(view, snapshot.reasons[view.model]) for view in snapshot.models if view.queued]
        waiting = [(view, reason) for view, reason in queued if reason.waits]
        self.explained.found(Wait(view.model, reason.kind, view.queued) for view, reason in waiting)
        for view, reason in waiting:
            log.info(
                "model.waited",
                model=view.model,
                reason=reason.kind,
                words=reason.words,
                queued=view.queued,
                running=view.running,
                oldest_ms=view.oldest_ms,
            )
