"""A way to a server that can lose a reply, of Valkey's at the one moment that matters: after it has done what was asked."""

import hashlib
import select
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

from worker import lua

_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class Trap:
    """Waits for the reply to a script's call with ``word`` in the call or in the reply, and holds it."""

    sha: bytes
    word: bytes
    delays_call: bool = False
    """Holds the call instead, and cuts the worker off: the call reaches the server when it is let go, answered by nobody."""
    caught: threading.Event = field(default_factory=threading.Event)
    """Set when something is held. A held reply means: the server has done its work, and the worker does not know."""
    answered: threading.Event = field(default_factory=threading.Event)
    """Set when a delayed call was answered, to nobody."""
    _released: threading.Event = field(default_factory=threading.Event)
    _lost: bool = False

    def wait(self, timeout: float = 30.0) -> None:
        """Return when a reply is held."""
        assert self.caught.wait(timeout), f"no reply about {self.word!r} came within {timeout:g} s"

    def lose(self) -> None:
        """Cut the connection instead of passing the reply on."""
        self._lost = True
        self._released.set()

    def let_go(self) -> None:
        """Pass the reply on after all."""
        self._released.set()

    def hold(self) -> bool:
        """Hold the reply until the test has decided; return whether it is to be passed on."""
        self.caught.set()
        self._released.wait(60)
        return not self._lost

    def fits(self, asked: bytes, answered: bytes) -> bool:
        """Tell whether this is the exchange that is waited for."""
        return self.sha in asked and (self.word in asked or self.word in answered)


class Proxy:
    """A context manager: forwards a port of loopback to a server, one thread a connection."""

    def __init__(self, server_url: str) -> None:
        self._target = (str(urlsplit(server_url).hostname), int(urlsplit(server_url).port or 6379))
        # Bound and never listening: nobody else is given the port while connections to it are refused.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self._port: int = self._place.getsockname()[1]
        self._listener = self._listening()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._traps: list[Trap] = []

    @property
    def url(self) -> str:
        """The address for a worker's configuration, of a Redis."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def http_url(self) -> str:
        """The same, of a Triton."""
        return f"http://127.0.0.1:{self._port}"

    def trap(self, script: str, word: str = "", *, delays_call: bool = False) -> Trap:
        """Hold the next reply to (or call of) a script of ``worker/lua`` that has to do with ``word``; catches once."""
        sha = hashlib.sha1(lua.load(script).encode(), usedforsecurity=False).hexdigest()
        trap = Trap(sha.encode(), word.encode(), delays_call)
        self._traps.append(trap)
        return trap

    def cut(self) -> None:
        """Cut every connection there is."""
        for end in [*self._open]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Accept no more connections, as a server that is gone; those that are there stay."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()  # What it was about to forward is there for who cuts next.

    def accept(self) -> None:
        """Accept connections again, as a server that is back."""
        self._listener = self._listening()
        self._accepting = self._start(self._accept)

    def __enter__(self) -> Self:
        self._accepting = self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for trap in self._traps:
            trap.lose()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for end in (self._listener, self._place, *self._open):
            end.close()

    def _listening(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", self._port), backlog=64)

    def _start(self, target: object, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type] # any callable
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._open += [near, far]
            self._start(self._forward, near, far)

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        asked, answered = b"", False
        with suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select([near, far], [], [])
                if near in ready:
                    content = near.recv(_CHUNK)
                    asked = content if answered else asked + content
                    answered = False
                    self._hold()
                    if self._delayed(asked, near, far):
                        break
                    far.sendall(content)
                else:
                    content = far.recv(_CHUNK)
                    answered = True
                    self._hold()
                    if not self._may_pass(asked, content):
                        break
                    near.sendall(content)
                if not content:
                    break
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            self._open.remove(end)

    def _hold(self) -> None:
        """Wait until what has come may go on: at once, unless a line is to misbehave."""

    def _may_pass(self, asked: bytes, answered: bytes) -> bool:
        trap = self._set_trap(asked, answered, delays_call=False)
        return trap is None or trap.hold()

    def _delayed(self, asked: bytes, near: socket.socket, far: socket.socket) -> bool:
        trap = self._set_trap(asked, b"", delays_call=True)
        if trap is None:
            return False
        near.shutdown(socket.SHUT_RDWR)
        if trap.hold():
            far.sendall(asked)
            far.recv(_CHUNK)
            trap.answered.set()
        return True

    def _set_trap(self, asked: bytes, answered: bytes, *, delays_call: bool) -> Trap | None:
        waiting = (trap for trap in self._traps if trap.delays_call is delays_call and not trap.caught.is_set())
        return next((trap for trap in waiting if trap.fits(asked, answered)), None)
