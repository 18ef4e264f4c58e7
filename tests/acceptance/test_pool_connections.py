"""What is not heard of any more keeps its slot, since its inference goes on; and gives it back as soon as that must be over."""

import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tasks.errors import ErrorCode
from tests.acceptance.delivery import attempt_codes, wait_until_busy
from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess
from tests.acceptance.gateway import codes, push_jobs, queued, result_of
from tests.acceptance.holding import HoldingLine
from tests.acceptance.pool import GPU, slots, wait_until_slots
from tests.jobs import attempt
from tests.triton_http import revive
from tests.waiting import wait_until
from tests.witness import Witness
from worker.ledger_terms import PoolTerms
from worker.pool import Pool
from worker.redis_link import RedisLink
from worker.sandbox.triton_server import TritonServer
from worker.watch import SECONDS_BETWEEN

AT_ONCE_SECONDS: Final = 0.7 * SECONDS_BETWEEN
"""What comes sooner than this after a periodic look was not found by the next one, which is at least 0.75 of SECONDS_BETWEEN later."""

LEASE: Final = 3.0
"""Longer than a stall of a worker that is not meant to be dead."""


@pytest.fixture
def line(own_triton: TritonServer) -> Iterator[HoldingLine]:
    """The workers' way to Triton, which a test can hold and cut."""
    with HoldingLine(own_triton.url) as line:
        yield line


def start(fleet: Fleet, name: str, endpoint: str, limit: int, model: str, **config: Any) -> WorkerProcess:
    """Start a worker whose inferences may take a minute, so that no slot lapses in a test."""
    return fleet.start(
        worker_id=name,
        runtime_endpoint=endpoint,
        endpoint_id="triton",
        gpu_pool={"name": GPU, "max_concurrency": limit},
        runtime_config={"model_name": model, "timeout_seconds": 60},
        **config,
    )


def lose_one(valkey: Client, line: HoldingLine, witness: Witness) -> str:
    """Let the connection of an inference be lost; return its slot once it has ended, unheard. Answers stay held."""
    line.hold()
    push_jobs(valkey, "lost", prompt="sleep=0.3 work")
    wait_until_busy(witness, 1)
    (slot,) = slots(valkey)
    line.cut()
    wait_until(lambda: witness.served()[0].finished_at, description="the inference has ended")
    return slot


def test_a_lost_connection_keeps_its_slot_until_triton_refuses_connections(
    fleet: Fleet, line: HoldingLine, valkey: Client, redis_url: str, own_witness: Witness
) -> None:
    """Nobody can tell when that inference is over; a server that is not there runs none. It is looked for as soon as one is lost."""
    start(fleet, "only", line.http_url, 1, "text_generation")
    slot = lose_one(valkey, line, own_witness)
    wait_until(lambda: queued(valkey) == ["lost"], description="the retry is due")
    assert slots(valkey) == [slot]
    assert own_witness.count() == 1

    Pool(RedisLink(redis_url), KEYS, PoolTerms(GPU, 2), "newest").enter()
    wait_until_busy(own_witness, 2)
    looks = line.periodic_looks
    wait_until(lambda: line.periodic_looks > looks, description="a periodic look has just been")
    line.refuse()
    line.cut()
    wait_until_slots(valkey, 0, timeout=AT_ONCE_SECONDS)
    assert own_witness.count() == 2


@pytest.mark.parametrize("seen_by", ["itself", pytest.param("another", marks=pytest.mark.long)])
def test_a_lost_connection_keeps_its_slot_until_the_models_process_is_dead(
    fleet: Fleet, line: HoldingLine, valkey: Client, own_triton: TritonServer, own_witness: Witness, seen_by: str
) -> None:
    """Whichever worker sees it die: that is known by the model's circuit. Nor does it go with its job, which was run again meanwhile."""
    start(fleet, "itself", line.http_url, 2 if seen_by == "itself" else 1, "faulty")
    slot = lose_one(valkey, line, own_witness)
    line.let_go()
    if seen_by == "another":
        start(fleet, "another", own_triton.url, 2, "faulty")
    assert attempt_codes(result_of(valkey, "lost"))[-1] is None
    wait_until(
        lambda: slots(valkey) == [slot], description="the slot of the second run is free, that of the first is not"
    )

    # Its last attempt, so that it is not tried again.
    for _ in range(2):
        valkey.rpush(KEYS.attempts("killer"), attempt(ErrorCode.RUNTIME_MODEL_CRASHED).model_dump_json())
    valkey.expire(KEYS.attempts("killer"), 600)
    push_jobs(valkey, "killer", prompt="exit")
    assert codes([result_of(valkey, "killer")]) == ["runtime_model_crashed"]
    wait_until(lambda: slot not in slots(valkey), description="the slot is free")
    revive(own_triton.url, "faulty")


def test_a_worker_that_was_declared_dead_gives_back_what_it_hears_the_end_of(
    fleet: Fleet, line: HoldingLine, valkey: Client, own_witness: Witness
) -> None:
    """It was frozen longer than its lease; the answer was there when it went on, and its slot need not lapse."""
    for name in ("one", "other"):
        start(fleet, name, line.http_url, 1, "text_generation", lease_seconds=LEASE, until=())
    for worker in fleet.workers:
        worker.wait_until_state("ready")
    line.hold()
    push_jobs(valkey, "late", prompt="work")
    wait_until_busy(own_witness, 1)
    (frozen,) = (worker for worker in fleet.workers if worker.claims())
    frozen.signal(signal.SIGSTOP)
    line.let_go()
    (slot,) = slots(valkey)
    wait_until(lambda: queued(valkey) == ["late"], description="the job is back")
    assert slots(valkey) == [slot]

    line.hold()  # The job may have been run again before its ledger is told what became of the first run; not settled, though.
    frozen.signal(signal.SIGCONT)
    ledger = KEYS.attempts("late")
    wait_until(lambda: b"lease_lost" in b"".join(valkey.lrange(ledger, 0, -1)), description="the late end was told")
    line.let_go()
    assert attempt_codes(result_of(valkey, "late")) == ["lease_lost", None]
    assert own_witness.most_at_once() == 1
    wait_until_slots(valkey, 0)
