"""Puts Redis further away: a TCP proxy that holds back what passes, in either direction, by half of a round trip's time.

What follows does not wait for what is held back before it: many messages are on their way at once, as on a real line. It is a
process of its own, ``python -m benchmarks.slow_link PORT TARGET_PORT ROUND_TRIP_MS``, so that no side pays for it. It waits by
``select``, whose times are exact to microseconds; those of epoll, as of gevent and asyncio, are whole milliseconds.
"""

import contextlib
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.plan import ROOT
from worker.sandbox.embedded_server import EmbeddedServer
from worker.sandbox.places import LOOPBACK

_CHUNK: Final = 1 << 16


class SlowLink(EmbeddedServer):
    """A proxy while it is open, to the Redis at ``redis_url``; its own ``url`` is to be used in that one's place."""

    name = "slow-link"

    def __init__(self, redis_url: str, round_trip_ms: float) -> None:
        super().__init__(port=None, start_timeout_seconds=20.0, stop_grace_seconds=0.0)
        address, self._database = redis_url.rsplit("/", 1)
        self._target_port = address.rsplit(":", 1)[1]
        self._round_trip_ms = round_trip_ms

    @property
    def url(self) -> str:
        """The address of the Redis behind it."""
        return f"redis://{LOOPBACK}:{self.port}/{self._database}"

    def _check(self) -> None:
        """Nothing to look for: what this runs is this very module."""

    def _command(self) -> Sequence[str]:
        return (
            sys.executable,
            *("-m", "benchmarks.slow_link", str(self.port), self._target_port, str(self._round_trip_ms)),
        )

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1):
            return True
        return False


@dataclass(slots=True)
class Way:
    """One direction of a connection: what was read from ``source`` and when it may be sent on; b"" is the end."""

    source: socket.socket
    target: socket.socket
    held: deque[tuple[float, bytes]] = field(default_factory=deque)
    ended: bool = False

    def take(self, now: float, delay: float) -> None:
        """Read what has come."""
        try:
            content = self.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        self.ended = not content
        self.held.append((now + delay, content))

    def pass_on(self, now: float) -> bool:
        """Send what is due, as far as it goes; False once the end was passed on."""
        while self.held and self.held[0][0] <= now:
            due, content = self.held.popleft()
            if not content:
                return False
            try:
                sent = self.target.send(content)
            except BlockingIOError:
                sent = 0
            except OSError:
                return False
            if sent < len(content):
                self.held.appendleft((due, content[sent:]))
                return True
        return True


class Proxy:
    """Passes connections on to a port, each message ``delay_seconds`` late in either direction."""

    def __init__(self, port: int, target_port: int, delay_seconds: float) -> None:
        """Listen; nothing is accepted yet."""
        self._target = (LOOPBACK, target_port)
        self._delay = delay_seconds
        self._listener = socket.create_server((LOOPBACK, port), backlog=512)
        self._ways: dict[socket.socket, Way] = {}

    def run(self) -> None:
        """Pass on until killed."""
        while True:
            self.run_once()

    def run_once(self) -> None:
        """Wait for something to do, and do it."""
        now = time.monotonic()
        waiting = [way for way in self._ways.values() if way.held]
        next_due = min((way.held[0][0] for way in waiting), default=None)
        readers = [self._listener, *(source for source, way in self._ways.items() if not way.ended)]
        writers = [way.target for way in waiting if way.held[0][0] <= now]
        timeout = None if next_due is None or writers else max(0.0, next_due - now)
        readable, _, _ = select.select(readers, writers, [], timeout)
        now = time.monotonic()
        for ready in readable:
            if ready is self._listener:
                self._accept()
            elif ready in self._ways:
                self._ways[ready].take(now, self._delay)
        for way in list(self._ways.values()):
            if way.source in self._ways and not way.pass_on(now):
                self._close(way)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        for source, target in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            source.setblocking(False)
            self._ways[source] = Way(source, target)

    def _close(self, way: Way) -> None:
        for end in (way.source, way.target):
            self._ways.pop(end, None)
            end.close()


if __name__ == "__main__":
    Proxy(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 2000).run()
