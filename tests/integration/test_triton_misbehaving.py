"""What a real Triton cannot be made to do, by a small server that can: what becomes of a job, and of the connections."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import gevent
import pytest

from settings.runtime import RuntimeConfig
from tasks.errors import (
    ConnectionLost,
    ContractMismatch,
    InferenceRejected,
    InvalidJob,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    ModelNotSupported,
    OutputInvalid,
    QueueFull,
    RuntimeTimeout,
    RuntimeUnavailable,
    UsageUnavailable,
)
from tasks.generate import Generation
from tasks.usage import Usage
from tests.inferences import HASTY, PATIENT, all_at_once, failure_of, infer, inference_on, job_for, of_two_minds
from tests.jobs import MODEL, TRACEPARENT
from tests.misbehaving_server import (
    Behaviour,
    MisbehavingServer,
    Peer,
    Received,
    answers,
    answers_rightly,
    http,
    inference_answer,
)
from tests.waiting import wait_until
from worker.triton.adapter import TritonInference
from worker.triton.endpoint import Endpoint
from worker.triton.failures import CAUSES, LOSSES, ExchangeFailed, ServerAway, reason_of
from worker.triton.http import HttpClients, Limits, Request

PAGE: Final = b"<html><body>a proxy's words, canary</body></html>"


def json_answer(**changes: Any) -> Behaviour:
    """Do what answers rightly but for these fields."""

    def behave(peer: Peer, request: Received) -> None:
        answers(http(200, json.dumps(inference_answer(request.json["id"], **changes)).encode()))(peer, request)

    return behave


def resets_before_an_answer(peer: Peer, _: Received) -> None:
    """The request is in, no byte comes back."""
    peer.reset()


def closes_before_an_answer(_: Peer, __: Received) -> None:
    """As a server does that ends."""


def resets_within_the_answer(peer: Peer, _: Received) -> None:
    """Headers and a part of the body."""
    peer.send(http(200, b"x" * 1000)[:500])
    peer.reset()


def closes_within_the_answer(peer: Peer, _: Received) -> None:
    """The same, with a proper close."""
    peer.send(http(200, b"x" * 1000)[:500])


def closes_within_the_headers(peer: Peer, _: Received) -> None:
    """Not even a whole head."""
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")


def never_answers(peer: Peer, _: Received) -> None:
    """Accepted and forgotten."""
    peer.wait()


def drips(peer: Peer, _: Received) -> None:
    """A byte now and then, so that no single wait is ever long."""
    for byte in http(200, b"x" * 1000):
        peer.send(bytes([byte]))
        peer.wait(0.02)


def sends_without_end(peer: Peer, _: Received) -> None:
    """A body of no announced length that never ends."""
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not peer.stopping.is_set():
        peer.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def sends_headers_without_end(peer: Peer, _: Received) -> None:
    """Headers that never end."""
    peer.send(b"HTTP/1.1 200 OK\r\n")
    while not peer.stopping.is_set():
        peer.send(b"X-More: " + b"x" * 60_000 + b"\r\n")


def called_compressed(peer: Peer, request: Received) -> None:
    """A right answer under a header that says it is another."""
    body = json.dumps(inference_answer(request.json["id"])).encode()
    answers(http(200, body, headers={"Content-Encoding": "gzip"}))(peer, request)


FAILURES: Final[dict[str, tuple[Behaviour, type[JobError]]]] = {
    "reset before an answer": (resets_before_an_answer, ConnectionLost),
    "closed before an answer": (closes_before_an_answer, ConnectionLost),
    "reset within the answer": (resets_within_the_answer, ConnectionLost),
    "closed within the answer": (closes_within_the_answer, ConnectionLost),
    "closed within the headers": (closes_within_the_headers, ConnectionLost),
    "garbage for a status line": (answers(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), ConnectionLost),
    "never answered": (never_answers, RuntimeTimeout),
    "dripping slower than the deadline": (drips, RuntimeTimeout),
    "too large, announced": (answers(http(200, b"", headers={"Content-Length": "10000000"})), OutputInvalid),
    "too large, not announced": (sends_without_end, OutputInvalid),
    "headers without end": (sends_headers_without_end, OutputInvalid),
    "called compressed": (called_compressed, OutputInvalid),
    "redirected": (answers(http(302, PAGE, headers={"Location": "/elsewhere"})), ContractMismatch),
    "a page with 200": (answers(http(200, PAGE, "text/html")), OutputInvalid),
    "nothing with 200": (answers(http(200)), OutputInvalid),
    "nothing with 204": (answers(b"HTTP/1.1 204 No Content\r\n\r\n"), OutputInvalid),
    "truncated JSON": (answers(http(200, b'{"id":"j-1/tag","outputs":[{')), OutputInvalid),
    "a list": (answers(http(200, b"[]")), OutputInvalid),
    "an empty object": (answers(http(200, b"{}")), OutputInvalid),
    "an error with 200": (answers(http(200, b'{"error":"any words, canary"}')), OutputInvalid),
    "a known error with 200": (answers(http(200, b'{"error":"Exceeds maximum queue size"}')), QueueFull),
    "another request's answer": (json_answer(id="j-2/tag"), OutputInvalid),
    "an answer without an id": (json_answer(id=None), OutputInvalid),
    "an answer without outputs": (json_answer(outputs=[]), OutputInvalid),
    "401 with a page": (answers(http(401, PAGE)), ContractMismatch),
    "403 with a page": (answers(http(403, PAGE)), ContractMismatch),
    "404 with a page": (answers(http(404, PAGE)), ContractMismatch),
    "413 with a page": (answers(http(413, PAGE)), InferenceRejected),
    "429": (answers(http(429, b'{"message":"slow down"}')), QueueFull),
    "502 with a page": (answers(http(502, PAGE)), ConnectionLost),
    "503 with a page": (answers(http(503, PAGE)), RuntimeUnavailable),
    "503 with nothing": (answers(http(503)), RuntimeUnavailable),
    "503 compressed": (answers(http(503, b"\x1f", headers={"Content-Encoding": "gzip"})), RuntimeUnavailable),
    "503 too large": (answers(http(503, b"", headers={"Content-Length": "10000000"})), RuntimeUnavailable),
    "504 with a page": (answers(http(504, PAGE)), RuntimeTimeout),
    "an error that is an object": (answers(http(500, b'{"error":{"code":7}}')), ConnectionLost),
    "a dead process": (answers(http(500, b'{"error":"Stub process \'m\' is not healthy."}')), ModelCrashed),
    "an exception": (answers(http(500, b'{"error":"Failed to process the request(s) for"}')), ModelException),
    "not loaded": (answers(http(404, b'{"error":"Request for unknown model: \'m\' is not found"}')), ModelNotReady),
    "no counts": (json_answer(outputs=inference_answer("")["outputs"][:1]), UsageUnavailable),
}


@pytest.mark.parametrize(("behaviour", "error"), FAILURES.values(), ids=FAILURES)
def test_each_misbehaviour_is_its_coded_error_and_costs_no_connection(
    behaviour: Behaviour, error: type[JobError]
) -> None:
    """Asked exactly once, within the deadline, without a word of what came; and the next jobs run on both connections."""
    takes_time = behaviour in (never_answers, drips)
    model = HASTY if takes_time else PATIENT
    asked: list[Received] = []

    def misbehave(peer: Peer, request: Received) -> None:
        asked.append(request)
        behaviour(peer, request)

    with (
        MisbehavingServer(misbehave) as server,
        inference_on(server.url, max_result_bytes=1000, concurrency=2, **of_two_minds(0.3)) as adapter,
    ):
        for name in (PATIENT, HASTY):
            adapter.check(name)
        for _ in range(3):
            if takes_time:
                server.behaviour = answers_rightly
                infer(adapter, model=PATIENT)
                server.behaviour = misbehave
            found = failure_of(adapter, error, model=model)
            assert "canary" not in f"{found!r}{found.message}{reason_of(found)}"
            if error is ContractMismatch:
                adapter.check(model)
        wait_until(lambda: len(asked) >= 3, description="all three were asked")
        assert len(asked) == 3
        server.behaviour = answers_rightly
        outcomes = all_at_once([partial(infer, adapter, model=PATIENT)] * 2)
        assert {type(outcome) for outcome in outcomes} == {Generation}


def test_every_error_that_can_be_meant_is_met() -> None:
    """The table's errors, and those that need no answer, each happen in a test of this file."""
    others = {InvalidJob, ModelNotSupported, ServerAway}
    meant = {cause.error for cause in CAUSES} | set(LOSSES.values()) | {UsageUnavailable} | others
    assert {error for _, error in FAILURES.values()} | others == meant


