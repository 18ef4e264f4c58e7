"""What tests of delivery look at: what became of a job's attempts, and when the model saw it again."""

from collections.abc import Iterable, Mapping

import redis

from tasks.result import GenerateResult
from tests.acceptance.fleet import KEYS, WorkerProcess
from tests.acceptance.gateway import dead_letters, settlements
from tests.clean import leftovers
from tests.waiting import wait_until
from tests.witness import Served, Witness

LEASE = 1.0
"""Short, so that tests are; it has to be longer than a stall of this machine's."""

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
    wait_until(lambda: witness.count() == jobs, description=f"{jobs} jobs run", timeout=15)


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
    assert dead_letters(client) == []
    return True


def settled_once(client: redis.Redis) -> Mapping[str, GenerateResult]:
    """All results so far by job_id; none is there twice."""
    found = settlements(client)
    assert {job_id: len(results) for job_id, results in found.items() if len(results) != 1} == {}
    return {job_id: results[0] for job_id, results in found.items()}
