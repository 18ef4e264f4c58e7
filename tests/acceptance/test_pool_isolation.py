"""A slow model with a long queue and a quick one share their workers and their GPU: the quick one never waits for the slow one.

How quick it is beside the slow one, and alone, is measured by ``python -m benchmarks.isolation``.
"""

from typing import Final

from tests.acceptance.fleet import KEYS, Client, Fleet, models
from tests.acceptance.gateway import push_jobs, wait_for_results
from tests.acceptance.pool import GPU, slots
from tests.jobs import job_json
from tests.waiting import wait_until
from tests.witness import Witness

SLOW: Final = "acme/slow"
QUICK: Final = "acme/quick"
BACKLOG: Final = 10_000


def test_a_quick_model_never_waits_for_a_slow_one(
    fleet: Fleet, valkey: Client, own_triton_url: str, own_witness: Witness
) -> None:
    """In neither worker: ten thousand jobs of the slow one wait, and take every slot of the pool but one; none of them has to end for a quick one to begin."""
    for n in range(2):
        fleet.start(
            worker_id=f"worker-{n}",
            runtime_endpoint=own_triton_url,
            gpu_pool={"name": GPU, "max_concurrency": 4},
            drain_seconds=0,
            until=(),
            **models(slow="text_generation", quick="text_generation"),
        )
    for worker in fleet.workers:
        worker.wait_until_state("ready", timeout=60)
    push_jobs(valkey, "first", model=QUICK, prompt="work")
    wait_for_results(valkey, "first")
    valkey.lpush(KEYS.jobs(SLOW), *(job_json(job_id=f"s-{n}", model=SLOW, prompt="sleep=60 x") for n in range(BACKLOG)))
    wait_until(lambda: own_witness.count() == 4, description="slow ones fill what they may have")
    for n in range(30):
        push_jobs(valkey, f"q-{n}", model=QUICK, prompt="work")
        wait_for_results(valkey, f"q-{n}")

    slow = [one for one in own_witness.served() if one.request_id.startswith("s-")]
    assert len(slow) == 3
    assert {one.finished_at for one in slow} == {None}
    assert len(slots(valkey)) == 3
    for worker in fleet.workers:
        worker.stop()
    valkey.delete(KEYS.jobs(SLOW))
