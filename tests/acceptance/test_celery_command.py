"""The stock Celery command runs the same worker; remote control reads, and changes nothing."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.acceptance.fleet import KEYS, Ended, Fleet, WorkerProcess, run
from tests.acceptance.gateway import codes, push_jobs, queued, result_of, send_task, stock_producer, wait_for_results
from tests.clean import leftovers
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

APP = ("celery", "-A", "worker.celery")


@pytest.fixture(scope="module")
def config(standing_fleet: Fleet) -> Path:
    """The configuration that SPEEDINFER_CONFIG names for the worker and for each command."""
    return standing_fleet.write(standing_fleet.configuration(worker_id="by-celery", concurrency=8))


@pytest.fixture(scope="module")
def worker(
    standing_fleet: Fleet, config: Path, triton_server: TritonServer, valkey_server: ValkeyServer
) -> WorkerProcess:
    """A worker started by the command of the contract."""
    return standing_fleet.start(
        config=json.loads(config.read_text()),
        command=lambda _: [*APP, "worker", "-P", "gevent", "-c", "32"],
        environment={"SPEEDINFER_CONFIG": str(config)},
    )


@pytest.fixture(autouse=True)
def _alive(worker: WorkerProcess, valkey: redis.Redis) -> Iterator[None]:
    worker.wait_until_state("ready")
    yield
    assert worker.process.poll() is None


@pytest.fixture
def celery(config: Path) -> "Command":
    """Runs a subcommand of the stock command line."""
    return Command(config)


class Command:
    """``celery -A worker.celery …``."""

    def __init__(self, config: Path) -> None:
        self._environment = {"SPEEDINFER_CONFIG": str(config)}

    def __call__(self, *words: str) -> Ended:
        """Run it to its end."""
        return run(*APP, *words, environment=self._environment)

    def replies(self, *words: str) -> dict[str, object]:
        """Run it with ``--json``; return the reply of each worker."""
        ended = self(*words, "--json", "--timeout", "0.5")
        assert ended.code == 0, ended
        replies: dict[str, object] = json.loads(ended.out)
        return replies


def test_the_stock_command_runs_jobs_with_its_own_concurrency(
    valkey: redis.Redis, redis_url: str, worker: WorkerProcess, witness: Witness
) -> None:
    """Bare jobs and Celery's are settled; -c says how many run at once, and the health key shows it."""
    job_ids = [f"j-{n}" for n in range(40)]
    push_jobs(valkey, *job_ids, prompt="sleep=0.5 together")
    with stock_producer(redis_url) as producer:
        send_task(producer, "by-producer")
        results = wait_for_results(valkey, *job_ids, "by-producer")

    assert codes(results.values()) == [None] * 41
    assert witness.most_at_once() == 32
    assert worker.health()["concurrency"] == "32"


def test_remote_control_answers_what_reads(
    valkey: redis.Redis, worker: WorkerProcess, witness: Witness, celery: Command
) -> None:
    """inspect and ping answer, show running jobs without their content, and leave no key that stays."""
    push_jobs(valkey, "running", prompt="sleep=5 secret")
    wait_until(lambda: witness.count() == 1, description="the job runs")

    (active,) = celery.replies("inspect", "active").values()
    assert isinstance(active, list)
    assert [job["name"] for job in active] == ["speedinfer.generate"]
    assert "secret" not in json.dumps(active)
    (conf,) = celery.replies("inspect", "conf").values()
    assert "secret" not in json.dumps(conf)
    report = celery("inspect", "report", "--timeout", "0.5")
    assert report.code == 0, report
    assert "secret" not in report.out
    (pong,) = celery.replies("inspect", "ping").values()
    assert pong == {"ok": "pong"}
    (stats,) = celery.replies("inspect", "stats").values()
    assert isinstance(stats, dict)
    assert stats["pid"] == worker.pid
    (registered,) = celery.replies("inspect", "registered").values()
    assert registered == ["speedinfer.generate"]
    (queues,) = celery.replies("inspect", "active_queues").values()
    assert isinstance(queues, list)
    assert [queue["name"] for queue in queues] == [KEYS.jobs("acme/model-1")]
    assert celery("status").code == 0

    result_of(valkey, "running")
    assert leftovers(valkey) == []


def test_remote_control_refuses_what_changes(
    valkey: redis.Redis, worker: WorkerProcess, witness: Witness, celery: Command
) -> None:
    """shutdown, revoke, pool changes and the like do nothing: the job goes on, and so does the worker."""
    push_jobs(valkey, "running", prompt="sleep=6 goes on")
    wait_until(lambda: witness.count() == 1, description="the job runs")
    (active,) = celery.replies("inspect", "active").values()
    assert isinstance(active, list)
    commands = [
        ("control", "shutdown"),
        ("control", "revoke", active[0]["id"]),
        ("control", "terminate", "SIGKILL", active[0]["id"]),
        ("control", "pool_restart"),
        ("control", "pool_shrink", "31"),
        ("control", "cancel_consumer", KEYS.jobs("acme/model-1")),
        ("control", "rate_limit", "speedinfer.generate", "1/h"),
    ]
    code = (
        "import sys, json; from worker.celery import app\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    reply = app.control.broadcast(words[0], arguments={}, reply=True, timeout=0.3)\n"
        "    print(json.dumps(reply))\n"
    )
    ended = run(
        "python", "-c", code, json.dumps([words[1:] for words in commands]), environment=celery._environment, timeout=60
    )
    assert ended.code == 0, ended
    assert not re.search(r'"ok"', ended.out), ended.out

    assert codes([result_of(valkey, "running")]) == [None]
    push_jobs(valkey, "next")
    assert codes([result_of(valkey, "next")]) == [None]
    assert witness.count() == 2
    assert int(worker.health()["concurrency"]) == 32


def test_purge_takes_no_job_away(valkey: redis.Redis, celery: Command, fleet: Fleet) -> None:
    """Each job is owed a settlement: ``celery purge`` and ``queue purge`` leave the queue as it is."""
    valkey.sadd("speedinfer:paused", "not-a-job")
    unserved = fleet.write(fleet.configuration(supported_models=["acme/unserved"]))
    push_jobs(valkey, "j-1", "j-2", model="acme/unserved")
    command = Command(unserved)

    command("purge", "-f")
    command("amqp", "queue.purge", KEYS.jobs("acme/unserved"))
    command("amqp", "queue.delete", KEYS.jobs("acme/unserved"))

    assert queued(valkey, "acme/unserved") == ["j-1", "j-2"]


def test_another_pool_than_gevents_is_refused(fleet: Fleet, config: Path, valkey: redis.Redis) -> None:
    """The worker runs on greenlets: started otherwise it says so, takes no job and ends."""
    push_jobs(valkey, "untouched", model="acme/unserved")
    other = fleet.write(fleet.configuration(worker_id="threads", supported_models=["acme/unserved"]))
    ended = run(*APP, "worker", "-P", "solo", environment={"SPEEDINFER_CONFIG": str(other)})

    assert ended.code != 0
    assert "-P gevent" in ended.out + ended.err
    assert queued(valkey, "acme/unserved") == ["untouched"]
