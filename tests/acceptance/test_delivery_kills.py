"""A worker is killed: its jobs run again elsewhere within the lease and a second and a half, and each is settled once."""

import json
import time
from typing import Final

import pytest
import redis

from tests.acceptance.delivery import (
    DETECTION_SECONDS,
    LEASE,
    LEASE_ALONE,
    LOOK_SECONDS,
    attempt_codes,
    begun_at,
    held_by,
    looks_of,
    nothing_is_left,
    runs_of,
    settled_once,
    wait_for_health,
    wait_for_looks,
    wait_until_busy,
)
from tests.acceptance.fleet import KEYS, Fleet, WorkerProcess, models
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import QUEUE, codes, push_jobs, send_task, stock_producer, wait_for_results
from tests.jobs import job_json
from tests.waiting import wait_until
from tests.witness import Witness
from worker.keys import PRIORITIES

JOBS: Final = 20
URGENT_LIST: Final = QUEUE + PRIORITIES[2]


def start(fleet: Fleet, worker_id: str) -> WorkerProcess:
    """A worker that takes half of the jobs."""
    # What a killed worker had started keeps its slots until its timeout; here they are in nobody's way.
    pool = {"max_concurrency": 4096}
    return fleet.start(worker_id=worker_id, concurrency=JOBS // 2, lease_seconds=LEASE, gpu_pool=pool)


def kill_one_of_two(
    client: redis.Redis, witness: Witness, gate: Gate, victim: WorkerProcess, survivor: WorkerProcess, names: list[str]
) -> list[float]:
    """Kill a worker with half of these jobs in its hands; return the seconds to each re-run once all is as promised."""
    witness.clear()
    push_jobs(client, *names, prompt=gate.prompt())
    wait_until_busy(witness, JOBS)
    lost = held_by(victim)
    wait_for_looks(victim)  # Its lease stands still from here on, and not since a stall of before.
    looks = [(time.time(), looks_of(survivor))]
    killed, _ = looks[0]
    victim.kill()
    gate.answer(*witness.served())

    def have_run_again() -> bool:
        looks.append((time.time(), looks_of(survivor)))
        return all(len(runs_of(witness, name)) == 2 for name in lost)

    wait_until(have_run_again, description="its jobs run again")
    gate.answer(*witness.served())
    results = wait_for_results(client, *names)
    assert codes(results.values()) == [None] * JOBS
    assert len(lost) == JOBS // 2
    for name, result in results.items():
        assert attempt_codes(result) == (["worker_lost", None] if name in lost else [None])
        assert [attempt.worker_id for attempt in result.attempts][: len(result.attempts) - 1] == (
            [victim.worker_id] if name in lost else []
        )
        assert len(runs_of(witness, name)) == len(result.attempts)
    # By the survivor's own measure: while it is stalled it looks no more, and nothing can be promised of it.
    last = max(begun_at(results[name]) for name in lost)
    looked = max(count for at, count in looks if at <= max(last, killed)) - looks[0][1]
    assert looked * LOOK_SECONDS < LEASE + DETECTION_SECONDS
    return [begun_at(results[name]) - killed for name in lost]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.long)])
def test_jobs_of_a_killed_worker_run_again_soon_and_are_settled_once(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate, kills: int
) -> None:
    """One of two workers gets a kill -9, again and again: never before the lease is over, and never long after."""
    workers, slowest = [start(fleet, "first"), start(fleet, "second")], []
    for kill in range(kills):
        names = [f"k{kill}-{n}" for n in range(JOBS)]
        victim, survivor = workers[kill % 2], workers[(kill + 1) % 2]
        again = kill_one_of_two(valkey, witness, gate, victim, survivor, names)
        assert min(again) > LEASE * 0.5
        slowest.append(max(again))
        assert len(survivor.events("worker.declared_dead")) == 1
        # The lease was ended with the jobs' return, so the same id begins at once.
        workers[kill % 2] = start(fleet, victim.worker_id)

    # By the clock too, where no stall came between.
    assert min(slowest) < LEASE + DETECTION_SECONDS
    assert len(settled_once(valkey)) == kills * JOBS
    assert nothing_is_left(valkey)


@pytest.mark.leaves("/_kombu.binding.*")
def test_jobs_of_a_killed_worker_are_next_in_line_in_their_old_order(
    fleet: Fleet, valkey: redis.Redis, redis_url: str, witness: Witness, gate: Gate
) -> None:
    """Whoever ends the dead run, here one that serves another model, puts each job back to the list it came from."""
    victim = start(fleet, "victim")
    names = [f"lost-{n}" for n in range(4)]
    push_jobs(valkey, *names, prompt=gate.prompt())
    wait_until_busy(witness, 4)
    valkey.lpush(URGENT_LIST, job_json(job_id="urgent", prompt=gate.prompt()))
    with stock_producer(redis_url) as producer:
        send_task(producer, "by-celery", prompt=gate.prompt())
    wait_until_busy(witness, 6)
    victim.kill()
    push_jobs(valkey, "behind")

    other = fleet.start(worker_id="other", lease_seconds=LEASE_ALONE, **models(other="text_generation"))
    wait_for_health(other, claims_reaped_total=6)
    bare = [raw for raw in reversed(valkey.lrange(QUEUE, 0, -1)) if b'"job_id"' in raw]
    assert [json.loads(raw)["job_id"] for raw in bare] == [*names, "behind"]
    assert valkey.llen(QUEUE) == 6
    assert [json.loads(raw)["job_id"] for raw in valkey.lrange(URGENT_LIST, 0, -1)] == ["urgent"]
    lost = json.loads(valkey.lrange(KEYS.attempts("by-celery"), 0, -1)[0])
    assert (lost["worker_id"], lost["code"]) == ("victim", "worker_lost")
    assert not valkey.exists(KEYS.running, KEYS.claimants)


def test_the_only_worker_killed_leaves_its_jobs_to_the_next_that_comes(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """Nobody watched when it died. The same worker_id begins once the lease has stood still, and does those jobs first."""
    only = fleet.start(worker_id="only", concurrency=1, lease_seconds=LEASE_ALONE)
    push_jobs(valkey, "lost", prompt=gate.prompt())
    wait_until_busy(witness, 1)
    push_jobs(valkey, "behind", prompt="work")
    only.kill()
    gate.open()

    started = time.monotonic()
    again = fleet.start(worker_id="only", concurrency=1, lease_seconds=LEASE_ALONE)
    assert again.events("lease.was_awaited")
    assert time.monotonic() - started > LEASE_ALONE
    results = wait_for_results(valkey, "lost", "behind")
    assert [attempt_codes(result) for result in results.values()] == [["worker_lost", None], [None]]
    assert [served.request_id.partition("/")[0] for served in witness.served()] == ["lost", "lost", "behind"]
    assert nothing_is_left(valkey)
