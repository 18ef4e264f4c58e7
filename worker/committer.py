"""Carries exchanges out, through outages of Redis: what is in hand is kept and asked again until there is an answer."""

from collections.abc import Callable
from typing import Final

import structlog
from redis.exceptions import ResponseError

from worker.clock import RedisClock
from worker.doorbell import Doorbell
from worker.exchange import Exchange, ExchangeReply
from worker.ledger import Ledger
from worker.redis_link import RedisLink, RedisUnavailable

_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 0.5
_REFUSED_WAIT_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5
_SHOWN: Final = 120

log = structlog.get_logger()


class Committer:
    """The ledger's connection, with the doorbell tied to it."""

    def __init__(
        self,
        link: RedisLink,
        ledger: Ledger,
        doorbell: Doorbell,
        redis_clock: RedisClock,
        sleep: Callable[[float], None],
        on_connected: Callable[[], None],
    ) -> None:
        """Keep the parts; ``on_connected`` is called when pushes may have been missed."""
        self._link = link
        self._ledger = ledger
        self._doorbell = doorbell
        self._redis_clock = redis_clock
        self._sleep = sleep
        self._on_connected = on_connected
        self._tied: tuple[int, int] | None = None
        self._reason = ""
        self._is_asking = False
        self.reachable = False
        """Whether the last exchange was answered."""

    def is_told_of_pushes(self) -> bool:
        """Tell whether the doorbell is connected to the claims."""
        return self._tied is not None and self._tied == (self._link.connects, self._doorbell.client_id)

    def exchange(self, asked: Exchange) -> ExchangeReply:
        """Return the reply; does not return before there is one."""
        self._is_asking = True
        try:
            return self._answered(asked)
        finally:
            self._is_asking = False

    def watch(self) -> None:
        """Look at the connection until killed."""
        while True:
            self._sleep(_LOOK_SECONDS)
            self.look_at_connection()

    def look_at_connection(self) -> None:
        """Notice that the server has hung up while nothing was asked of it: it tells of no pushes any more."""
        if not self._is_asking and self._link.has_broken():
            self._tied = None
            self._on_connected()

    def _answered(self, asked: Exchange) -> ExchangeReply:
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                self._tie_doorbell()
                reply = self._ledger.exchange(asked, self._redis_clock.now())
            except RedisUnavailable as error:
                self._lost(str(error))
                self._sleep(wait)
                wait = min(_LONGEST_WAIT_SECONDS, wait * 2)
            except ResponseError as error:
                # Rights that are missing, a key of another type: an operator's to mend. What is in hand is kept until then.
                self._lost(str(error)[:_SHOWN])
                self._sleep(_REFUSED_WAIT_SECONDS)
            else:
                self._found()
                return reply

    def _lost(self, reason: str) -> None:
        if self.reachable or reason != self._reason:
            log.warning("redis.became_unavailable", reason=reason)
        self.reachable, self._reason = False, reason
        self._tied = None  # Else the claim on the next connection would look before the doorbell is tied to it.

    def _found(self) -> None:
        if not self.reachable:
            log.info("redis.became_available")
            self.reachable = True
            self._on_connected()

    def _tie_doorbell(self) -> None:
        """Have invalidations of what this connection asks for sent to the doorbell's, again after either was made anew."""
        client_id = self._doorbell.client_id
        if client_id is None or self.is_told_of_pushes():
            return
        try:
            self._link.call([["CLIENT", "TRACKING", "ON", "REDIRECT", client_id, "NOLOOP"]])
        except ResponseError as error:
            # The doorbell has just hung up, or this user may not listen: queues are swept instead.
            log.debug("doorbell.not_tied", reason=str(error)[:80])
            return
        self._tied = (self._link.connects, client_id)
        self._on_connected()
