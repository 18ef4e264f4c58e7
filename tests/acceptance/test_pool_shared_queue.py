"""Two pools behind one queue: each takes what it has room for, so a full one holds nothing that the other could do."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from tests.acceptance.fleet import Client, Fleet, WorkerProcess, models
from tests.acceptance.gateway import push_jobs, wait_for_results
from tests.acceptance.holding import HoldingLine
from tests.acceptance.pool import at_its_best, names, seconds_of
from tests.waiting import wait_until
from tests.witness import Served, Witness
from worker.sandbox.triton_server import TritonServer

SHARED: Final = "acme/shared"
HOG: Final = "acme/hog"
SLOTS: Final = {"small": 2, "large": 4}
FAIR: Final = pytest.approx({"small": 1 / 3, "large": 2 / 3}, abs=0.1)


@pytest.fixture(scope="module")
def line(triton_server: TritonServer) -> Iterator[HoldingLine]:
    """The small pool's way to Triton."""
    with HoldingLine(triton_server.url) as line:
        yield line


@pytest.fixture(scope="module")
def pools(standing_fleet: Fleet, line: HoldingLine) -> dict[str, WorkerProcess]:
    """A worker of each pool; what both run they share, and the small one has a model of its own. Nothing is kept for it."""

    def start(name: str, endpoint: str, **served: str) -> WorkerProcess:
        pool: dict[str, Any] = {"name": name, "max_concurrency": SLOTS[name], "kept_slots": {SHARED: 0}}
        config = {"concurrency": 8, "runtime_endpoint": endpoint, "gpu_pool": pool, **models(**served)}
        return standing_fleet.start(worker_id=name, until=(), **config)

    started = {"small": start("small", line.http_url, shared="text_generation", hog="text_generation")}
    started["large"] = start("large", standing_fleet.endpoint, shared="text_generation")
    for worker in started.values():
        worker.wait_until_state("ready", timeout=60)
    return started


def test_the_throughput_of_two_pools_is_the_sum_of_both(
    pools: dict[str, WorkerProcess], valkey: Client, witness: Witness
) -> None:
    """Both are full as long as there are jobs, and each has its part of them."""
    jobs = names(180)
    push_jobs(valkey, *jobs, model=SHARED, prompt="sleep=0.1 work")
    results = wait_for_results(valkey, *jobs)

    assert witness.most_at_once() == sum(SLOTS.values())

    def rate(served: Sequence[Served]) -> float:
        """Return the share of the ideal that these had; nothing where one of the pools had too little a part in it."""
        parts = Counter(results[one.request_id.partition("/")[0]].worker_id for one in served)
        is_fair = {name: parts[name] / len(served) for name in pools} == FAIR
        return len(served) * 0.1 / sum(SLOTS.values()) / seconds_of(served) if is_fair else 0.0

    assert at_its_best(witness.served(), rate, 30) >= 0.5


def test_a_full_pool_holds_no_job_that_another_could_do(
    pools: dict[str, WorkerProcess], line: HoldingLine, valkey: Client, witness: Witness
) -> None:
    """Its worker has only what it runs; the other does all that waits, while the full one is at its own."""
    line.hold()
    push_jobs(valkey, "hog-1", "hog-2", model=HOG, prompt="work")
    wait_until(lambda: witness.count() == SLOTS["small"], description="the small pool is full")
    jobs = names(40)
    push_jobs(valkey, *jobs, model=SHARED, prompt="sleep=0.05 work")
    results = wait_for_results(valkey, *jobs)

    assert len(pools["small"].claims()) == SLOTS["small"]
    assert {result.worker_id for result in results.values()} == {"large"}
    others = [one for one in witness.served() if not one.request_id.startswith("hog")]
    ideal = 0.05 / SLOTS["large"]
    assert at_its_best(others, lambda served: len(served) * ideal / seconds_of(served), 12) >= 0.3
    line.let_go()
    wait_for_results(valkey, "hog-1", "hog-2")
