"""The stock Celery command runs the same worker; remote control reads, and changes nothing."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from celery.utils.nodenames import default_nodename

from tests.acceptance.delivery import wait_until_busy
from tests.acceptance.fleet import KEYS, Client, Ended, Fleet, WorkerProcess, models, run
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import codes, push_jobs, queued, result_of, send_task, stock_producer, wait_for_results
from tests.clean import leftovers
from tests.waiting import wait_until
from tests.witness import Witness

APP = ("celery", "-A", "worker.celery")

ANSWER_SECONDS: Final = 30
"""How long a command waits for its one answer, which ends the waiting: a worker on a busy machine may be stalled for seconds."""


@pytest.fixture(scope="module")
def config(standing_fleet: Fleet) -> Path:
    """The configuration that SPEEDINFER_CONFIG names for the worker and for each command."""
    return standing_fleet.write(standing_fleet.configuration(worker_id="by-celery", concurrency=8))


@pytest.fixture(scope="module")
def worker(standing_fleet: Fleet, config: Path) -> WorkerProcess:
    """A worker started by the command of the contract."""
    return standing_fleet.start(
        config=json.loads(config.read_text()),
        command=lambda _: [*APP, "worker", "-P", "gevent", "-c", "32"],
        environment={"SPEEDINFER_CONFIG": str(config)},
    )


@pytest.fixture(autouse=True)
def _alive(worker: WorkerProcess) -> Iterator[None]:
    worker.wait_until_state("ready")
    # A command is heard by those who listen at that moment.
    wait_until(worker.client.pubsub_numpat, description="the worker listens to commands")
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

    def reply(self, question: str) -> Any:
        """Ask with ``inspect --json``; return the one reply."""
        asked = ("--timeout", str(ANSWER_SECONDS), "--destination", default_nodename(""))
        ended = self("inspect", question, "--json", *asked)
        assert ended.code == 0, ended
        (reply,) = json.loads(ended.out).values()
        return reply

    def broadcast(self, *commands: str) -> dict[str, Any]:
        """Send commands from one process, as a program of the operator's may; return the one reply to each, or None."""
        words = (_BROADCAST, str(ANSWER_SECONDS), *commands)
        ended = run("python", "-c", *words, environment=self._environment)
        assert ended.code == 0, ended
        replies: dict[str, Any] = json.loads(ended.out)
        return replies


_BROADCAST: Final = """
import json, sys
from worker.celery import app
ids = {"revoke": {"task_id": "1"}, "terminate": {"signal": "KILL", "task_id": "1"}, "query_task": {"ids": ["1"]},
       "cancel_consumer": {"queue": "speedinfer:jobs:acme/model-1"},
       "rate_limit": {"task_name": "speedinfer.generate", "rate_limit": "1/h"}}
replies = {}
for name in sys.argv[2:]:
    answers = app.control.broadcast(name, arguments=ids.get(name, {}), reply=True, timeout=int(sys.argv[1]), limit=1)
    replies[name] = next(iter(answers[0].values())) if answers else None
print(json.dumps(replies))
"""


def test_the_stock_command_runs_jobs_with_its_own_concurrency(
    valkey: Client, redis_url: str, worker: WorkerProcess, witness: Witness, gate: Gate
) -> None:
    """Bare jobs and Celery's are settled; -c says how many run at once, and the health key shows it."""
    job_ids = [f"j-{n}" for n in range(40)]
    push_jobs(valkey, *job_ids, prompt=gate.prompt("together"))
    with stock_producer(redis_url) as producer:
        send_task(producer, "by-producer")
        wait_until_busy(witness, 32)
        worker.wait_for_beats(2)  # Time enough for one too many.
        assert witness.count() == 32
        gate.open()
        results = wait_for_results(valkey, *job_ids, "by-producer")

    assert codes(results.values()) == [None] * 41
    assert witness.most_at_once() == 32
    assert worker.wait_until_state("ready")["concurrency"] == "32"


@contextmanager
def job_that_runs(client: Client, gate: Gate, witness: Witness) -> Iterator[None]:
    """A job ``running`` whose prompt is secret, and that runs while the context lasts."""
    push_jobs(client, "running", prompt=gate.prompt("secret"))
    wait_until(lambda: witness.count() == 1, description="the job runs")
    try:
        yield
    finally:
        gate.open()


