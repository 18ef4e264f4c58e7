"""A worker that is told to stop loses no job and leaves nothing, whichever signal it is, and even when Redis is away."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.acceptance.delivery import (
    LEASE,
    LEASE_ALONE,
    LOOK_SECONDS,
    attempt_codes,
    declared_dead,
    nothing_is_left,
    settled_once,
    wait_for_looks,
    wait_until_busy,
)
from tests.acceptance.fleet import KEYS, Fleet, WorkerProcess
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import codes, push_jobs, queued, wait_for_results
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

NAMES: Final = [f"long-{n}" for n in range(4)]
GONE_WITHIN_SECONDS: Final = 10.0
"""What a worker may take to end after the drain while Redis is there, on a machine that stalls; its jobs would take for ever."""

REDIS_AWAY_SECONDS: Final = 15.0
"""What a worker may take to end beyond drain_seconds when Redis gives no answer at all."""


def left_by(worker: WorkerProcess) -> list[str]:
    """What an ended worker left behind in Redis of itself."""
    client = worker.client
    left = ["claims"] if worker.claims() else []
    left += ["lease"] if client.hexists(KEYS.leases, worker.worker_id) else []
    left += ["health"] if worker.health() else []
    return left + (["registry"] if client.zscore(KEYS.workers, worker.worker_id) is not None else [])


def test_what_outlasts_the_drain_goes_back_in_order_with_what_was_broken_off_in_its_ledger(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """SIGQUIT drains as well. drain_seconds count from the signal; the next worker runs the jobs in their old order, uncharged."""
    limits: dict[str, Any] = {"max_deliveries": 1, "retry": {"max_attempts": 1}}
    worker = fleet.start(worker_id="drained", concurrency=4, drain_seconds=0.3, **limits)
    push_jobs(valkey, *NAMES, prompt=gate.prompt())
    wait_until_busy(witness, len(NAMES))
    push_jobs(valkey, "behind", prompt="work")

    asked = time.monotonic()
    worker.signal(signal.SIGQUIT)
    assert worker.wait() == 0
    assert 0.3 <= time.monotonic() - asked < 0.3 + GONE_WITHIN_SECONDS
    assert left_by(worker) == []
    assert queued(valkey) == [*NAMES, "behind"]
    assert settled_once(valkey) == {}
    assert not valkey.exists(KEYS.running, KEYS.claimants)

    gate.open()
    fleet.start(worker_id="next", concurrency=4, **limits)
    results = wait_for_results(valkey, *NAMES, "behind")
    assert codes(results.values()) == [None] * 5
    assert [attempt_codes(result) for result in results.values()] == [["drained", None]] * 4 + [[None]]
    assert {results[name].attempts[0].worker_id for name in NAMES} == {"drained"}
    assert nothing_is_left(valkey)


def test_a_second_signal_of_another_kind_puts_everything_back_now(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """SIGQUIT after SIGTERM is no exception: nothing is acknowledged that was not settled."""
    worker = fleet.start(concurrency=4, drain_seconds=60)
    push_jobs(valkey, *NAMES, prompt=gate.prompt())
    wait_until_busy(witness, len(NAMES))
    worker.signal(signal.SIGTERM)
    worker.wait_until_state("draining")
    worker.signal(signal.SIGQUIT)

    assert worker.wait(timeout=GONE_WITHIN_SECONDS) == 0
    assert left_by(worker) == []
    assert queued(valkey) == NAMES
    assert settled_once(valkey) == {}


def test_a_drain_of_several_leases_keeps_the_lease(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """Who drains is alive: the jobs that it lets end are run by nobody else meanwhile, and new ones by others only."""
    draining = fleet.start(worker_id="draining", concurrency=2, lease_seconds=LEASE, drain_seconds=30)
    push_jobs(valkey, *NAMES[:2], prompt=gate.prompt())
    wait_until_busy(witness, 2)
    other = fleet.start(worker_id="other", concurrency=2, lease_seconds=LEASE)
    draining.signal(signal.SIGTERM)
    push_jobs(valkey, "new-1", "new-2", "new-3", prompt="work")
    wait_for_looks(other, looks=round(2 * LEASE / LOOK_SECONDS))
    gate.open()

    assert draining.wait() == 0
    results = wait_for_results(valkey, *NAMES[:2], "new-1", "new-2", "new-3")
    assert [result.worker_id for result in results.values()] == ["draining"] * 2 + ["other"] * 3
    assert {tuple(attempt_codes(result)) for result in results.values()} == {(None,)}
    assert witness.count() == 5
    assert declared_dead([other]) == []
    assert left_by(draining) == []
    assert nothing_is_left(valkey)


@pytest.mark.parametrize(
    ("away", "back"),
    [
        pytest.param(ValkeyServer.kill, ValkeyServer.restart, id="killed"),
        pytest.param(ValkeyServer.freeze, ValkeyServer.thaw, id="frozen", marks=pytest.mark.long),
    ],
)
def test_a_drain_without_redis_ends_and_the_next_worker_finds_the_claims(
    tmp_path: Path,
    durable_valkey: ValkeyServer,
    triton: TritonServer,
    witness: Witness,
    gate: Gate,
    away: Callable[[ValkeyServer], None],
    back: Callable[[ValkeyServer], None],
) -> None:
    """It cannot put its jobs back, nor wait for ever: it ends with 0 in bounded time, as if killed to those who come next."""
    with Fleet(tmp_path, triton.url, durable_valkey.url) as fleet:
        worker = fleet.start(worker_id="drained", concurrency=4, lease_seconds=LEASE_ALONE, drain_seconds=0.3)
        client = fleet.client(durable_valkey.url)
        push_jobs(client, *NAMES, prompt=gate.prompt())
        wait_until_busy(witness, len(NAMES))
        away(durable_valkey)
        asked = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0
        assert time.monotonic() - asked < 0.3 + REDIS_AWAY_SECONDS
        back(durable_valkey)

        gate.open()
        fleet.start(worker_id="next", concurrency=4, lease_seconds=LEASE_ALONE)
        results = wait_for_results(client, *NAMES)
        assert codes(results.values()) == [None] * len(NAMES)
        assert {codes_ for result in results.values() for codes_ in attempt_codes(result)[:-1]} <= {
            "worker_lost",
            "drained",
        }
        wait_until(lambda: left_by(worker) in ([], ["registry"]), description="the next worker has ended its lease")
        assert nothing_is_left(client)


def test_a_result_lists_its_attempts_over_all_workers_in_their_order(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """Killed with one worker, broken off by the drain of the next, ended by a third: every run that Triton saw is there."""
    killed = fleet.start(worker_id="killed", lease_seconds=LEASE_ALONE)
    push_jobs(valkey, "travels", prompt=gate.prompt())
    wait_until_busy(witness, 1)
    killed.kill()
    drained = fleet.start(worker_id="drained", lease_seconds=LEASE_ALONE, drain_seconds=0)
    wait_until_busy(witness, 2)
    assert drained.stop() == 0
    gate.open()
    fleet.start(worker_id="last", lease_seconds=LEASE_ALONE)

    result = wait_for_results(valkey, "travels")["travels"]
    assert attempt_codes(result) == ["worker_lost", "drained", None]
    assert [attempt.worker_id for attempt in result.attempts] == ["killed", "drained", "last"]
    started = [attempt.started_at for attempt in result.attempts]
    assert started == sorted(started)
    assert [attempt.usage for attempt in result.attempts] == [None, None, result.usage]
    assert witness.count() == len(result.attempts)
    assert nothing_is_left(valkey)
