"""The client's side of a queue, on a real Valkey: a job is put there once, and its result is found."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import redis

from tasks.job import GenerateJob
from tasks.reading import ModelLimits, ValidJob, read_job
from tasks.result import GenerateResult
from tests.integration.settled import settle, settled_as
from worker.connections import redis_client
from worker.keys import Keys
from worker.submit import AnotherJob, encode, enqueue, follow_result, read_result

KEYS = Keys("speedinfer")
QUEUE = "speedinfer:jobs:acme/model-1"


def job(job_id: str = "j-1", **fields: object) -> GenerateJob:
    """A valid job but for the given fields."""
    return GenerateJob.model_validate(
        {"job_id": job_id, "model": "acme/model-1", "prompt": "Grüße", "max_tokens": 4, **fields}
    )


class TestEnqueueing:
    def test_what_is_enqueued_is_read_as_the_same_job(self, valkey: redis.Redis) -> None:
        """The bytes in the queue are the job, with its times as the contract writes them."""
        sent = job(
            enqueued_at="2026-11-30T10:00:00.5+01:00", parameters={"stop": ["."]}, metadata={"a": "b"}, tenant="t"
        )
        reply = enqueue(valkey, KEYS, sent)
        (raw,) = valkey.lrange(QUEUE, 0, -1)
        assert isinstance(raw, bytes)
        read = read_job(raw, queue_model="acme/model-1", limits=ModelLimits(1 << 20, None, None), max_job_bytes=1 << 20)
        assert (reply.enqueued, reply.queue_length) == (True, 1)
        assert isinstance(read, ValidJob)
        assert read.job == sent
        assert json.loads(raw)["enqueued_at"] == "2026-11-30T09:00:00.500Z"

    def test_jobs_are_taken_in_the_order_in_which_they_were_enqueued(self, valkey: redis.Redis) -> None:
        """Workers take from the right, so a job is put in at the left."""
        for job_id in ("first", "second"):
            enqueue(valkey, KEYS, job(job_id))
        taken = valkey.rpop(QUEUE)
        assert isinstance(taken, bytes)
        assert json.loads(taken)["job_id"] == "first"

    def test_a_repeat_of_the_same_call_does_nothing_even_after_another_call(self, valkey: redis.Redis) -> None:
        """A late repeat is recognised although the same job_id was enqueued by another call in between."""
        enqueue(valkey, KEYS, job(), token="call-a")
        enqueue(valkey, KEYS, job(), token="call-b")
        reply = enqueue(valkey, KEYS, job(), token="call-a")
        assert (reply.enqueued, reply.queue_length) == (False, 2)

    def test_the_marker_of_a_call_expires(self, valkey: redis.Redis) -> None:
        """What guards against repeats does not stay for ever."""
        enqueue(valkey, KEYS, job())
        assert 0 < valkey.ttl(KEYS.enqueued("j-1")) <= 3600

    def test_a_lost_reply_does_not_enqueue_twice(self, valkey: redis.Redis, redis_url: str) -> None:
        """The connection breaks after Redis has done the work and before it said so: the job is in the queue once."""
        with a_proxy_that_loses_replies(redis_url, losses=2) as proxied:
            client = redis_client(proxied)
            reply = enqueue(client, KEYS, job())
            client.close()
        assert not reply.enqueued
        assert valkey.llen(QUEUE) == 1

    def test_a_redis_that_is_gone_is_an_error_after_some_tries(self) -> None:
        """The caller learns that it is not known whether the job was enqueued."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            client = redis_client(f"redis://127.0.0.1:{closed.getsockname()[1]}/0")
            with pytest.raises(redis.ConnectionError):
                enqueue(client, KEYS, job())
            client.close()


class TestWaitingForAResult:
    def test_a_result_is_returned_when_it_comes(self, valkey: redis.Redis) -> None:
        """Waiting goes on until the job has ended, and no longer."""
        naps: list[float] = []

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                settle(valkey, job())

        result = follow_result(valkey, KEYS, job(), now=lambda: 0.0, sleep=sleep, timeout=None)
        assert isinstance(result, GenerateResult)
        assert result.text == "Hello"
        assert len(naps) == 3
        assert naps == sorted(naps)

    def test_waiting_ends_at_the_timeout(self, valkey: redis.Redis) -> None:
        """None is returned when the time is up, and no nap goes beyond it."""
        passed = 0.0

        def sleep(seconds: float) -> None:
            nonlocal passed
            passed += seconds

        assert follow_result(valkey, KEYS, job(), now=lambda: passed, sleep=sleep, timeout=0.7) is None
        assert passed == pytest.approx(0.7)

    def test_the_result_of_another_job_under_the_same_id_is_not_taken_for_this_ones(self, valkey: redis.Redis) -> None:
        """A job_id that was settled for other content is an error, not a result."""
        settle(valkey, job(prompt="something else"))
        with pytest.raises(AnotherJob):
            read_result(valkey, KEYS, job())

    def test_a_job_sent_again_later_has_the_same_result(self, valkey: redis.Redis) -> None:
        """Only the content tells jobs apart, not when they were enqueued."""
        settle(valkey, job(enqueued_at="2026-11-30T10:00:00Z"))
        assert read_result(valkey, KEYS, job(enqueued_at="2026-11-30T11:00:00Z", metadata={"n": "2"})) is not None

    def test_the_marker_of_a_settlement_is_compared_as_the_worker_writes_it(self) -> None:
        """The fingerprint of the job as enqueued is that of the job as read from the queue."""
        sent = job(parameters={"b": 1, "a": [1.5]}, expires_at="2026-11-30T10:00:00.123+02:00")
        read = read_job(
            encode(sent), queue_model="acme/model-1", limits=ModelLimits(1 << 20, None, None), max_job_bytes=1 << 20
        )
        assert isinstance(read, ValidJob)
        assert read.identity.fingerprint == settled_as(sent)


@contextmanager
def a_proxy_that_loses_replies(url: str, *, losses: int) -> Iterator[str]:
    """Pass everything on, but close the connection instead of answering a script that was run."""
    port = urlsplit(url).port
    left = [losses]

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            while request := client.recv(1 << 20):
                server.sendall(request)
                reply = server.recv(1 << 20)
                if left[0] and b"EVALSHA" in request and not reply.startswith(b"-NOSCRIPT"):
                    left[0] -= 1
                    return
                client.sendall(reply)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)
