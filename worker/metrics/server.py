"""The HTTP endpoint of a worker: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import gevent
import gevent.pool
import structlog
from gevent.pywsgi import WSGIHandler, WSGIServer

from worker.metrics.samples import CONTENT_TYPE

_AT_ONCE: Final = 16
"""Connections that are served at the same time: servers that scrape and probes are few, and anyone else waits."""

_REQUEST_SECONDS: Final = 15.0
_PLAIN: Final = "text/plain; charset=utf-8"
_BACKLOG: Final = 64

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


class _Handler(WSGIHandler):
    """Gives each connection one request and a bounded time: one that sends nothing holds nobody up."""

    def handle(self) -> None:
        """Serve the connection."""
        deadline = gevent.Timeout.start_new(_REQUEST_SECONDS)
        try:
            super().handle()
        except gevent.Timeout as passed:
            if passed is not deadline:
                raise
        finally:
            deadline.close()


class MetricsServer:
    """Serves pages at ``address``, host:port; port 0 takes any that is free."""

    def __init__(self, address: str, pages: Pages) -> None:
        """Listen to nothing yet."""
        host, _, port = address.rpartition(":")
        self._pages = pages
        self._configured = address
        self._server = WSGIServer(
            (host.strip("[]"), int(port)),
            self._answer,
            backlog=_BACKLOG,
            spawn=gevent.pool.Pool(_AT_ONCE),
            handler_class=_Handler,
            log=None,
            error_log=None,
            environ={"SERVER_NAME": host},  # Else the host's full name is looked up.
        )

    @property
    def address(self) -> str:
        """Return where it listens, once it does."""
        host, port = str(self._server.server_host), self._server.server_port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Listen.

        Raises:
            AddressInUse: the address is another process', or none of this machine.
        """
        try:
            self._server.start()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise AddressInUse(f"metrics_address {self._configured}: {reason}") from error

    def close(self) -> None:
        """Stop; who is being answered gets no more."""
        self._server.stop(timeout=0)

    def _answer(self, request: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            page = self._pages.page(request["REQUEST_METHOD"], request.get("PATH_INFO", ""))
        except Exception as fault:  # noqa: BLE001 - the last boundary: a fault here must not be felt by jobs, nor be silent
            log.error("metrics.were_not_made", exception=type(fault).__name__)
            page = Page("500 Internal Server Error", b"the worker's log says more\n")
        body = page.body
        headers = [("Content-Type", page.content_type), ("Content-Length", str(len(body))), ("Connection", "close")]
        start_response(page.status, headers)
        return [] if request["REQUEST_METHOD"] == "HEAD" else [body]
