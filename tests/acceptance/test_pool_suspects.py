"""Two workers on one Triton: a job that kills the model's process is told from all that ran beside it, in either worker."""

import random
from collections import Counter

import pytest

from tests.acceptance.delivery import attempt_codes, nothing_is_left
from tests.acceptance.fleet import Client, Fleet
from tests.acceptance.gateway import codes, push, wait_for_results
from tests.acceptance.reviving import revived
from tests.jobs import job_json
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer

INNOCENTS = [f"innocent-{n}" for n in range(16)]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))])
def test_a_job_that_kills_its_models_process_is_told_from_those_of_other_workers(
    fleet: Fleet, valkey: Client, own_triton: TritonServer, own_witness: Witness, seed: int
) -> None:
    """It ends runtime_model_crashed after max_attempts; all others succeed, though they were in the same process's hands."""
    for n in range(2):
        fleet.start(
            worker_id=f"worker-{n}",
            until=(),
            runtime_endpoint=own_triton.url,
            runtime_config={"model_name": "faulty"},
            retry={"max_attempts": 3, "base_seconds": 0.3, "max_seconds": 0.6},
            concurrency=4,
        )
    for worker in fleet.workers:
        worker.wait_until_state("ready", timeout=60)
    order = [*INNOCENTS, "killer"]
    random.Random(seed).shuffle(order)
    with revived(own_triton.url, own_witness):
        prompts = {name: "exit" if name == "killer" else "sleep=0.05 innocent" for name in order}
        push(valkey, *(job_json(job_id=name, prompt=prompt) for name, prompt in prompts.items()))
        results = wait_for_results(valkey, *order, timeout=90)

    killer = results.pop("killer")
    assert codes([killer]) == ["runtime_model_crashed"]
    assert attempt_codes(killer) == ["runtime_model_crashed"] * 3
    assert Counter(codes(results.values())) == {None: len(INNOCENTS)}
    assert sum(served.prompt == "exit" for served in own_witness.served("faulty")) <= 3
    assert {result.worker_id for result in results.values()} == {"worker-0", "worker-1"}
    assert nothing_is_left(valkey)
