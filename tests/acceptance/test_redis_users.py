"""One user a role (deploy/redis/users.acl): each can do its work, by our own commands and workers, and nothing else."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleet import KEYS, Fleet, WorkerProcess, run
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import QUEUE, push, push_jobs, send_task, stock_producer, wait_for_results
from tests.acceptance.pinging import wait_until_pinged
from tests.guarded import Guarded, guarded_valkey, password
from tests.integration.command import lines, objects
from tests.integration.command import run as command
from tests.jobs import MODEL
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The module's Valkey, in which only the roles' users are."""
    with guarded_valkey(tmp_path_factory.mktemp("acl")) as running:
        yield running


@pytest.fixture
def users(guarded: Guarded) -> Guarded:
    """The same, empty and with nothing denied yet."""
    guarded.admin.flushall()
    guarded.admin.acl_log_reset()
    return guarded


@pytest.fixture(scope="module")
def fleet(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory, triton_server: TritonServer) -> Iterator[Fleet]:
    """Workers as their role; the tests' own looks are an administrator's."""
    url = guarded.url("worker")
    with Fleet(tmp_path_factory.mktemp("fleet"), triton_server.url, url) as workers:
        workers.clients[url] = guarded.admin
        yield workers


@pytest.fixture(scope="module")
def standing(fleet: Fleet) -> WorkerProcess:
    """One worker for the tests that need no other; the server is emptied under it."""
    return start(fleet, "standing")


@pytest.fixture
def worker(standing: WorkerProcess, users: Guarded) -> WorkerProcess:  # noqa: ARG001 - emptied before it is looked at
    """The same, once it has shown itself again."""
    standing.wait_until_state("ready")
    return standing


def start(fleet: Fleet, worker_id: str = "triton-01", **changes: Any) -> WorkerProcess:
    """Start a worker as its role."""
    return fleet.start(worker_id=worker_id, redis_password=password("worker"), **changes)


def test_a_worker_can_do_all_that_becomes_of_jobs(users: Guarded, fleet: Fleet, witness: Witness, gate: Gate) -> None:
    """Settle, fail, retry, bury, drop duplicates, cancel, give back, and take over from one that died: nothing is denied."""
    models: dict[str, Any] = {
        "supported_models": [MODEL, "acme/faulty"],
        "models": {"acme/faulty": {"model_name": "faulty"}},
    }
    first = start(fleet, lease_seconds=1.0, **models)
    gateway = users.client("gateway")
    gateway.set(KEYS.cancel("cancelled"), 1, ex=60)
    push_jobs(gateway, "ok", "ok", "cancelled")
    push_jobs(gateway, "fails", model="acme/faulty", prompt="raise=boom")
    push(gateway, b"no job")
    with stock_producer(users.secret_url("gateway")) as producer:
        send_task(producer, "by-celery")
    wait_for_results(users.admin, "ok", "cancelled", "fails", "by-celery")
    push_jobs(gateway, "orphan", prompt=gate.prompt("taken over"))
    wait_until(lambda: gate.prompt("taken over") in witness.prompts(), description="it runs")
    first.kill()
    gate.answer(*witness.served())
    second = start(fleet, "triton-02", lease_seconds=1.0, **models)
    wait_until(lambda: witness.prompts().count(gate.prompt("taken over")) == 2, description="it runs again")
    gate.answer(*witness.served())
    wait_for_results(users.admin, "orphan")
    push_jobs(gateway, "returned", prompt=gate.prompt("given back"))
    wait_until(
        lambda: gate.prompt("given back") in witness.prompts(),
        description="it runs: what was only claimed goes back at once",
    )
    second.signal(signal.SIGTERM)
    wait_until(lambda: second.health().get("state") == "draining", description="it drains")
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    assert users.admin.llen(QUEUE) == 1
    assert users.denied() == []


@pytest.mark.usefixtures("worker")
def test_a_gateway_submits_and_follows_its_own_jobs(users: Guarded, tmp_path: Path) -> None:
    """With ``submit``; with ``batch`` as another user, since that one has to look for its jobs among the dead letters."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "one", "max_tokens": 2}\n{"prompt": "two", "max_tokens": 2}\n')
    output = tmp_path / "results.jsonl"
    assert lines(command("submit", "hello", "--model", MODEL, "--wait", "--no-json", **users.environment("gateway")))
    batch = command("batch", str(prompts), "--model", MODEL, "--output", str(output), **users.environment("batch"))
    assert batch.exit_code == 0, batch.output
    assert len(output.read_text().splitlines()) == 2
    assert users.denied() == []


def test_an_operators_commands_work(users: Guarded, fleet: Fleet, worker: WorkerProcess) -> None:
    """Looking at everything, pausing, putting back, and Celery's remote control."""
    push(users.client("gateway"), b"no job")
    wait_until(lambda: users.admin.xlen(KEYS.dead_letters), description="a dead letter")
    access = users.environment("operator")
    (letter,) = objects(command("dead-letters", "list", **access))
    for words in (
        ("status",),
        ("status", "--claims"),
        ("settlements",),
        ("settlements", "groups"),
        ("models", "pause", MODEL, "--reason", "a test"),
        ("models", "resume", MODEL),
        ("models", "circuit", "open", MODEL, "--reason", "a test"),
        ("models", "circuit", "auto", MODEL),
        ("dead-letters", "show", letter["id"]),
        ("dead-letters", "replay", letter["id"]),
    ):
        ended = command(*words, **access)
        assert ended.exit_code == 0, (words, ended.output)
    access = {"redis_url": users.url("operator"), "redis_password": password("operator")}
    config = fleet.write({**worker.config, **access})
    check = run("speedinfer", "check", "--json", "--config", str(config))
    assert json.loads(check.out)["ok"], check
    wait_until_pinged(config)
    assert users.denied() == []


def test_a_worker_says_why_it_waits_for_redis(users: Guarded, fleet: Fleet) -> None:
    """A wrong password is waited out, since it may be mended there; the log says where to look, without the password."""
    worker = fleet.start(redis_password="a-wrong-one", until=())
    event = worker.wait_for_event("redis.was_awaited")
    assert "refuses the user or password: put valid ones into redis_url and redis_password" in event["reason"]
    users.admin.execute_command("ACL", "SETUSER", "speedinfer-worker", ">a-wrong-one")
    worker.wait_until_state("ready")
    assert "a-wrong-one" not in worker.log.read_text()


@pytest.mark.long
def test_a_worker_without_its_rights_waits_and_says_so(users: Guarded, fleet: Fleet) -> None:
    """It does not end, since the rights may be mended there, and says what it lacks."""
    url = users.url("gateway")
    fleet.clients[url] = users.admin
    worker = fleet.start(redis_url=url, redis_password=password("gateway"), until=())
    event = worker.wait_for_event("redis.was_awaited")
    assert "give it the rights of its role (deploy/redis/users.acl)" in event["reason"]
    assert worker.stop() == 0
