"""HTTP to Triton, one deadline an exchange; the one place where a network's exceptions become words of ours.

Clients belong to one OS thread of one process: two forked processes on one connection got each other's answers, without an
error. So a client is made where it is first used, after any fork and any patching.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import gevent
import gevent.socket
from geventhttpclient.response import HTTPParseError, HTTPSocketResponse

from worker.triton.connections import Connections
from worker.triton.endpoint import Endpoint
from worker.triton.failures import ExchangeFailed, Loss

_HEAD_BLOCK_BYTES: Final = 8 << 10
_BODY_BLOCK_BYTES: Final = 64 << 10
_OK: Final = 200
_TOO_LARGE_WORDS: Final = "the answer is over the largest that is read"


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``path`` begins with a slash, below the endpoint's base path."""

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """Return the method: what has a body is a POST."""
        return "GET" if self.body is None else "POST"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one exchange may take: seconds in all, seconds of them to connect, and bytes of the answer with its headers."""

    timeout_seconds: float
    connect_timeout_seconds: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; ``json_bytes`` says how much of the body is JSON, before binary tensors."""

    status: int
    body: bytes
    json_bytes: str | None = None


class HttpClients:
    """The HTTP clients of one endpoint: one for each thread of each process that asks."""

    def __init__(self, endpoint: Endpoint, concurrency: int) -> None:
        """Take how many exchanges of one thread may be under way at once; others wait within their own deadline.

        Raises:
            UnusableCertificates: a configured file is none that TLS can use.
        """
        self._endpoint = endpoint
        self._context = endpoint.tls.context() if endpoint.tls else None
        self._concurrency = concurrency
        self._pid = os.getpid()
        # By hub, which is gevent's name for a thread: thread-locals are per greenlet once gevent has patched.
        self._clients: WeakKeyDictionary[gevent.hub.Hub, HttpClient] = WeakKeyDictionary()

    def limit(self, concurrency: int) -> None:
        """Let so many exchanges be under way at once, in threads that have not asked yet."""
        self._concurrency = concurrency

    def exchange(self, request: Request, limits: Limits) -> Answer:
        """Send one request, once, and return its answer, whatever its status; no redirect is followed.

        Raises:
            ExchangeFailed: there is no answer.
        """
        return self._here().exchange(request, limits)

    def close(self) -> None:
        """Close this thread's connections. A thread that ends without it leaves them to the garbage collector."""
        client = self._clients.pop(gevent.get_hub(), None)
        if client is not None:
            client.close()

    def _here(self) -> "HttpClient":
        if self._pid != os.getpid():
            self._clients = WeakKeyDictionary()
            self._pid = os.getpid()
        hub = gevent.get_hub()
        client = self._clients.get(hub)
        if client is None:
            client = self._clients[hub] = HttpClient(self._endpoint, self._context, self._concurrency)
        return client


