"""The endpoint for Prometheus and probes, over real sockets."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
import gevent.socket
import pytest
from structlog.testing import capture_logs

from worker.metrics import server as module
from worker.metrics.server import AddressInUse, MetricsServer, Pages


def metrics() -> bytes:
    """Return what stands for a scrape's text."""
    return b"speedinfer_redis_up 1.0\n"


PATIENT_SECONDS = 10.0
"""Less than a request may take, by which a probe would fail."""

PAGES = Pages(metrics, lambda: (True, "ready"))


@contextmanager
def serving(
    pages: Pages = PAGES, address: str = "127.0.0.1:0", kind: type[MetricsServer] = MetricsServer
) -> Iterator[MetricsServer]:
    """A server that listens."""
    server = kind(address, pages)
    server.start()
    try:
        yield server
    finally:
        server.close()


def sent(server: MetricsServer, request: bytes) -> bytes:
    """Send these bytes and return all that comes until the other end closes."""
    host, _, port = server.address.rpartition(":")
    with gevent.socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENT_SECONDS) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def get(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of an answer."""
    head, _, body = sent(server, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def test_the_pages_are_served() -> None:
    """With their type and length, each on a connection of its own; HEAD has all of it but the body."""
    with serving() as server:
        status, headers, body = get(server, "/metrics")
        assert (status, body) == (200, metrics())
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert headers["content-length"] == str(len(metrics()))
        assert headers["connection"] == "close"
        assert get(server, "/metrics?x=1")[2] == metrics()
        assert get(server, "/metrics", "HEAD") == (200, headers, b"")
        assert get(server, "/readyz")[2] == b"ready\n"
        assert get(server, "/healthz")[2] == b"alive\n"
        assert get(server, "/")[0] == 404
        assert get(server, "/metrics", "POST")[0] == 405


@pytest.mark.parametrize("address", ["localhost:0", "[::1]:0", "0.0.0.0:0"])
def test_it_listens_where_it_is_told_to(address: str) -> None:
    """By name, by IPv6 address, or on every address of the machine; port 0 is any that is free."""
    with serving(address=address) as server, serving(address=address) as other:
        assert not server.address.endswith(":0")
        assert server.address != other.address
        assert get(server, "/healthz")[0] == 200


def test_an_address_that_another_listens_on_is_refused() -> None:
    """Two workers on one port would be one target, and each scrape another one's figures."""
    with serving() as server, pytest.raises(AddressInUse, match=rf"^metrics_address {server.address}: "):
        MetricsServer(server.address, PAGES).start()


def test_an_address_of_another_machine_is_refused() -> None:
    """It says which, and what the system has against it."""
    with pytest.raises(AddressInUse, match=r"^metrics_address 192\.0\.2\.1:9464: "):
        MetricsServer("192.0.2.1:9464", PAGES).start()


def test_a_fault_in_making_metrics_is_an_answer_and_a_log_line() -> None:
    """The next scrape is answered again."""
    broken = [True]

    def text() -> bytes:
        if broken:
            raise LookupError(broken.pop())
        return metrics()

    with serving(Pages(text, lambda: (True, "ready"))) as server, capture_logs() as lines:
        assert get(server, "/metrics")[0] == 500
        assert get(server, "/metrics")[0] == 200
    assert [(line["event"], line["exception"]) for line in lines] == [("metrics.were_not_made", "LookupError")]


@pytest.mark.parametrize(
    "request_bytes", [b"", b"GET /metrics HT", b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_who_never_ends_a_request_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, request_bytes: bytes) -> None:
    """However many they are: those who scrape come next."""
    served = []

    class Counting(MetricsServer):
        def _serve(self, connection: gevent.socket.socket, address: object) -> None:
            served.append(address)
            super()._serve(connection, address)

    monkeypatch.setattr(module, "_REQUEST_SECONDS", 0.5)
    with serving(kind=Counting) as server:
        stalled = [gevent.spawn(sent, server, request_bytes) for _ in range(40)]
        with gevent.Timeout(PATIENT_SECONDS):
            while len(served) < 40:
                gevent.sleep(0.001)
        monkeypatch.undo()  # Only those who are there have so little time.
        assert get(server, "/healthz")[0] == 200
        gevent.joinall(stalled, timeout=PATIENT_SECONDS, raise_error=True)
        assert all(greenlet.ready() for greenlet in stalled)


@pytest.mark.parametrize("request_bytes", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_who_asks_for_nothing_keeps_nobody_waiting(request_bytes: bytes) -> None:
    """A probe that waited for it would have the worker ended: hundreds of silent connections cost it nothing."""
    with serving() as server:
        silent = []
        for _ in range(300):
            host, _, port = server.address.rpartition(":")
            silent.append(gevent.socket.create_connection((host, int(port)), timeout=PATIENT_SECONDS))
            silent[-1].sendall(request_bytes)
        with gevent.Timeout(PATIENT_SECONDS):
            assert get(server, "/healthz")[0] == 200
        for connection in silent:
            connection.close()


@pytest.mark.parametrize(
    "garbage", [b"\x00" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"A" * 100_000]
)
def test_what_is_no_http_ends_no_server(garbage: bytes, capsys: Any) -> None:
    """And writes nothing where others read logs."""
    with serving() as server:
        with suppress(OSError):
            assert sent(server, garbage).startswith(b"HTTP/1.1 400 ")
        assert get(server, "/healthz")[0] == 200
    assert capsys.readouterr() == ("", "")
