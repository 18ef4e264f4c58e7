"""Has Redis say when a key with some prefix is changed by others, over the doorbell's connection."""

from collections.abc import Callable

import structlog
from redis.exceptions import ResponseError

from worker.redis_link import RedisLink

log = structlog.get_logger()


class Tracking:
    """Ties a connection to the doorbell: what other connections write below ``prefix`` rings there. Nothing need be read first."""

    def __init__(self, link: RedisLink, prefix: str, doorbell_id: Callable[[], int | None]) -> None:
        """Keep the parts; ``doorbell_id`` gives the client id of the doorbell's connection, None while there is none."""
        self._link = link
        self._prefix = prefix
        self._doorbell_id = doorbell_id
        self._tied: tuple[int, int | None] | None = None
        self.is_told = False
        """Whether changes ring."""

    def tie(self) -> bool:
        """Tie what is not; tell whether it was done anew, and so changes may have been missed.

        Raises:
            RedisUnavailable: it did not answer.
        """
        doorbell_id = self._doorbell_id()
        if self._tied == (self._link.connects, doorbell_id):
            return False
        self.is_told = doorbell_id is not None and self._track(doorbell_id)
        self._tied = (self._link.connects, doorbell_id)
        return True

    def lost(self) -> None:
        """Learn that the connection is gone, and with it what the server knew of it."""
        self.is_told = False
        self._tied = None

    def _track(self, doorbell_id: int) -> bool:
        on: list[str | bytes | int] = [
            "CLIENT",
            "TRACKING",
            "ON",
            "REDIRECT",
            doorbell_id,
            "BCAST",
            "PREFIX",
            self._prefix,
            "NOLOOP",
        ]
        try:
            self._link.call([["CLIENT", "TRACKING", "OFF"], on])
        except ResponseError as error:
            # The doorbell has just hung up, or this user may not listen.
            log.debug("circuits.not_tied", reason=str(error)[:80])
            return False
        return True
