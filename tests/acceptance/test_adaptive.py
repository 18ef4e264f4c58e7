"""An adaptive pool finds what a real Triton takes: where full queues end, and again when it takes more."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess
from tests.acceptance.gateway import QUEUE, codes, push_jobs, wait_for_results
from tests.conftest import MODELS
from tests.triton_http import call
from tests.waiting import wait_until
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
    """Whether the level has tried once more what was too much, and has fallen back."""
    fields = fields_of(client)
    return int(fields.get("level_failed") or 0) >= 1 and int(fields["level"]) < int(fields["level_ceiling"])


def has_grown(client: Client) -> bool:
    """Whether the level has risen to where it stays, or falls, for its answers."""
    fields = fields_of(client)
    return fields["level_reason"] == "slow" or 8 <= int(fields["level"]) == int(fields["level_proven"])


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
    return sum(int(worker.health()["returned_total"]) for worker in workers)


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
        worker.wait_until_state("ready", timeout=30)
    jobs = Jobs(valkey)

    wait_until(lambda: jobs.are_there() and has_tried_in_vain(valkey), description="the level has settled", timeout=30)
    assert int(fields_of(valkey)["level"]) <= 3
    assert returned(workers) <= 20

    enlarge(small_triton, instances=4)
    before = returned(workers)
    wait_until(
        lambda: jobs.are_there() and has_grown(valkey),
        description="the level has found what is there, and where answers become slow",
        timeout=30,
    )
    assert 4 <= int(fields_of(valkey)["level"]) <= 16
    assert returned(workers) - before <= 5
    results = wait_for_results(valkey, *jobs.names, timeout=30)
    assert set(codes(results.values())) == {None}
    assert {result.worker_id for result in results.values()} == {"worker-0", "worker-1"}
