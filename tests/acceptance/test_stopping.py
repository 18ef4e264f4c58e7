"""A worker that is told to stop: nothing new is begun, nothing is lost, nothing of the worker stays."""

import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import codes, push_jobs, queued, settlements, wait_for_results
from tests.acceptance.proxy import Proxy
from tests.waiting import wait_until
from tests.witness import Witness
from worker.fleet import redis_time_ms

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GONE_WITHIN_SECONDS = 5.0
"""How long the end of a worker that waits for nothing may take on a machine that stalls."""


@pytest.fixture
def nobody() -> Iterator[str]:
    """A port of loopback where every connection is refused, and that no server takes meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


def nothing_stays(worker: WorkerProcess) -> bool:
    """Whether no claim and no health key of an ended worker is left, and routing no longer finds it."""
    gone = not worker.claims() and not worker.health()
    return gone and worker.client.zscore(KEYS.workers, worker.worker_id) is None


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_running_jobs_end_and_waiting_ones_stay_in_their_order(
    fleet: Fleet, valkey: Client, witness: Witness, gate: Gate, number: signal.Signals
) -> None:
    """No job is claimed after the signal; what runs is settled; the worker says that it drains, and ends with 0."""
    worker = fleet.start(concurrency=2)
    push_jobs(valkey, "running-1", "running-2", prompt=gate.prompt())
    wait_until(lambda: witness.count() == 2, description="both slots are busy")
    push_jobs(valkey, "waiting-1", "waiting-2")

    worker.signal(number)
    health = worker.wait_until_state("draining")
    push_jobs(valkey, "late")
    gate.open()

    assert worker.wait() == 0
    assert health["in_flight"] == "2"
    assert codes(wait_for_results(valkey, "running-1", "running-2").values()) == [None, None]
    assert settlements(valkey).keys() == {"running-1", "running-2"}
    assert queued(valkey) == ["waiting-1", "waiting-2", "late"]
    assert witness.count() == 2
    assert nothing_stays(worker)


def test_jobs_that_outlast_drain_seconds_go_back_to_the_front_uncharged(
    fleet: Fleet, valkey: Client, witness: Witness, gate: Gate
) -> None:
    """After drain_seconds the rest is put back in the order in which it was claimed; another worker takes it at once."""
    worker = fleet.start(concurrency=3, drain_seconds=0.3)
    push_jobs(valkey, "long-1", "long-2", "long-3", prompt=gate.prompt())
    wait_until(lambda: witness.count() == 3, description="all slots are busy")
    push_jobs(valkey, "waiting")

    assert worker.stop() == 0
    assert queued(valkey) == ["long-1", "long-2", "long-3", "waiting"]
    assert settlements(valkey) == {}
    assert nothing_stays(worker)
    assert worker.events("worker.gave_jobs_back")[0]["jobs"] == 3

    gate.open()
    fleet.start(worker_id="another")
    results = wait_for_results(valkey, "long-1", "long-2", "long-3", "waiting")
    assert codes(results.values()) == [None] * 4


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_second_signal_puts_everything_back_now(
    fleet: Fleet, valkey: Client, witness: Witness, gate: Gate, number: signal.Signals
) -> None:
    """Whoever asks twice does not wait for drain_seconds."""
    worker = fleet.start(drain_seconds=60)
    push_jobs(valkey, "long-1", "long-2", prompt=gate.prompt())
    wait_until(lambda: witness.count() == 2, description="both jobs run")

    worker.signal(number)
    worker.wait_until_state("draining")
    worker.signal(number)

    assert worker.wait(timeout=2 * GONE_WITHIN_SECONDS) == 0
    assert queued(valkey) == ["long-1", "long-2"]
    assert settlements(valkey) == {}
    assert nothing_stays(worker)


def test_an_idle_worker_ends_within_seconds(fleet: Fleet) -> None:
    """Nothing waits for a poll to end."""
    worker = fleet.start()
    asked = time.monotonic()

    assert worker.stop() == 0
    assert time.monotonic() - asked < GONE_WITHIN_SECONDS
    assert nothing_stays(worker)


def test_a_job_that_waits_for_its_retry_does_not_hold_up_a_stop(fleet: Fleet, valkey: Client, redis_url: str) -> None:
    """A retry waits in Redis, not in the worker."""
    with Proxy(redis_url) as proxy:
        worker = fleet.start(redis_url=proxy.url, runtime_config={"model_name": "faulty"}, drain_seconds=30)
        retry = proxy.trap("retry_if_claimed", "again")
        push_jobs(valkey, "again", prompt="raise it")
        retry.wait()
        # How long it waits was drawn, and may be nothing: before its worker looks for more, it is made an hour.
        (waits,) = valkey.zrange(KEYS.waiting, 0, -1)
        valkey.zadd(KEYS.waiting, {waits: redis_time_ms(valkey) + 3_600_000})
        retry.let_go()
        asked = time.monotonic()

        assert worker.stop() == 0
        assert time.monotonic() - asked < GONE_WITHIN_SECONDS
        assert valkey.zcard(KEYS.waiting) == 1
        assert nothing_stays(worker)
    valkey.delete(KEYS.waiting)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_worker_that_still_waits_for_redis_can_be_stopped(fleet: Fleet, nobody: str, number: signal.Signals) -> None:
    """A worker that has never reached Redis ends as well, with 0: it holds nothing."""
    worker = fleet.start(redis_url=f"redis://{nobody}/0", until=())
    worker.wait_for_event("redis.was_awaited")

    worker.signal(number)

    assert worker.wait(timeout=2 * GONE_WITHIN_SECONDS) == 0


def test_a_worker_whose_triton_was_never_there_can_be_stopped(fleet: Fleet, valkey: Client, nobody: str) -> None:
    """The looks at an absent Triton end with the worker."""
    worker = fleet.start(runtime_endpoint=f"http://{nobody}", until=("unavailable",))
    push_jobs(valkey, "waits")

    assert worker.stop() == 0
    assert queued(valkey) == ["waits"]
    assert nothing_stays(worker)


def test_signals_after_the_end_change_nothing(fleet: Fleet, valkey: Client) -> None:  # noqa: ARG001 - empty at the start
    """Whoever asks again while the process goes still gets 0."""
    worker = fleet.start()
    worker.signal(signal.SIGTERM)
    worker.wait_for_event("worker.stopped")

    def is_gone() -> bool:
        for number in SIGNALS:
            worker.signal(number)
        return worker.process.poll() is not None

    wait_until(is_gone, description="the process is gone", interval=0.001)
    assert worker.wait() == 0