def test_what_is_the_jobs_own_fault_is_not_sent() -> None:
    """Neither an undeclared model nor a parameter that nothing takes."""
    with MisbehavingServer() as server, inference_on(server.url) as adapter:
        failure_of(adapter, ModelNotSupported, model="other")
        failure_of(adapter, InvalidJob, parameters={"temperature": 1})
        assert server.inferences == []


def test_a_spent_usage_is_kept_with_an_invalid_text() -> None:
    """The counts that came beside a wrong text are what was spent."""
    outputs = inference_answer("")["outputs"][1:]
    with MisbehavingServer(json_answer(outputs=outputs)) as server, inference_on(server.url) as adapter:
        assert failure_of(adapter, OutputInvalid).usage == Usage.of(prompt_tokens=3, completion_tokens=1)


@pytest.mark.parametrize("count", [2**32 + 1, 3.7, True, "3", None, -1])
def test_a_count_in_json_is_taken_as_it_is_or_not_at_all(count: Any) -> None:
    """A server that ignores the wish for binary cannot make a count of what is none."""
    outputs = inference_answer("")["outputs"]
    outputs[1]["data"] = [count]
    with MisbehavingServer(json_answer(outputs=outputs)) as server, inference_on(server.url) as adapter:
        if count == 2**32 + 1:
            assert infer(adapter).usage.prompt_tokens == count
        else:
            failure_of(adapter, UsageUnavailable)


