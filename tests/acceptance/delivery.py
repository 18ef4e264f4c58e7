"""What tests of delivery look at: what became of a job's attempts, and when the model saw it again."""

from collections.abc import Iterable, Mapping

import redis

from tasks import rfc3339
from tasks.result import GenerateResult
from tests.acceptance.fleet import KEYS, Client, WorkerProcess
from tests.acceptance.gateway import dead_letters, settlements
from tests.clean import leftovers
from tests.waiting import wait_until
from tests.witness import Served, Witness

LEASE = 3.0
"""Of workers that watch each other: longer than a busy machine stalls any of them, or a live one would rightly lose its jobs."""

LEASE_ALONE = 1.0
"""Of a worker beside which no other lives: nobody takes it for dead, however long it is stalled."""

LOOK_SECONDS = 0.5
"""How far apart the looks of a worker with ``LEASE`` are: it counts them in its lease."""

DETECTION_SECONDS = 1.5
"""How long after its lease a dead worker's jobs may take to run again."""


def attempt_codes(result: GenerateResult) -> list[str | None]:
    """The code of each attempt of a job, None for the one that succeeded."""
    return [None if attempt.code is None else attempt.code.value for attempt in result.attempts]


def runs_of(witness: Witness, job_id: str) -> list[Served]:
    """Every time that a job reached a model."""
    return [served for served in witness.served() if served.request_id.partition("/")[0] == job_id]


def held_by(worker: WorkerProcess) -> set[str]:
    """The job_ids that a worker's runs have claimed."""
    return {record.split(b"\n", 2)[1].decode() for record in worker.claims().values()}


def wait_until_busy(witness: Witness, jobs: int) -> None:
    """Return when so many inferences have begun since the witness was cleared."""
    wait_until(lambda: witness.count() >= jobs, description=f"{jobs} jobs run")


def counted(worker: WorkerProcess, name: str) -> int:
    """One of a worker's counters, once its health is there: it lapses while the worker is stalled."""
    return int(wait_for_health(worker, **{name: 0})[name])


def wait_until_paused(worker: WorkerProcess, model: str, reason: str) -> None:
    """Return when the health key says that a model is paused for this reason; it may have lapsed when it is looked at once."""
    paused = {"state": "paused", "reason": reason}
    wait_until(lambda: worker.model(model) == paused, description=f"{worker.worker_id} has paused {model} for {reason}")


def looks_of(worker: WorkerProcess) -> int:
    """How often a worker has renewed its lease and looked at the others', 0 while it has none."""
    lease: bytes | None = worker.client.hget(KEYS.leases, worker.worker_id)
    return 0 if lease is None else int(lease.split(b" ")[1])


def wait_for_looks(*workers: WorkerProcess, looks: int = 1) -> None:
    """Return when each worker has looked so often again: its own measure of time, which stands still while it is stalled."""
    goals = [looks_of(worker) + looks for worker in workers]
    wait_until(
        lambda: all(looks_of(worker) >= goal for worker, goal in zip(workers, goals, strict=True)),
        description=f"each worker has looked {looks} x more",
    )


def begun_at(result: GenerateResult) -> float:
    """When a job's last attempt began, in unix seconds: what Triton and the test are late by is not in it."""
    return rfc3339.to_ms(rfc3339.parse(result.attempts[-1].started_at)) / 1000


def settled_at(client: Client) -> dict[str, float]:
    """When each job was settled, in unix seconds by Redis' clock."""
    return {
        fields[b"job_id"].decode(): int(entry.partition(b"-")[0]) / 1000
        for entry, fields in client.xrange(KEYS.settlements)
    }


def wait_for_health(worker: WorkerProcess, **least: int) -> dict[str, str]:
    """Return the health key once each of these counters has reached its number."""

    def reached() -> dict[str, str]:
        health = worker.health()
        return health if all(int(health.get(name, "-1")) >= number for name, number in least.items()) else {}

    return wait_until(reached, description=f"{worker.worker_id} shows {least}")


def declared_dead(workers: Iterable[WorkerProcess]) -> list[str]:
    """The incarnations that any of these workers ended."""
    return [event["incarnation"] for worker in workers for event in worker.events("worker.declared_dead")]


def nothing_is_left(client: redis.Redis) -> bool:
    """Whether no job is anywhere, and no key but those that may stay."""
    assert leftovers(client) == []
    assert not client.exists(KEYS.running, KEYS.claimants, KEYS.waiting)
    assert not client.keys(KEYS.jobs("*"))
    assert not client.keys(KEYS.attempts("*"))
    assert not client.keys(KEYS.retried("*"))
    assert dead_letters(client) == []
    return True


def settled_once(client: redis.Redis) -> Mapping[str, GenerateResult]:
    """All results so far by job_id; none is there twice."""
    found = settlements(client)
    assert {job_id: len(results) for job_id, results in found.items() if len(results) != 1} == {}
    return {job_id: results[0] for job_id, results in found.items()}