class HttpClient:
    """The exchanges of one thread with one endpoint."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None, concurrency: int) -> None:
        """Make no connection yet."""
        self._connections = Connections(endpoint, context, concurrency)
        self._base_path = endpoint.base_path
        self._fixed_headers = "".join(
            f"{name}: {value}\r\n" for name, value in (("Host", endpoint.host_header), *endpoint.headers)
        )

    def close(self) -> None:
        """Close the idle connections now, the others as their exchanges end."""
        self._connections.close()

    def exchange(self, request: Request, limits: Limits) -> Answer:
        """Do as HttpClients.exchange does."""
        # Compared by identity: the caller may have timers of its own around this one.
        deadline = gevent.Timeout(limits.timeout_seconds)
        deadline.start()
        try:
            connection = self._connection(limits, deadline)
            return self._answer(connection, request, limits.max_bytes)
        except gevent.Timeout as passed:
            if passed is not deadline:
                raise
            raise ExchangeFailed(Loss.NOT_IN_TIME, f"no answer within {limits.timeout_seconds:g} s") from None
        except (OSError, HTTPParseError) as error:
            raise _lost(error) from error
        except _TooLarge as error:
            raise ExchangeFailed(Loss.TOO_LARGE, _TOO_LARGE_WORDS) from error
        finally:
            deadline.close()

    def _connection(self, limits: Limits, deadline: gevent.Timeout) -> gevent.socket.socket:
        try:
            return self._connections.take(limits.connect_timeout_seconds)
        except gevent.Timeout as passed:
            if passed is not deadline:
                raise
            reason = f"no connection was free within {limits.timeout_seconds:g} s"
            raise ExchangeFailed(Loss.NEVER_SENT, reason) from None
        except (OSError, UnicodeError) as error:
            loss = Loss.REFUSED if isinstance(error, ConnectionRefusedError) else Loss.NEVER_SENT
            raise ExchangeFailed(loss, _why_not_connected(error, limits)) from error

    def _answer(self, connection: gevent.socket.socket, request: Request, max_bytes: int) -> Answer:
        reusable = False
        try:
            sent = _send(connection, self._message(request))
            response = _Response(connection, request.method, max_bytes)
            answer = response.answer()
            reusable = sent and not response.should_close()
            return answer
        finally:
            self._connections.give_back(connection, reusable=reusable)

    def _message(self, request: Request) -> bytes:
        head = f"{request.method} {self._base_path}{request.path} HTTP/1.1\r\n{self._fixed_headers}"
        for name, value in request.headers.items():
            head += f"{name}: {value}\r\n"
        if request.body is None:
            return f"{head}\r\n".encode("ascii")
        return f"{head}Content-Length: {len(request.body)}\r\n\r\n".encode("ascii") + request.body


class _TooLarge(Exception):
    """The answer has more bytes than may be read."""


class _Response(HTTPSocketResponse):
    """An answer that is cut off where it passes its limit, headers and all."""

    def __init__(self, connection: gevent.socket.socket, method: str, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        super().__init__(connection, block_size=_HEAD_BLOCK_BYTES, method=method)
        self.block_size = _BODY_BLOCK_BYTES

    def feed(self, data: str | bytes) -> None:
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise _TooLarge
        super().feed(data)

    def answer(self) -> Answer:
        """Read the body, where it is one that can be used."""
        status: int = self.status_code
        if "content-encoding" in self:
            return self._without_body(status, Loss.ENCODED, "the answer is compressed, which was not asked for")
        if (self.content_length or 0) > self._bytes_left + _HEAD_BLOCK_BYTES:
            return self._without_body(status, Loss.TOO_LARGE, _TOO_LARGE_WORDS)
        try:
            return Answer(status, self.read(), _only(self.get("inference-header-content-length")))
        except _TooLarge:
            return self._without_body(status, Loss.TOO_LARGE, _TOO_LARGE_WORDS)

    def _without_body(self, status: int, loss: Loss, reason: str) -> Answer:
        """Return what the status alone says: an error needs no body, a result does."""
        self.release()
        if status == _OK:
            raise ExchangeFailed(loss, reason)
        return Answer(status, b"")


def _only(header: str | list[str] | None) -> str | None:
    return ", ".join(header) if isinstance(header, list) else header


def _send(connection: gevent.socket.socket, message: bytes) -> bool:
    """Tell whether all of it was sent. Where it was not, the server may have said why before it hung up."""
    try:
        sent = connection.send(message)  # Most often all of it, at less than what sendall() costs.
        if sent < len(message):
            connection.sendall(memoryview(message)[sent:])
    except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return False
    return True


def _why_not_connected(error: Exception, limits: Limits) -> str:
    if isinstance(error, (gevent.socket.gaierror, UnicodeError)):
        return "host name not resolved"
    if isinstance(error, TimeoutError):
        return f"not connected within {limits.connect_timeout_seconds:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS handshake failed: {error.reason or 'no TLS was spoken'}"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"not connected: {reason or type(error).__name__}"


def _lost(error: Exception) -> ExchangeFailed:
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        # In TLS 1.3 a server refuses the client's certificate when the client already believes to be connected.
        return ExchangeFailed(Loss.NEVER_SENT, f"TLS handshake failed: {error.reason}")
    if isinstance(error, HTTPParseError):
        return ExchangeFailed(Loss.CONNECTION_LOST, "the answer was cut short or is no HTTP")
    return ExchangeFailed(Loss.CONNECTION_LOST, f"connection lost: {type(error).__name__}")
