"""Triton's own metrics in a worker's scrape: of a real Triton, and of what is none."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import gevent
import pytest
from structlog.testing import capture_logs

from settings.load import settings_from
from tests.acceptance.fleet import SEED
from tests.exported import TRITON_ON_CPU
from tests.fakes import FakeClock
from tests.misbehaving_server import MisbehavingServer, http
from tests.waiting import wait_until
from worker.metrics import triton as module
from worker.metrics.triton import FAILURE_KEPT_MS, SUCCESS_KEPT_MS, TIMEOUT_SECONDS, TritonMetrics, triton_metrics_of
from worker.sandbox.triton_server import TritonServer
from worker.triton.http import Answer, HttpClients, Limits, Request

METRICS: Final = b"# TYPE nv_a gauge\nnv_a 1\n"
PASSED: Final = '# TYPE nv_a gauge\nnv_a{pool="gpu"} 1\n'


@contextmanager
def metrics_at(url: str, clock: FakeClock | None = None, **changes: Any) -> Iterator[TritonMetrics]:
    """What a worker passes on of a Triton that shows its metrics there."""
    passing = {"metrics_address": "127.0.0.1:0", "pass_through_triton_metrics": True, "triton_metrics_url": url}
    settings = settings_from({**SEED, "gpu_pool": {"name": "gpu"}, **passing, **changes})
    triton = triton_metrics_of(settings, (clock or FakeClock()).monotonic_ms)
    try:
        yield triton
    finally:
        triton.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take an answer that comes late on a busy machine for what it is."""
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 30.0)


class Counted(HttpClients):
    """Clients that count how often Triton is asked."""

    def __init__(self, clients: HttpClients) -> None:
        self._inner = clients
        self.asked = 0

    def exchange(self, request: Request, limits: Limits) -> Answer:
        """Count it."""
        self.asked += 1
        return self._inner.exchange(request, limits)

    def close(self) -> None:
        """Close those that were there before."""
        self._inner.close()


def test_the_families_of_a_real_triton_come_labelled_by_pool(triton: TritonServer) -> None:
    """Those that panels show are among them, with the labels that the tests of panels go by."""
    assert triton.metrics_url is not None
    clock = FakeClock()

    def asked_again() -> str | None:
        clock.pass_ms(FAILURE_KEPT_MS)
        return metrics.text()

    with metrics_at(triton.metrics_url, clock) as metrics:
        text = wait_until(asked_again, description="Triton, which serves inferences first, shows its metrics")
    assert text is not None
    series = re.findall(r"^(\w+)\{(.*)\} ", text, re.MULTILINE)
    found = {name: frozenset(re.findall(r'(\w+)="', labels)) for name, labels in series}
    assert all(name.startswith("nv_") and "pool" in labels for name, labels in found.items())
    assert {name: found[name] for name in TRITON_ON_CPU} == dict(TRITON_ON_CPU)


def test_scrapes_that_come_together_ask_once() -> None:
    """A second later Triton is asked again."""
    clock = FakeClock()
    with (
        MisbehavingServer(replies={"/metrics": http(200, METRICS)}) as server,
        metrics_at(f"{server.url}/metrics", clock) as metrics,
    ):
        scrapes = [gevent.spawn(metrics.text) for _ in range(5)]
        gevent.joinall(scrapes, raise_error=True)
        assert [scrape.value for scrape in scrapes] == [PASSED] * 5
        assert len(server.received) == 1
        clock.pass_ms(SUCCESS_KEPT_MS)
        assert metrics.text() == PASSED
    assert [request.path for request in server.received] == ["/metrics"] * 2


def test_secrets_for_inferences_are_not_sent_along() -> None:
    """Another port of that host may be another's."""
    with (
        MisbehavingServer(replies={"/metrics": http(200, METRICS)}) as server,
        metrics_at(f"{server.url}/metrics", runtime_headers={"Authorization": "Bearer hunter2"}) as metrics,
    ):
        assert metrics.text() == PASSED
    (request,) = server.received
    assert "authorization" not in request.headers


def test_another_path_may_be_configured() -> None:
    """Such as behind a proxy."""
    with (
        MisbehavingServer(replies={"/gpu/1/metrics": http(200, METRICS)}) as server,
        metrics_at(f"{server.url}/gpu/1/metrics") as metrics,
    ):
        assert metrics.text() == PASSED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(404, b"nothing here"), "status 404"),
        (http(200, b"<html>canary</html>"), "the answer is no metrics"),
        (http(200, b'nv_a{x="\xff"} 1\n'), "the answer is no metrics"),
        (http(200, b"nv_a 1\n" * (4 << 20)), "the answer is over the largest that is read"),
        (b"not HTTP at all\r\n\r\n", "the answer was cut short or is no HTTP"),
    ],
    ids=["no page", "a page for people", "no text", "too much", "no HTTP"],
)
def test_an_answer_that_is_no_metrics_is_left_out(answer: bytes, reason: str) -> None:
    """It is said once in the log, and when it is over; what the server wrote is not repeated."""
    clock = FakeClock()
    with (
        capture_logs() as lines,
        MisbehavingServer(replies={"/metrics": answer}) as server,
        metrics_at(f"{server.url}/metrics", clock) as metrics,
    ):
        assert metrics.text() is None
        clock.pass_ms(FAILURE_KEPT_MS)
        assert metrics.text() is None
        server.replies["/metrics"] = http(200, METRICS)
        clock.pass_ms(FAILURE_KEPT_MS)
        assert metrics.text() == PASSED
    assert [line["event"] for line in lines] == ["triton_metrics.became_unavailable", "triton_metrics.became_available"]
    assert lines[0]["reason"] == reason
    assert "canary" not in str(lines)


def test_a_triton_that_is_not_there_is_not_asked_by_each_scrape() -> None:
    """Only every ten seconds."""
    clock = FakeClock()
    with metrics_at("http://127.0.0.1:1/metrics", clock) as metrics:
        clients = metrics.clients = Counted(metrics.clients)
        for times in (1, 2):
            assert [metrics.text() for _ in range(50)] == [None] * 50
            assert clients.asked == times
            clock.pass_ms(FAILURE_KEPT_MS)


def test_a_triton_that_says_nothing_holds_up_one_scrape_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that come meanwhile, but none after."""
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent, capture_logs() as lines:
        port = silent.getsockname()[1]
        with metrics_at(f"http://127.0.0.1:{port}/metrics") as metrics:
            clients = metrics.clients = Counted(metrics.clients)
            scrapes = [gevent.spawn(metrics.text) for _ in range(5)]
            gevent.joinall(scrapes, raise_error=True)
            assert metrics.text() is None
        assert [scrape.value for scrape in scrapes] == [None] * 5
        assert clients.asked == 1
    assert [line["reason"] for line in lines] == ["no answer within 1 s"]