def test_the_stock_command_line_inspects_a_busy_worker(
    valkey: Client, worker: WorkerProcess, gate: Gate, witness: Witness, celery: Command
) -> None:
    """Ping, active and stats answer, and show a running job without its content."""
    with job_that_runs(valkey, gate, witness), ThreadPoolExecutor() as together:
        active, stats, pong = together.map(celery.reply, ("active", "stats", "ping"))

    assert pong == {"ok": "pong"}
    assert [job["name"] for job in active] == ["speedinfer.generate"]
    assert "secret" not in json.dumps(active)
    assert stats["pid"] == worker.pid
    assert "secret" not in json.dumps(stats)
    result_of(valkey, "running")


def test_remote_control_reads_and_refuses_what_changes(
    valkey: Client, worker: WorkerProcess, gate: Gate, witness: Witness, celery: Command
) -> None:
    """What reads answers without a job's content; shutdown, revoke and the like do nothing; no key stays behind."""
    reading = ("active", "registered", "active_queues", "conf", "report", "reserved", "revoked", "clock", "query_task")
    changing = ("shutdown", "revoke", "terminate", "pool_restart", "pool_shrink", "cancel_consumer", "rate_limit")
    with job_that_runs(valkey, gate, witness):
        replies = celery.broadcast(*reading, *changing)

    assert "secret" not in json.dumps(replies)
    assert [job["name"] for job in replies["active"]] == ["speedinfer.generate"]
    assert replies["registered"] == ["speedinfer.generate"]
    assert [queue["name"] for queue in replies["active_queues"]] == [KEYS.jobs("acme/model-1")]
    assert {name for name in reading if replies[name] is None or "error" in replies[name]} == set()
    assert {name for name in changing if "refused: " not in replies[name]["error"]} == set()
    assert codes([result_of(valkey, "running")]) == [None]
    push_jobs(valkey, "next")
    assert codes([result_of(valkey, "next")]) == [None]
    assert witness.count() == 2
    assert worker.wait_until_state("ready")["concurrency"] == "32"
    wait_until(lambda: not leftovers(valkey), description="no key stays behind")


def test_purge_takes_no_job_away(valkey: Client, fleet: Fleet) -> None:
    """Each job is owed a settlement: ``celery purge`` and ``queue.purge`` are refused, and ``queue.delete`` does nothing."""
    unserved = fleet.write(fleet.configuration(supported_models=["acme/unserved"]))
    push_jobs(valkey, "j-1", "j-2", model="acme/unserved")
    command = Command(unserved)

    purged = command("purge", "-f")
    by_name = command("amqp", "queue.purge", KEYS.jobs("acme/unserved"))
    deleted = command("amqp", "queue.delete", KEYS.jobs("acme/unserved"))

    assert purged.code != 0
    assert all("each job is owed a settlement" in ended.out + ended.err for ended in (purged, by_name))
    assert "None messages deleted." in deleted.out
    assert queued(valkey, "acme/unserved") == ["j-1", "j-2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-P", "solo"], "-P gevent"),
        (["-P", "gevent", "--time-limit", "3600"], "timeout_seconds bounds those"),
        (["-P", "gevent", "--autoscale", "8"], "without slots"),
        (["-P", "gevent", "-Q", KEYS.jobs("acme/other")], "supported_models says which"),
        (["-P", "gevent", "-X", KEYS.jobs("acme/unserved")], "supported_models says which"),
    ],
    ids=["another pool", "a time limit", "no slots", "some of the queues", "all queues but one"],
)
def test_what_would_leave_jobs_behind_is_refused(fleet: Fleet, valkey: Client, options: list[str], words: str) -> None:
    """It says why, takes no job and ends: greenlets that are killed tell nobody of their jobs, and closed queues are served by nobody."""
    push_jobs(valkey, "untouched", model="acme/unserved")
    served = models(unserved="text_generation", other="text_generation")
    other = fleet.write(fleet.configuration(worker_id="refused", **served))
    ended = run(*APP, "worker", *options, environment={"SPEEDINFER_CONFIG": str(other)})

    assert ended.code == 2
    assert words in ended.out + ended.err
    assert queued(valkey, "acme/unserved") == ["untouched"]
