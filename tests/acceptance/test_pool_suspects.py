"""Two workers on one Triton: a job that kills the model's process is told from all that ran beside it, in either worker."""

import random
from collections import Counter
from typing import Final

import pytest

from tasks.errors import ErrorCode
from tests.acceptance.delivery import attempt_codes, nothing_is_left
from tests.acceptance.fleet import KEYS, Client, Fleet
from tests.acceptance.gateway import codes, push, push_jobs, result_of, wait_for_results
from tests.acceptance.reviving import revived
from tests.jobs import attempt, job_json
from tests.triton_http import revive
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer

CRASHED: Final = ErrorCode.RUNTIME_MODEL_CRASHED
INNOCENTS: Final = [f"innocent-{n}" for n in range(16)]


@pytest.fixture
def two(fleet: Fleet, own_triton: TritonServer) -> Fleet:
    """Two workers of one model."""
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
    return fleet


@pytest.mark.usefixtures("two")
def test_suspects_of_a_dead_model_run_one_at_a_time_over_all_workers(
    valkey: Client, own_triton: TritonServer, own_witness: Witness
) -> None:
    """Each was there at two crashes. The third convicts one job: none of the others is in the process's hands then."""
    names = ["killer", *INNOCENTS[:3]]
    for name in names:
        valkey.rpush(KEYS.attempts(name), *[attempt(CRASHED).model_dump_json()] * 2)
        valkey.expire(KEYS.attempts(name), 600)
    push_jobs(valkey, "killer", prompt="exit=0.5 now")
    push_jobs(valkey, *names[1:], prompt="sleep=0.1 innocent")
    assert codes([result_of(valkey, "killer")]) == [CRASHED]
    assert own_witness.prompts("faulty") == ["exit=0.5 now"]

    revive(own_triton.url, "faulty")
    results = wait_for_results(valkey, *names[1:], timeout=30)
    assert [attempt_codes(result) for result in results.values()] == [[CRASHED, CRASHED, None]] * 3
    assert own_witness.most_at_once() == 1 + 1  # The killer's end is never noted.
    assert nothing_is_left(valkey)


@pytest.mark.long
@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("seed", range(6))
def test_a_job_that_kills_its_models_process_is_told_from_those_of_other_workers(
    valkey: Client, own_triton: TritonServer, own_witness: Witness, seed: int
) -> None:
    """It ends runtime_model_crashed after max_attempts; all others succeed, though they were in the same process's hands."""
    order = [*INNOCENTS, "killer"]
    random.Random(seed).shuffle(order)
    with revived(own_triton.url, own_witness):
        prompts = {name: "exit" if name == "killer" else "sleep=0.05 innocent" for name in order}
        push(valkey, *(job_json(job_id=name, prompt=prompt) for name, prompt in prompts.items()))
        results = wait_for_results(valkey, *order, timeout=90)

    killer = results.pop("killer")
    assert codes([killer]) == [CRASHED]
    assert attempt_codes(killer) == [CRASHED] * 3
    assert Counter(codes(results.values())) == {None: len(INNOCENTS)}
    assert sum(served.prompt == "exit" for served in own_witness.served("faulty")) <= 3
    assert {result.worker_id for result in results.values()} == {"worker-0", "worker-1"}
    assert nothing_is_left(valkey)
