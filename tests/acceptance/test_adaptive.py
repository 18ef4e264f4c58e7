"""An adaptive pool finds what a real Triton takes: where full queues end, and again when it takes more."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import pytest

from tasks.usage import Usage
from tests.acceptance.delivery import wait_for_health
from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess
from tests.acceptance.gateway import QUEUE, codes, push_jobs, wait_for_results
from tests.conftest import MODELS
from tests.triton_http import call
from tests.waiting import wait_until
from worker.adaptive import FALLS_ABOVE
from worker.sandbox.triton_server import TritonServer

GPU: Final = "gpu"
MOST: Final = 32
JOB_SECONDS: Final = 0.1


@pytest.fixture
def small_triton() -> Iterator[TritonServer]:
    """A Triton whose model runs one inference at a time, and has room for one more."""
    with TritonServer(MODELS, control="explicit", models=["queue_full"], metrics=True) as server:
        yield server


def enlarge(triton: TritonServer, *, instances: int) -> None:
    """Load the model again, to run so many inferences at a time and to let any number wait."""
    config: dict[str, Any] = call(triton.url, "GET", "/v2/models/queue_full/config")
    config["dynamic_batching"]["default_queue_policy"]["max_queue_size"] = 0
    config["instance_group"] = [{"kind": "KIND_CPU", "count": instances}]
    body = {"parameters": {"config": json.dumps(config)}}
    call(triton.url, "POST", "/v2/repository/models/queue_full/load", body)


def fields_of(client: Client) -> dict[str, str]:
    """What the pool's key says."""
    return {name.decode(): value.decode() for name, value in client.hgetall(KEYS.pool(GPU)).items()}


def has_tried_in_vain(client: Client) -> bool:
    """Whether the level has tried once more what was too much, and has fallen back to what there is room for."""
    fields = fields_of(client)
    level = int(fields.get("level") or 0)
    return int(fields.get("level_failed") or 0) >= 1 and level < int(fields["level_ceiling"]) and level <= 3


def grown_level(client: Client, instances: int) -> int:
    """Return the level once it has risen to where it stays, or falls, for its answers; 0 before. A stall makes answers slow too."""
    fields = fields_of(client)
    level = int(fields["level"])
    has_grown = fields["level_reason"] == "slow" or 8 <= level == int(fields["level_proven"])
    return level if has_grown and level >= instances else 0


def level_that_is_slow(client: Client, tokens: int, instances: int) -> float:
    """Return from which level on answers take too long, by what the pool takes for the shortest time of a job."""
    known_ms = [float(ms) * tokens for ms in client.hgetall(KEYS.pool_paces(GPU)).values()]
    return FALLS_ABOVE * max(known_ms, default=inf) / 1000 / JOB_SECONDS * instances


@dataclass
class Jobs:
    """Jobs that do not run out; ``names`` are those so far."""

    client: Client
    names: list[str] = field(default_factory=list)

    def are_there(self) -> bool:
        """Push as many as there have to be for none to run out; always true."""
        missing = MOST - self.client.llen(QUEUE)
        more = [f"j-{len(self.names) + n}" for n in range(missing)]
        push_jobs(self.client, *more, prompt=f"sleep={JOB_SECONDS} work")
        self.names += more
        return True


def returned(workers: list[WorkerProcess]) -> int:
    """How many jobs met a full queue, and went back."""
    return sum(int(wait_for_health(worker, returned_total=0)["returned_total"]) for worker in workers)


def test_the_level_settles_where_full_queues_end_and_rises_when_triton_takes_more(
    fleet: Fleet, small_triton: TritonServer, valkey: Client
) -> None:
    """Hardly a job is turned away, and none is lost; where any number may wait, it ends where answers would become slow."""
    config: dict[str, Any] = {
        "runtime_endpoint": small_triton.url,
        "triton_metrics_url": small_triton.metrics_url,
        "runtime_config": {"model_name": "queue_full"},
        "gpu_pool": {"name": GPU, "max_concurrency": MOST, "adaptive": True},
        "concurrency": MOST,
    }
    workers = [fleet.start(worker_id=f"worker-{n}", until=(), **config) for n in range(2)]
    for worker in workers:
        worker.wait_until_state("ready")
    jobs = Jobs(valkey)

    wait_until(lambda: jobs.are_there() and has_tried_in_vain(valkey), description="the level has settled")
    assert returned(workers) <= 20

    enlarge(small_triton, instances=4)
    before = returned(workers)
    level = wait_until(
        lambda: jobs.are_there() and grown_level(valkey, 4),
        description="the level has found what is there, and where answers become slow",
    )
    assert returned(workers) - before <= 5
    results = wait_for_results(valkey, *jobs.names)
    (tokens,) = {result.usage.completion_tokens for result in results.values() if isinstance(result.usage, Usage)}
    assert level < level_that_is_slow(valkey, tokens, 4)
    assert set(codes(results.values())) == {None}
    assert {result.worker_id for result in results.values()} == {"worker-0", "worker-1"}
