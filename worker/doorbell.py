"""Rings when something is pushed to a queue that a claim found empty, without polling and without server configuration.

Redis' client-side caching remembers which keys the claiming connection has asked for and tells this second connection when one
of them changes. The claim script has read each list that it found empty, so no push can fall between.
"""

from collections.abc import Callable
from typing import Final

import gevent
import structlog
from redis.exceptions import ResponseError

from worker.keys import Keys
from worker.redis_link import RedisLink, RedisUnavailable

_PING_SECONDS: Final = 10.0
"""How long the line may be silent before it is tried: a half-open connection never rings."""

_RECONNECT_SECONDS: Final = 0.2
_REFUSED_SECONDS: Final = 60.0

log = structlog.get_logger()


def _nobody(_: frozenset[str] | None) -> None:
    pass


class Doorbell:
    """Listens for pushes and calls ``ring`` with the models concerned, or with None when any may have been missed."""

    def __init__(
        self,
        link: RedisLink,
        keys: Keys,
        ring: Callable[[frozenset[str] | None], None],
        changed: Callable[[frozenset[str] | None], None] = _nobody,
    ) -> None:
        """Keep the parts; nothing is connected yet. ``changed`` is called likewise with other keys that somebody asked to hear of."""
        self._link = link
        self._keys = keys
        self._ring = ring
        self._changed = changed
        self.client_id: int | None = None
        """The connection that invalidations are to be sent to; None while there is none."""

    def listen(self) -> None:
        """Listen until killed. An outage is waited out."""
        while True:
            try:
                self._subscribe()
                self._tell(None)
                self._hear()
            except RedisUnavailable:
                self.client_id = None
                gevent.sleep(_RECONNECT_SECONDS)
            except ResponseError as error:
                # This user may not listen; the queues are swept instead.
                log.warning("doorbell.was_refused", reason=str(error)[:80])
                self.client_id = None
                gevent.sleep(_REFUSED_SECONDS)

    def close(self) -> None:
        """Drop the connection."""
        self._link.close()

    def _subscribe(self) -> None:
        self._link.close()
        (client_id,) = self._link.call([["CLIENT", "ID"]])
        self._link.call([["SUBSCRIBE", "__redis__:invalidate"]])
        self.client_id = int(client_id)

    def _hear(self) -> None:
        answered = True
        while True:
            try:
                message = self._link.read(_PING_SECONDS)
            except TimeoutError:
                if not answered:
                    log.warning("doorbell.went_silent")
                    self._link.close()
                    return
                answered = False
                self._link.send(["PING"])
                continue
            answered = True
            if message[0] == b"message":
                self._tell(message[2])
                gevent.sleep(0)  # Whoever was rung goes first: to look for the next message costs them as much time.

    def _tell(self, keys: list[bytes] | None) -> None:
        if keys is None:  # The server dropped all it knew, as after FLUSHALL.
            self._ring(None)
            self._changed(None)
            return
        names = [key.decode(errors="replace") for key in keys]
        if models := frozenset(self._keys.model_of(name) for name in names if self._keys.is_jobs(name)):
            self._ring(models)
        if others := frozenset(name for name in names if not self._keys.is_jobs(name)):
            self._changed(others)