class TestTheRequest:
    def test_its_headers_are_those_configured(self) -> None:
        """With the trace of its job; nothing asks for compression; the same again for the next."""
        headers = {"Authorization": "Bearer canary", "X-Team": "a"}
        with MisbehavingServer() as server, inference_on(server.url, runtime_headers=headers) as adapter:
            infer(adapter, traceparent=TRACEPARENT)
            infer(adapter)
            first, second = server.inferences
        assert first.headers["authorization"] == second.headers["authorization"] == "Bearer canary"
        assert first.headers["x-team"] == "a"
        assert first.headers["host"] == f"localhost:{server.port}"
        assert first.headers["traceparent"] == TRACEPARENT
        assert "traceparent" not in second.headers
        assert "accept-encoding" not in first.headers
        assert all(request.headers["authorization"] == "Bearer canary" for request in server.received)

    def test_a_path_in_the_endpoint_goes_before_each(self) -> None:
        """As behind a gateway that serves several Tritons."""
        with MisbehavingServer() as server:
            server.replies = {f"/gpu/7{path}": reply for path, reply in server.replies.items()}
            with inference_on(f"{server.url}/gpu/7") as adapter:
                infer(adapter)
                assert adapter.server_identity().name == "misbehaving"
            assert {request.path.startswith("/gpu/7/v2") for request in server.received} == {True}

    def test_connections_are_kept(self) -> None:
        """One connection for the check and one for twenty jobs, one after the other."""
        with MisbehavingServer() as server, inference_on(server.url) as adapter:
            for _ in range(20):
                infer(adapter)
            assert server.connections == 2

    def test_a_connection_that_the_server_closed_is_not_used_again(self) -> None:
        """Each answer is the last on its connection, and no job notices."""

        def closes_after(peer: Peer, request: Received) -> None:
            answers_rightly(peer, request)
            peer.kept = False

        with MisbehavingServer(closes_after) as server, inference_on(server.url) as adapter:
            for count in range(1, 6):
                infer(adapter)
                wait_until(partial(_at_least, server, count), description="the server closed the connection")
            assert len(server.inferences) == 5

    def test_secrets_are_shown_nowhere(self) -> None:
        """Neither the endpoint nor an error has a header's value in its words."""
        endpoint = Endpoint("localhost", 1, headers=(("Authorization", "canary"),))
        assert "canary" not in repr(endpoint)
        adapter = TritonInference(endpoint, {MODEL: RuntimeConfig(model_name="m")}, concurrency=1)
        error = failure_of(adapter, ServerAway)
        assert "canary" not in f"{error!r}{error.__cause__!r}{error.__context__!r}"


