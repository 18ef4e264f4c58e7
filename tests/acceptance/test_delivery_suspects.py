"""A job that kills: it ends coded after as many kills as are allowed, and whoever merely stood beside it succeeds."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import redis

from tests.acceptance.delivery import LEASE, attempt_codes, nothing_is_left, settled_once, wait_until_busy
from tests.acceptance.fleet import KEYS, Fleet, WorkerProcess
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import (
    QUEUE,
    codes,
    dead_letters,
    push,
    push_jobs,
    queued,
    result_of,
    send_task,
    stock_producer,
    wait_for_results,
)
from tests.acceptance.reviving import revived
from tests.jobs import job_json
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer

INNOCENTS: Final = [f"innocent-{n}" for n in range(31)]


class Orchestrator:
    """Keeps two poisonable workers running, as what deploys workers does; ``deaths`` counts those that ended."""

    def __init__(self, fleet: Fleet, **config: Any) -> None:
        self.deaths = 0
        self._fleet = fleet
        self._config = {"concurrency": 4, "lease_seconds": LEASE, **config}
        self._workers = [self._started(n, until=("ready",)) for n in range(2)]

    def restart_until(self, client: redis.Redis, ended: int, timeout: float = 120.0) -> None:
        """Start whoever dies again, until so many jobs have ended in any way."""

        def all_ended() -> bool:
            for n, worker in enumerate(self._workers):
                if worker.process.poll() is not None:
                    assert worker.process.returncode == -9, worker.log.read_text()[-2000:]
                    self.deaths += 1
                    self._workers[n] = self._started(n)
            return client.xlen(KEYS.settlements) + client.xlen(KEYS.dead_letters) >= ended

        wait_until(all_ended, description=f"{ended} jobs have ended", timeout=timeout, interval=0.02)

    def _started(self, number: int, until: tuple[str, ...] = ()) -> WorkerProcess:
        return self._fleet.start(
            worker_id=f"worker-{number}",
            until=until,
            command=lambda path: ["python", "-m", "tests.acceptance.poisoned_worker", str(path)],
            **self._config,
        )


Send = Callable[[str, Mapping[str, str]], None]


def _bare(url: str, prompts: Mapping[str, str]) -> None:
    with redis.Redis.from_url(url) as client:
        push(client, *(job_json(job_id=job_id, prompt=prompt) for job_id, prompt in prompts.items()))


def _by_celery(url: str, prompts: Mapping[str, str]) -> None:
    with stock_producer(url) as producer:
        for job_id, prompt in prompts.items():
            send_task(producer, job_id, prompt=prompt)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("seed", "max_deliveries", "send"),
    [
        (1, 5, _bare),
        (2, 2, _by_celery),
        (3, 1, _bare),
        *(pytest.param(seed, 5, (_bare, _by_celery)[seed % 2], marks=pytest.mark.long) for seed in range(4, 21)),
    ],
)
def test_a_job_that_kills_its_worker_is_told_from_its_31_neighbours(
    fleet: Fleet, valkey: redis.Redis, redis_url: str, witness: Witness, seed: int, max_deliveries: int, send: Send
) -> None:
    """It kills as many workers as it may be delivered (one more than once, to see it alone), and all others succeed."""
    names = [*INNOCENTS, "killer"]
    random.Random(seed).shuffle(names)
    orchestrator = Orchestrator(fleet, max_deliveries=max_deliveries)
    send(redis_url, {it: "kill-worker" if it == "killer" else "sleep=0.1 innocent" for it in names})
    orchestrator.restart_until(valkey, len(names))

    results = settled_once(valkey)
    killer = results["killer"]
    assert killer.error is not None
    assert killer.error.code == "delivery_limit_exceeded"
    assert attempt_codes(killer) == ["worker_lost"] * max(2, max_deliveries)
    assert orchestrator.deaths == max(2, max_deliveries)
    assert Counter(codes(results[name] for name in INNOCENTS)) == {None: len(INNOCENTS)}
    assert all(attempt_codes(results[name])[-1] is None for name in INNOCENTS)
    assert not [served for served in witness.served() if served.prompt == "kill-worker"]
    assert nothing_is_left(valkey)


def test_bytes_that_kill_whoever_reads_them_become_a_dead_letter(fleet: Fleet, valkey: redis.Redis) -> None:
    """They have no job_id to be settled under: counted by their hash, they are put away unread, byte for byte."""
    raw = b"kill-reader \xff\x00"
    orchestrator = Orchestrator(fleet, max_deliveries=2)
    push(valkey, job_json(job_id="before"), raw, job_json(job_id="after"))
    orchestrator.restart_until(valkey, 3)

    (letter,) = dead_letters(valkey)
    assert (letter["reason"], letter["raw"], letter["queue"]) == (b"delivery_limit_exceeded", raw, QUEUE.encode())
    assert orchestrator.deaths == 2
    assert codes(wait_for_results(valkey, "before", "after").values()) == [None, None]
    assert not valkey.exists(KEYS.running, KEYS.claimants, KEYS.waiting)
    assert not valkey.keys(KEYS.attempts("*"))


def test_a_job_that_kills_its_models_process_is_told_from_its_neighbours(
    fleet: Fleet, valkey: redis.Redis, own_triton: TritonServer, own_witness: Witness
) -> None:
    """It ends runtime_model_crashed after max_attempts crashes; jobs that were in the same process's hands succeed."""
    fleet.start(
        runtime_endpoint=own_triton.url,
        runtime_config={"model_name": "faulty"},
        retry={"max_attempts": 3, "base_seconds": 0.3, "max_seconds": 0.6},
        concurrency=4,
    )
    names = [f"innocent-{n}" for n in range(12)]
    order = [*names[:5], "killer", *names[5:]]
    with revived(own_triton.url, own_witness):
        push(
            valkey,
            *(job_json(job_id=it, prompt="exit" if it == "killer" else "sleep=0.05 innocent") for it in order),
        )
        results = wait_for_results(valkey, *order, timeout=60)

    killer = results.pop("killer")
    assert codes([killer]) == ["runtime_model_crashed"]
    assert attempt_codes(killer) == ["runtime_model_crashed"] * 3
    assert Counter(codes(results.values())) == {None: len(names)}
    assert sum(served.prompt == "exit" for served in own_witness.served("faulty")) <= 3
    assert nothing_is_left(valkey)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("drains", [2, pytest.param(10, marks=pytest.mark.long)])
def test_a_job_that_drains_returned_is_never_given_up(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate, drains: int
) -> None:
    """However often: a drain is not the job's doing. Its ledger lists them all, and it succeeds at last."""
    limits: dict[str, Any] = {"max_deliveries": 1, "retry": {"max_attempts": 1}, "drain_seconds": 0}
    push_jobs(valkey, "drained", prompt=gate.prompt())
    for drain in range(drains):
        worker = fleet.start(**limits)
        wait_until_busy(witness, drain + 1)
        assert worker.stop() == 0
        assert queued(valkey) == ["drained"]
    gate.open()
    fleet.start(**limits)

    result = result_of(valkey, "drained")
    assert attempt_codes(result) == [*["drained"] * drains, None]
    started = [attempt.started_at for attempt in result.attempts]
    assert started == sorted(started)
    assert nothing_is_left(valkey)
