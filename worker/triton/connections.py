"""Connections to one endpoint: at most so many at once, kept alive between requests, never shared between threads.

Not geventhttpclient's own pool: that one loses a slot for good when a deadline passes while a request is being sent, says
TimeoutError both for a connection that never was and for an answer that did not come, and sends some requests again.
"""

import select
import socket
import ssl
from typing import Any, Final

import gevent.socket
from gevent.lock import BoundedSemaphore
from gevent.monkey import get_original

from worker.triton.deadline import at_most
from worker.triton.endpoint import Endpoint

# An idle path (NAT, overlay) may be dropped without a word; the kernel then finds out within a minute or two.
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
# gevent's own would switch greenlets for a look that does not wait.
_new_poll = get_original("select", "poll")


class Connections:
    """The connections of one thread of one process to one endpoint."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None, size: int) -> None:
        """Take how many there may be at once; none is made yet."""
        self._endpoint = endpoint
        self._context = context
        self._slots = BoundedSemaphore(size)
        self._idle: list[gevent.socket.socket] = []
        self._closed = False

    def take(self, connect_timeout_seconds: float) -> gevent.socket.socket:
        """Return a live connection, when there is a free slot; to be given back.

        Raises:
            OSError: none could be made: refused, not resolved, TLS, or not made within ``connect_timeout_seconds``.
        """
        self._slots.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if _is_quiet(connection):
                    return connection
                connection.close()
            return self._connected(connect_timeout_seconds)
        except BaseException:
            self._slots.release()
            raise

    def give_back(self, connection: gevent.socket.socket, *, reusable: bool) -> None:
        """Take a connection back; one that is not reusable is closed."""
        if reusable and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        self._slots.release()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it is given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _connected(self, timeout_seconds: float) -> gevent.socket.socket:
        with at_most(timeout_seconds):
            found = gevent.socket.getaddrinfo(self._endpoint.host, self._endpoint.port, type=socket.SOCK_STREAM)
            # One address that never answers must not use up the time of the others.
            share = timeout_seconds / len(found)
            *others, last = found
            for family, kind, protocol, _, address in others:
                try:
                    return self._connection(family, kind, protocol, address, share)
                except OSError:
                    continue
            family, kind, protocol, _, address = last
            return self._connection(family, kind, protocol, address, timeout_seconds)

    def _connection(
        self, family: int, kind: int, protocol: int, address: tuple[Any, ...], timeout_seconds: float
    ) -> gevent.socket.socket:
        connection = gevent.socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(address)
            _tune(connection)
            if self._context is not None:
                # The handshake apart: a deadline that passes within wrap_socket would leave its socket open.
                connection = self._context.wrap_socket(
                    connection, server_hostname=self._endpoint.host, do_handshake_on_connect=False
                )
                connection.do_handshake()
            # From here on the exchange's own deadline is the only one.
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return connection


def _tune(connection: gevent.socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _is_quiet(connection: gevent.socket.socket) -> bool:
    """Tell whether an idle connection is still one: whatever can be read from it now is its end."""
    # Not select(), which knows no file descriptor from 1024 on.
    poll = _new_poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
