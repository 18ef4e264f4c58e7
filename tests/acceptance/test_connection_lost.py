"""Connections to Triton that break while a job runs: retries wait in Redis and outlive the worker that made them."""

import json
from typing import Any, Final

from tests.acceptance.fleet import KEYS, Client, Fleet
from tests.acceptance.gateway import (
    QUEUE,
    codes,
    push,
    push_jobs,
    result_of,
    send_task,
    stock_producer,
    wait_for_results,
)
from tests.jobs import job_content, job_json
from tests.misbehaving_server import MisbehavingServer, Peer, Received, answers_rightly, http
from tests.waiting import wait_until
from tests.witness import Witness

SLOW_RETRY: Final[dict[str, Any]] = {"retry": {"base_seconds": 3600, "max_seconds": 3600, "max_attempts": 9}}
"""A retry that is not due in a test before this says so: the wait is drawn evenly from 0 to this long."""


def wait_until_they_wait(client: Client, jobs: int) -> None:
    """Return when so many retries wait. One that was drawn so short that a test would see it due is put off."""

    def all_wait() -> bool:
        records = client.zrange(KEYS.waiting, 0, -1)
        for record in records:
            client.zadd(KEYS.waiting, {record: 2**42}, xx=True)
        return len(records) == jobs

    wait_until(all_wait, description=f"{jobs} jobs wait for their retry")


def let_the_wait_be_over(client: Client) -> None:
    """Make all retries due. It rings for nobody: whoever looks next takes them."""
    for record in client.zrange(KEYS.waiting, 0, -1):
        client.zadd(KEYS.waiting, {record: 0}, xx=True)


def closes(_: Peer, __: Received) -> None:
    """Close the connection in place of an answer."""


def resets(peer: Peer, _: Received) -> None:
    """Reset the connection."""
    peer.reset()


def stops_half_way(peer: Peer, _: Received) -> None:
    """Begin an answer and close."""
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")


def is_a_gateway_that_lost_its_server(peer: Peer, _: Received) -> None:
    """Answer as a proxy does whose server went away."""
    peer.send(http(502, b"<html>", "text/html"))


WAYS_TO_LOSE: Final = (closes, resets, stops_half_way, is_a_gateway_that_lost_its_server)


def test_a_job_is_sent_max_attempts_times_and_then_settled(fleet: Fleet, valkey: Client) -> None:
    """However it is lost: each try is one request with an id of its own; none is sent again behind the worker's back."""
    with MisbehavingServer() as server:
        worker = fleet.start(runtime_endpoint=server.url)
        for behaviour in WAYS_TO_LOSE:
            server.behaviour = behaviour
            server.received.clear()
            push_jobs(valkey, behaviour.__name__)
            result = result_of(valkey, behaviour.__name__)

            assert codes([result]) == ["runtime_connection_lost"]
            assert [str(attempt.code) for attempt in result.attempts] == ["runtime_connection_lost"] * 3
            assert len(server.inferences) == 3
            assert len({request.json["id"] for request in server.inferences}) == 3
        assert worker.wait_until_state("ready")


def test_a_retry_waits_in_redis_and_is_taken_by_another_worker(
    fleet: Fleet, valkey: Client, redis_url: str, witness: Witness
) -> None:
    """The first worker loses its connections and is stopped; the second runs the jobs from the very bytes that came."""
    odd = b'  {"max_tokens" : 3,\n"prompt":"caf\\u00e9", "model":"acme/model-1",  "job_id":"bare"}\n'
    with MisbehavingServer(closes) as server:
        first = fleet.start(worker_id="first", runtime_endpoint=server.url, **SLOW_RETRY)
        push(valkey, odd)
        with stock_producer(redis_url) as producer:
            send_task(producer, "message", prompt="café")
        wait_until_they_wait(valkey, 2)
        assert first.stop() == 0

    (message,) = [raw for raw in valkey.zrange(KEYS.waiting, 0, -1) if not raw.endswith(odd)]
    assert json.loads(message.split(b"\n", 2)[2])["headers"]["task"] == "speedinfer.generate"
    assert valkey.llen(QUEUE) == 0
    assert [valkey.llen(KEYS.attempts(job_id)) > 0 for job_id in ("bare", "message")] == [True, True]
    assert first.claims() == {}
    let_the_wait_be_over(valkey)
    fleet.start(worker_id="second", **SLOW_RETRY)
    results = wait_for_results(valkey, "bare", "message")

    assert [result.text for result in results.values()] == ["echo: café"] * 2
    for result in results.values():
        *lost, last = [(attempt.worker_id, attempt.code and attempt.code.value) for attempt in result.attempts]
        assert lost
        assert set(lost) == {("first", "runtime_connection_lost")}
        assert last == ("second", None)
        assert result.worker_id == "second"
    assert witness.count() == 2
    assert valkey.zcard(KEYS.waiting) == 0


def test_a_waiting_retry_holds_no_slot(fleet: Fleet, valkey: Client) -> None:
    """With one slot, and a job that waits for its retry, the next job runs at once; the retry goes first when it is due."""

    def loses_the_first(peer: Peer, request: Received) -> None:
        if len(server.inferences) > 1:
            identity = request.json["id"]
            content = {"name": "text_output", "datatype": "BYTES", "shape": [1, 1], "data": ["hi"]}
            counts = [
                {"name": name, "datatype": "INT32", "shape": [1, 1], "data": [1]}
                for name in ("prompt_tokens", "completion_tokens")
            ]
            answer = {"id": identity, "model_name": "text_generation", "model_version": "1"}
            peer.send(http(200, json.dumps({**answer, "outputs": [content, *counts]}).encode()))
            peer.keep()

    with MisbehavingServer(loses_the_first) as server:
        fleet.start(runtime_endpoint=server.url, concurrency=1, **SLOW_RETRY)
        push(valkey, json.dumps(job_content(job_id="waits")).encode())
        wait_until_they_wait(valkey, 1)
        push(valkey, job_json(job_id="next"))
        assert codes([result_of(valkey, "next")]) == [None]
        let_the_wait_be_over(valkey)
        push(valkey, job_json(job_id="last"))
        results = wait_for_results(valkey, "waits", "last")

    assert codes(results.values()) == [None, None]
    assert [len(result.attempts) for result in results.values()] == [2, 1]
    sent = [str(request.json["id"]).partition("/")[0] for request in server.inferences]
    assert sent == ["waits", "next", "waits", "last"]


def test_no_other_job_is_sent_until_a_look_has_passed(fleet: Fleet, valkey: Client) -> None:
    """A server whose first connection broke may be dying: what else it is sent meanwhile would be lost too."""

    def loses_the_first(peer: Peer, request: Received) -> None:
        if len(server.inferences) == 1:
            server.tells_of_itself.clear()
        else:
            answers_rightly(peer, request)

    with MisbehavingServer(loses_the_first) as server:
        worker = fleet.start(runtime_endpoint=server.url, concurrency=1)
        push_jobs(valkey, "lost", "next")
        wait_until(lambda: not server.tells_of_itself.is_set(), description="the first job is sent")
        wait_until(lambda: worker.claims() == {}, description="it is lost")
        worker.wait_for_beats(2)
        assert len(server.inferences) == 1
        assert worker.claims() == {}

        server.tells_of_itself.set()
        results = wait_for_results(valkey, "lost", "next")

    assert codes(results.values()) == [None, None]
    assert [len(result.attempts) for result in results.values()] == [2, 1]
