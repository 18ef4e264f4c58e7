"""Two pools behind one queue: each takes what it has room for, so a full one holds nothing that the other could do."""

from collections import Counter
from typing import Any, Final

import pytest

from tests.acceptance.fleet import Client, Fleet, WorkerProcess, models
from tests.acceptance.gateway import push_jobs, wait_for_results
from tests.acceptance.pool import names, seconds_of
from tests.waiting import wait_until
from tests.witness import Served, Witness

SHARED: Final = "acme/shared"
HOG: Final = "acme/hog"
SLOTS: Final = {"small": 2, "large": 4}


@pytest.fixture(scope="module")
def pools(standing_fleet: Fleet) -> dict[str, WorkerProcess]:
    """A worker of each pool; what both run they share, and the small one has a model of its own. Nothing is kept for it."""

    def start(name: str, **served: str) -> WorkerProcess:
        pool: dict[str, Any] = {"name": name, "max_concurrency": SLOTS[name], "kept_slots": {SHARED: 0}}
        config = {"concurrency": 8, "gpu_pool": pool, **models(**served)}
        return standing_fleet.start(worker_id=name, until=(), **config)

    started = {"small": start("small", shared="text_generation", hog="text_generation")}
    started["large"] = start("large", shared="text_generation")
    for worker in started.values():
        worker.wait_until_state("ready", timeout=60)
    return started


def test_the_throughput_of_two_pools_is_the_sum_of_both(
    pools: dict[str, WorkerProcess], valkey: Client, witness: Witness
) -> None:
    """Both are full as long as there are jobs, and each has its part of them."""
    jobs = names(90)
    push_jobs(valkey, *jobs, model=SHARED, prompt="sleep=0.1 work")
    results = wait_for_results(valkey, *jobs)

    assert witness.most_at_once() == sum(SLOTS.values())
    parts = Counter(result.worker_id for result in results.values())
    assert {name: parts[name] / len(jobs) for name in pools} == pytest.approx({"small": 1 / 3, "large": 2 / 3}, abs=0.1)
    assert len(jobs) * 0.1 / sum(SLOTS.values()) >= 0.5 * seconds_of(witness.served())


def test_a_full_pool_holds_no_job_that_another_could_do(
    pools: dict[str, WorkerProcess], valkey: Client, witness: Witness
) -> None:
    """Its worker has only what it runs; the other does all that waits, while the full one is at its own."""
    push_jobs(valkey, "hog-1", "hog-2", model=HOG, prompt="sleep=2.5 work")
    wait_until(lambda: witness.count() == SLOTS["small"], description="the small pool is full")
    jobs = names(40)
    push_jobs(valkey, *jobs, model=SHARED, prompt="sleep=0.05 work")
    results = wait_for_results(valkey, *jobs)

    assert len(pools["small"].claims()) == SLOTS["small"]
    assert {result.worker_id for result in results.values()} == {"large"}
    hogs, others = split(witness.served())
    assert [hog.finished_at for hog in hogs] == [None] * SLOTS["small"]
    assert len(jobs) * 0.05 / SLOTS["large"] >= 0.3 * seconds_of(others)
    wait_for_results(valkey, "hog-1", "hog-2")


def split(served: list[Served]) -> tuple[list[Served], list[Served]]:
    """Return the inferences of hogs, and the others."""
    hogs = [one for one in served if one.request_id.startswith("hog")]
    return hogs, [one for one in served if one not in hogs]
