"""Writes this worker's health key and its places in the registries, regularly and at once when something changes."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import gevent
import structlog
from gevent.event import Event
from redis.exceptions import ResponseError

from worker.clock import RedisClock
from worker.health import BY_OPERATOR
from worker.keys import Keys
from worker.redis_link import RedisLink, RedisUnavailable
from worker.registration import BEATS_TO_LIVE, Beat, Entry, Registration
from worker.scripts import Argument, Scripts
from worker.tracking import Tracking

_SHORTEST_REST_SECONDS: Final = 0.05
"""Between two beats: many models that change together, as when Triton comes back, are told together."""

log = structlog.get_logger()


class Heartbeat:
    """The beat of one worker."""

    def __init__(
        self,
        link: RedisLink,
        keys: Keys,
        registration: Registration,
        redis_clock: RedisClock,
        on_pauses: Callable[[frozenset[str]], None],
        doorbell_id: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Keep the parts; nothing is written yet. ``on_pauses`` is called with the models that were paused or resumed.

        ``doorbell_id`` gives the client id of the connection that hears of pauses (``changed``), None while there is none.
        """
        self._link = link
        self._keys = keys
        self._registration = registration
        self._every_seconds = registration.beat_seconds
        self._redis_clock = redis_clock
        self._on_pauses = on_pauses
        self._tracking = Tracking(link, keys.paused, doorbell_id)
        self._soon = Event()
        self._scripts = Scripts(link, ["beat"])
        self._paused: frozenset[str] = frozenset()

    def beat_soon(self) -> None:
        """Beat before it is time: something changed."""
        self._soon.set()

    def changed(self, keys: Collection[str] | None) -> None:
        """Learn that others have changed these keys, or may have changed any: if it is the pauses, a beat hears of them at once."""
        if keys is None or self._keys.paused in keys:
            self.beat_soon()

    def paused_models(self) -> frozenset[str]:
        """Return which of the worker's models operators had paused at the last beat."""
        return self._paused

    def run(self, say: Callable[[], Beat]) -> None:
        """Beat until killed; ``say`` gives what to say. While Redis is away, the key's time to live says so."""
        rest_seconds = min(_SHORTEST_REST_SECONDS, self._every_seconds)
        while True:
            self._soon.clear()
            try:
                self.beat(say())
            except RedisUnavailable:
                gevent.sleep(min(1.0, self._every_seconds))
            except ResponseError as error:
                log.error("heartbeat.was_refused", reason=str(error)[:80])
                gevent.sleep(self._every_seconds)
            else:
                gevent.sleep(rest_seconds)
                self._soon.wait(self._every_seconds - rest_seconds)

    def beat(self, beat: Beat) -> None:
        """Write the health key and the registries once.

        Raises:
            RedisUnavailable: they may or may not have been written.
        """
        try:
            self._tracking.tie()  # Before the pauses are read, so that no change of them falls between.
            was_written = self._write(beat) or self._write(beat)
        except RedisUnavailable:
            self._tracking.lost()
            raise
        if not was_written:
            raise RedisUnavailable("the health key is lost again and again")

    def sync_clock(self) -> None:
        """Learn Redis' time.

        Raises:
            RedisUnavailable: it did not answer.
        """
        ((seconds, micros),) = self._link.call([["TIME"]])
        self._redis_clock.heard(int(seconds) * 1000 + int(micros) // 1000)

    def leave(self) -> None:
        """Take the worker out of the registries: it has ended.

        Raises:
            RedisUnavailable: the key goes by itself, three beats after the last.
        """
        worker_id = self._registration.worker_id
        registries = [self._keys.workers, *map(self._keys.model_workers, self._registration.models)]
        self._link.call([["DEL", self._keys.worker(worker_id)], *(["ZREM", key, worker_id] for key in registries)])
        self._link.close()

    def _write(self, beat: Beat) -> bool:
        """Return whether it was written: changes alone are not where Redis has lost what they are changes of."""
        entry = self._registration.entry(beat)
        keys = self._keys
        key_names = [keys.worker(self._registration.worker_id), keys.workers, keys.models, keys.declared, keys.paused]
        (reply,) = self._scripts.run([self._scripts.command("beat", key_names, self._arguments(entry))])
        now_ms, was_written, paused = reply
        self._redis_clock.heard(int(now_ms))
        if was_written:
            self._registration.wrote(beat)
        self._hear_pauses(frozenset(name.decode(errors="replace") for name in paused))
        return bool(was_written)

    def _arguments(self, entry: Entry) -> list[Argument]:
        ttl_ms = round(BEATS_TO_LIVE * self._every_seconds * 1000)
        lists = (_flat(entry.fields.items()), entry.able, entry.leaving, _flat(entry.declared.items()))
        head = [self._keys.prefix, self._registration.worker_id, ttl_ms, self._redis_clock.now(), int(entry.whole)]
        return [*head, *(each for one in lists for each in (len(one), *one))]

    def _hear_pauses(self, paused: frozenset[str]) -> None:
        paused &= frozenset(self._registration.models)
        changed = paused ^ self._paused
        if not changed:
            return
        self._paused = paused
        for model in sorted(changed):
            log.info("model.paused" if model in paused else "model.resumed", model=model, by=BY_OPERATOR)
        self.beat_soon()
        self._on_pauses(changed)


def _flat(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [text for pair in pairs for text in pair]
