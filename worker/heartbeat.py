"""Writes this worker's health key and its place in the registry, regularly and at once when something changes."""

from collections.abc import Callable, Mapping
from typing import Final

import gevent
import structlog
from gevent.event import Event
from redis.exceptions import ResponseError

from worker.clock import RedisClock
from worker.keys import Keys
from worker.redis_link import RedisLink, RedisUnavailable
from worker.scripts import Scripts

_BEATS_TO_LIVE: Final = 3

log = structlog.get_logger()


class Heartbeat:
    """The beat of one worker."""

    def __init__(
        self,
        link: RedisLink,
        keys: Keys,
        worker_id: str,
        every_seconds: float,
        redis_clock: RedisClock,
    ) -> None:
        """Keep the parts; nothing is written yet."""
        self._link = link
        self._keys = keys
        self._worker_id = worker_id
        self._every_seconds = every_seconds
        self._redis_clock = redis_clock
        self._soon = Event()
        self._scripts = Scripts(link, ["beat"])

    def beat_soon(self) -> None:
        """Beat before it is time: something changed."""
        self._soon.set()

    def run(self, fields: Callable[[], Mapping[str, str]]) -> None:
        """Beat until killed; ``fields`` gives what to say. While Redis is away, the key's time to live says so."""
        while True:
            self._soon.clear()
            try:
                self.beat(fields())
            except RedisUnavailable:
                gevent.sleep(min(1.0, self._every_seconds))
            except ResponseError as error:
                log.error("heartbeat.was_refused", reason=str(error)[:80])
                gevent.sleep(self._every_seconds)
            else:
                self._soon.wait(self._every_seconds)

    def beat(self, fields: Mapping[str, str]) -> None:
        """Write the health key once.

        Raises:
            RedisUnavailable: it may or may not have been written.
        """
        arguments: list[str | bytes | int] = [self._worker_id, round(_BEATS_TO_LIVE * self._every_seconds * 1000)]
        for name, value in fields.items():
            arguments += [name, value]
        keys = [self._keys.worker(self._worker_id), self._keys.workers]
        (now_ms,) = self._scripts.run([self._scripts.command("beat", keys, arguments)])
        self._redis_clock.heard(int(now_ms))

    def sync_clock(self) -> None:
        """Learn Redis' time.

        Raises:
            RedisUnavailable: it did not answer.
        """
        ((seconds, micros),) = self._link.call([["TIME"]])
        self._redis_clock.heard(int(seconds) * 1000 + int(micros) // 1000)

    def leave(self) -> None:
        """Take the worker out of the registry: it has ended.

        Raises:
            RedisUnavailable: the key goes by itself, three beats after the last.
        """
        self._link.call([["DEL", self._keys.worker(self._worker_id)], ["ZREM", self._keys.workers, self._worker_id]])
        self._link.close()
