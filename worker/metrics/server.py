"""The HTTP endpoint of a worker: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import gevent
import gevent.pool
import gevent.socket
import structlog
from gevent.server import StreamServer

from worker.metrics.samples import CONTENT_TYPE

_AT_ONCE: Final = 64
"""Connections at the same time. For one more the oldest is hung up on: an answer takes no time, so that one asks for none, and
a probe that had to wait behind such ones would have the worker ended."""

_REQUEST_SECONDS: Final = 15.0
_PLAIN: Final = "text/plain; charset=utf-8"
_BACKLOG: Final = 64
_LONGEST_HEAD_BYTES: Final = 16 << 10
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,2000}) HTTP/1\.[01]\r\n")

log = structlog.get_logger()


class AddressInUse(Exception):
    """The configured address cannot be listened on; the words say why."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered to one request."""

    status: str
    body: bytes
    content_type: str = _PLAIN


@dataclass(frozen=True, slots=True)
class Pages:
    """What the endpoint shows; ``readiness`` gives whether jobs are being taken, and the state in a word."""

    metrics: Callable[[], bytes]
    readiness: Callable[[], tuple[bool, str]]

    def page(self, method: str, path: str) -> Page:
        """Return the answer to a request."""
        shown: Mapping[str, Callable[[], Page]] = {
            "/metrics": lambda: Page("200 OK", self.metrics(), CONTENT_TYPE),
            "/healthz": lambda: Page("200 OK", b"alive\n"),
            "/readyz": self._readyz,
        }
        if path not in shown:
            return Page("404 Not Found", b"there are /metrics, /healthz and /readyz\n")
        if method not in {"GET", "HEAD"}:
            return Page("405 Method Not Allowed", b"only GET and HEAD\n")
        return shown[path]()

    def _readyz(self) -> Page:
        is_ready, state = self.readiness()
        return Page("200 OK" if is_ready else "503 Service Unavailable", f"{state}\n".encode())


class MetricsServer:
    """Serves pages at ``address``, host:port, each over a connection of its own; port 0 takes any that is free."""

    def __init__(self, address: str, pages: Pages) -> None:
        """Listen to nothing yet."""
        self._configured = address
        self._pages = pages
        self._server: StreamServer | None = None
        self._open: dict[gevent.socket.socket, None] = {}

    @property
    def address(self) -> str:
        """Return where it listens, or is to listen."""
        if self._server is None:
            return self._configured
        host, port = self._server.socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Listen.

        Raises:
            AddressInUse: the address is another process', or none of this machine.
        """
        host, _, port = self._configured.rpartition(":")
        try:
            listener = _listener(host.strip("[]"), int(port))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise AddressInUse(f"metrics_address {self._configured}: {reason}") from error
        self._server = StreamServer(listener, self._serve, spawn=gevent.pool.Pool())
        self._server.start()

    def close(self) -> None:
        """Stop; who is being answered gets no more."""
        if self._server is not None:
            self._server.stop(timeout=0)

    def _serve(self, connection: gevent.socket.socket, _address: object) -> None:
        """Answer one request, in a bounded time: one that sends nothing holds nobody up."""
        with connection, self._counted(connection), gevent.Timeout(_REQUEST_SECONDS) as deadline:
            try:
                method, path = _read_request(connection)
                page = self._page(method, path) if method else Page("400 Bad Request", b"no HTTP\n")
                connection.sendall(_answer(page, with_body=method != "HEAD"))
                connection.shutdown(gevent.socket.SHUT_WR)
            except OSError:
                pass  # Whoever asked has gone.
            except gevent.Timeout as passed:
                if passed is not deadline:
                    raise

    @contextmanager
    def _counted(self, connection: gevent.socket.socket) -> Iterator[None]:
        """Make room for the connection while it is served."""
        if len(self._open) >= _AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            with suppress(OSError):
                oldest.shutdown(gevent.socket.SHUT_RDWR)
        self._open[connection] = None
        try:
            yield
        finally:
            self._open.pop(connection, None)

    def _page(self, method: str, path: str) -> Page:
        try:
            return self._pages.page(method, path.partition("?")[0])
        except Exception as fault:  # noqa: BLE001 - the last boundary: a fault here must not be felt by jobs, nor be silent
            log.error("metrics.were_not_made", exception=type(fault).__name__)
            return Page("500 Internal Server Error", b"the worker's log says more\n")


def _listener(host: str, port: int) -> gevent.socket.socket:
    family, kind, protocol, _, address = gevent.socket.getaddrinfo(host, port, type=gevent.socket.SOCK_STREAM)[0]
    listener = gevent.socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(gevent.socket.SOL_SOCKET, gevent.socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _read_request(connection: gevent.socket.socket) -> tuple[str, str]:
    """Return method and target, empty where what came is no HTTP; the rest of the head says nothing that matters here."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _LONGEST_HEAD_BYTES:
        part = connection.recv(_LONGEST_HEAD_BYTES)
        if not part:
            break
        head += part
    found = _REQUEST_LINE.match(head)
    return (found[1].decode(), found[2].decode()) if found and b"\r\n\r\n" in head else ("", "")


def _answer(page: Page, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {page.status}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    return head + page.body if with_body else head