def _at_least(server: MisbehavingServer, closed: int) -> bool:
    return server.closed >= closed


def _until_asked(server: MisbehavingServer) -> None:
    # Not wait_until, which would keep greenlets from running.
    with gevent.Timeout(30):
        while not server.inferences:
            gevent.sleep(0.01)


@contextmanager
def _full_backlog() -> Iterator[int]:
    """A port of loopback that takes no more connections, so that the next one is neither made nor refused."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        with ExitStack() as stack:
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(address)
            yield address[1]


class TestTheDeadline:
    def test_waiting_for_a_connection_is_part_of_it(self) -> None:
        """With one connection and a server that never answers, the second job's time runs while it waits, unsent."""
        with (
            MisbehavingServer(never_answers) as server,
            inference_on(server.url, concurrency=1, **of_two_minds(0.4)) as adapter,
        ):
            for name in (PATIENT, HASTY):
                adapter.check(name)
            first = gevent.spawn(adapter.infer, job_for(model=PATIENT), "j-1/tag")
            _until_asked(server)
            second = failure_of(adapter, RuntimeUnavailable, model=HASTY)
            assert reason_of(second) == "no connection was free within 0.4 s"
            assert not first.ready()
            first.kill()
            assert len(server.inferences) == 1

    def test_the_check_before_a_first_job_is_part_of_it(self) -> None:
        """A job of a model that cannot be checked in its time was never sent."""
        with MisbehavingServer() as server, inference_on(server.url, timeout_seconds=0.3) as adapter:
            server.replies.clear()
            server.replies["/v2/models/text_generation"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
            with gevent.Timeout(30):
                assert reason_of(failure_of(adapter, RuntimeUnavailable)) == "not checked within 0.3 s"
            assert server.inferences == []

    def test_a_callers_own_timer_stays_its_own(self) -> None:
        """A timeout from further out is not taken for the inference's, and the connection is given back."""
        with MisbehavingServer(never_answers) as server, inference_on(server.url, concurrency=1) as adapter:
            adapter.check(MODEL)
            timer = gevent.Timeout(0.2)
            timer.start()
            try:
                with pytest.raises(gevent.Timeout) as caught:
                    infer(adapter)
            finally:
                timer.close()
            assert caught.value is timer
            server.behaviour = answers_rightly
            assert infer(adapter).text == "hi"

    def test_a_killed_greenlet_gives_its_connection_back(self) -> None:
        """As when the process drains."""
        with MisbehavingServer(never_answers) as server, inference_on(server.url, concurrency=1) as adapter:
            adapter.check(MODEL)
            greenlet = gevent.spawn(adapter.infer, job_for(), "j-1/tag")
            _until_asked(server)
            greenlet.kill()
            server.behaviour = answers_rightly
            assert infer(adapter).text == "hi"

    def test_connecting_has_a_bound_of_its_own(self) -> None:
        """An address that swallows everything is given up after connect_timeout_seconds, unsent."""
        with _full_backlog() as port:
            url = f"http://127.0.0.1:{port}"
            with inference_on(url, connect_timeout_seconds=0.3) as adapter, gevent.Timeout(30):
                assert reason_of(failure_of(adapter, RuntimeUnavailable)) == "not connected within 0.3 s"

    def test_a_name_that_is_never_resolved_is_within_that_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A resolver that hangs does not hold a connection's place for the whole of timeout_seconds."""
        monkeypatch.setattr("gevent.socket.getaddrinfo", lambda *_, **__: gevent.sleep(60))
        with inference_on("http://triton:8000", connect_timeout_seconds=0.3) as adapter, gevent.Timeout(30):
            assert reason_of(failure_of(adapter, RuntimeUnavailable)) == "not connected within 0.3 s"

    def test_what_cannot_be_connected_uses_up_no_connection(self) -> None:
        """However often it is tried, over a single one."""
        clients = HttpClients(Endpoint("127.0.0.1", 1), concurrency=1)
        for _ in range(3):
            with pytest.raises(ExchangeFailed) as caught:
                clients.exchange(Request("/v2"), Limits(30.0, 30.0, 1000))
            assert caught.value.reason == "not connected: Connection refused"
        clients.close()

    @pytest.mark.parametrize(
        ("url", "error", "reason"),
        [
            ("http://127.0.0.1:1", ServerAway, "not connected: Connection refused"),
            ("http://no-such-host.invalid:8000", RuntimeUnavailable, "host name not resolved"),
            ("http://no..such.host:8000", RuntimeUnavailable, "host name not resolved"),
        ],
    )
    def test_what_was_never_sent_says_why(self, url: str, error: type[JobError], reason: str) -> None:
        """Operators read what happened; the job goes back to its queue."""
        with inference_on(url, connect_timeout_seconds=60) as adapter:
            assert reason_of(failure_of(adapter, error)) == reason


class TestAnEarlyAnswer:
    def test_a_refusal_before_the_request_is_in_is_read(self) -> None:
        """A proxy that hangs up on a large request has said why."""
        with MisbehavingServer(answers(http(413, PAGE))) as server, inference_on(server.url) as adapter:
            adapter.check(MODEL)
            server.reads_bodies = False
            found = all_at_once([partial(infer, adapter, "x" * 1_000_000)])[0]
        # Which of the two it is depends on whether the reset overtakes the answer.
        assert type(found) in {InferenceRejected, ConnectionLost}


class TestWhatIsNoTriton:
    @pytest.mark.parametrize("body", [PAGE, b"", b"{}", b"[]", b'{"name":7}'])
    def test_a_page_for_every_path_is_no_triton(self, body: bytes) -> None:
        """A proxy that answers 200 to everything is neither a server, nor ready, nor a model that fits."""
        with MisbehavingServer() as server, inference_on(server.url) as adapter:
            server.replies = dict.fromkeys(server.replies, http(200, body))
            for ask in (adapter.server_identity, partial(adapter.check, MODEL)):
                with pytest.raises(RuntimeUnavailable) as caught:
                    ask()
                assert reason_of(caught.value) == "what answers there is no Triton"
            if body == PAGE:
                assert not adapter.server_ready()
                assert not adapter.model_ready(MODEL)

    def test_an_index_with_gaps_is_read(self) -> None:
        """A model that was never loaded has neither version nor state."""
        index = b'[{"name":"a"},{"name":"b","version":"1","state":"READY"}]'
        replies = {"/v2/repository/index": http(200, index)}
        with MisbehavingServer(replies=replies) as server, inference_on(server.url) as adapter:
            assert [(entry.name, entry.state) for entry in adapter.ready_models()] == [("a", None), ("b", "READY")]

    def test_a_probe_that_is_refused_says_by_whom(self) -> None:
        """Permissions are a mismatch, all else is unavailable: nothing was run."""
        with MisbehavingServer() as server, inference_on(server.url) as adapter:
            for status, error in ((401, ContractMismatch), (500, RuntimeUnavailable), (502, RuntimeUnavailable)):
                server.replies["/v2"] = http(status, PAGE)
                with pytest.raises(error) as caught:
                    adapter.server_identity()
                assert type(caught.value) is error
                assert reason_of(caught.value).startswith(f"HTTP {status}: ")

    def test_an_endless_answer_to_a_probe_is_cut_off(self) -> None:
        """At 4 MiB."""
        replies = {"/v2": http(200, b"", headers={"Content-Length": "5000000"})}
        with (
            MisbehavingServer(replies=replies) as server,
            inference_on(server.url) as adapter,
            pytest.raises(RuntimeUnavailable),
        ):
            adapter.server_identity()
