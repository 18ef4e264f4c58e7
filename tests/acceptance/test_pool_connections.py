"""A connection that is lost does not end its inference: the slot stays taken, and is free as soon as nothing can run there any more."""

from collections.abc import Iterator

import pytest

from tests.acceptance.delivery import wait_until_busy
from tests.acceptance.fleet import Client, Fleet
from tests.acceptance.gateway import push_jobs, queued
from tests.acceptance.pool import GPU, slots, wait_until_slots
from tests.acceptance.proxy import Proxy
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer


@pytest.fixture
def line(own_triton: TritonServer) -> Iterator[Proxy]:
    """The worker's way to Triton, which a test can cut."""
    with Proxy(own_triton.url) as proxy:
        yield proxy


def start(fleet: Fleet, line: Proxy, limit: int) -> None:
    """Start a worker whose inferences may take a minute, so that no slot lapses in a test."""
    fleet.start(
        runtime_endpoint=line.http_url,
        gpu_pool={"name": GPU, "max_concurrency": limit},
        runtime_config={"model_name": "text_generation", "timeout_seconds": 60},
    )


def wait_until_over(witness: Witness) -> None:
    """Return when the first inference has ended in Triton, unheard."""
    wait_until(lambda: witness.served()[0].finished_at, description="the inference has ended")


def test_a_lost_connection_keeps_its_slot_until_triton_refuses_connections(
    fleet: Fleet, line: Proxy, valkey: Client, own_witness: Witness
) -> None:
    """Nobody can tell when that inference is over; a server that is not there runs none."""
    start(fleet, line, 1)
    push_jobs(valkey, "lost", prompt="sleep=0.3 work")
    wait_until_busy(own_witness, 1)
    (slot,) = slots(valkey)
    line.cut()
    wait_until_over(own_witness)
    push_jobs(valkey, "next", prompt="work")
    wait_until(lambda: sorted(queued(valkey)) == ["lost", "next"], description="the retry is due")
    assert slots(valkey) == [slot]
    assert own_witness.count() == 1

    line.refuse()
    wait_until_slots(valkey, 0)
    assert sorted(queued(valkey)) == ["lost", "next"]
    assert own_witness.count() == 1
