"""Celery's events, for whoever asks for them: what they tell of workers and runs, and Flower on top of them."""

import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from celery import Celery
from kombu import pools

from tests.acceptance.fleet import BIN, KEYS, ROOT, Client, Fleet
from tests.acceptance.gateway import codes, push, push_jobs, result_of, wait_for_results
from tests.waiting import wait_until
from worker.sandbox.places import free_port, log_tail

SECRET: Final = "canary-in-a-prompt"


@pytest.fixture
def config(fleet: Fleet) -> Path:
    """The configuration of a worker that tells."""
    return fleet.write(fleet.configuration(celery_events=True))


@contextmanager
def listening(redis_url: str) -> Iterator[list[dict[str, Any]]]:
    """Hear events as any Celery program does that knows the namespace."""
    heard: list[dict[str, Any]] = []
    app = Celery("listener", broker=redis_url, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": KEYS.prefix}
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": heard.append})
        listener = threading.Thread(target=receiver.capture, kwargs={"limit": None, "timeout": None, "wakeup": False})
        listener.start()
        try:
            yield heard
        finally:
            receiver.should_stop = True
            listener.join()
    app.close()
    pools.reset()


@pytest.mark.leaves("_kombu.binding_deadlines")  # the listener's, which is stock
def test_events_tell_of_runs_and_of_no_content(valkey: Client, redis_url: str, fleet: Fleet, config: Path) -> None:
    """Received, started and how it ended, by the job's id; a heartbeat of the worker. Outcomes are those of the settlement."""
    fleet.start(config=json.loads(config.read_text()))
    with listening(redis_url) as heard:
        wait_until(lambda: heard, description="the worker's heartbeat")
        push_jobs(valkey, "good", prompt=SECRET)
        push_jobs(valkey, "bad", max_tokens=0, prompt=SECRET)
        wait_for_results(valkey, "good", "bad")
        ends = {"task-succeeded", "task-failed"}
        wait_until(lambda: len([e for e in heard if e["type"] in ends]) == 2, description="both have ended")
    told = {job_id: [e["type"] for e in heard if e.get("uuid") == job_id] for job_id in ("good", "bad")}
    assert told == {
        "good": ["task-received", "task-started", "task-succeeded"],
        "bad": ["task-received", "task-started", "task-failed"],
    }
    assert {e["type"] for e in heard if "uuid" not in e} <= {"worker-online", "worker-heartbeat"}
    assert [e["exception"] for e in heard if e["type"] == "task-failed"] == ["invalid_job"]
    assert SECRET not in json.dumps(heard)


class Flower:
    """The real Flower, beside a worker."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """What its interface answers, None while it does not."""
        with suppress(OSError), urllib.request.urlopen(self._url + path, timeout=10) as answer:  # noqa: S310 - http on loopback
            return json.load(answer)
        return None

    def post(self, path: str) -> tuple[int, str]:
        """How it answers what should change something."""
        request = urllib.request.Request(self._url + path, data=b"", method="POST")  # noqa: S310 - as above
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def answered_post(self, path: str) -> tuple[int, str] | None:
        """The same of what asks the worker, None where that did not answer within the second that Flower gives it."""
        status, said = self.post(path)
        return None if "Unknown reason" in said else (status, said)


@pytest.fixture
def flower(tmp_path: Path, config: Path) -> Iterator[Flower]:
    """Started as people start it."""
    port, log = free_port(), tmp_path / "flower.log"
    command = [str(BIN / "celery"), "-A", "worker.celery", "flower", f"--port={port}", "--address=127.0.0.1"]
    variables = {"SPEEDINFER_CONFIG": str(config), "FLOWER_UNAUTHENTICATED_API": "true"}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **variables}, stdout=stream, stderr=subprocess.STDOUT
        )
    try:
        running = Flower(port)
        wait_until(lambda: running.get("/api/workers") is not None, description="Flower answers", timeout=30)
        yield running
    except AssertionError as failure:
        raise AssertionError(f"{failure}; {log_tail(log)}") from None
    finally:
        process.terminate()
        process.wait(20)


def test_flower_shows_workers_and_runs_and_ends_nothing(
    valkey: Client, fleet: Fleet, config: Path, flower: Flower
) -> None:
    """What it can show it shows; its buttons are refused, and the worker works on."""
    worker = fleet.start(config=json.loads(config.read_text()))
    wait_until(lambda: flower.get("/api/workers?refresh=1"), description="Flower sees the worker")
    wait_until(lambda: flower.get("/api/workers?status=1"), description="Flower hears events")
    push_jobs(valkey, "shown", prompt=SECRET)
    push(valkey, b"no job")
    result_of(valkey, "shown")
    tasks = wait_until(lambda: _ended(flower.get("/api/tasks")), description="Flower sees both runs")
    assert sorted((task["state"], task["exception"]) for task in tasks.values()) == [
        ("FAILURE", "dead letter: not_json"),
        ("SUCCESS", None),
    ]
    assert tasks["shown"]["name"] == "speedinfer.generate"
    refreshed = "/api/workers?refresh=1"
    workers: Any = wait_until(lambda: flower.get(refreshed), description="Flower sees the worker again")
    assert SECRET not in json.dumps([tasks, workers])

    (name,) = workers
    for path in ("pool/restart/{}", "pool/shrink/{}", "queue/cancel-consumer/{}?queue=x"):
        post = partial(flower.answered_post, f"/api/worker/{path.format(name)}")
        status, said = wait_until(post, description=f"the worker answers {path}") or (0, "")
        assert (status, "refused: " in said) == (403, True), (path, said)
    for path in (f"/api/worker/shutdown/{name}", "/api/task/revoke/shown?terminate=true"):
        flower.post(path)  # It asks for no answer.
    buttons = {"pool_restart", "pool_shrink", "cancel_consumer", "shutdown", "revoke"}
    wait_until(
        lambda: {event["command"] for event in worker.events("remote_control.was_refused")} >= buttons,
        description="the worker has refused all of it",
    )
    push_jobs(valkey, "afterwards")
    assert codes([result_of(valkey, "afterwards")]) == [None]


def _ended(tasks: dict[str, Any] | None) -> dict[str, Any]:
    found = tasks or {}
    return found if len(found) == 2 and all(task["state"] in {"SUCCESS", "FAILURE"} for task in found.values()) else {}
