"""Leases: who stands still too long loses its jobs and can change nothing about them; who only works long loses nothing."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import redis

from tasks.usage import Usage
from tests.acceptance.delivery import (
    LEASE,
    LEASE_ALONE,
    LOOK_SECONDS,
    attempt_codes,
    declared_dead,
    held_by,
    nothing_is_left,
    runs_of,
    settled_once,
    wait_for_health,
    wait_for_looks,
    wait_until_busy,
)
from tests.acceptance.fleet import KEYS, Fleet, WorkerProcess
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import codes, push_jobs, result_of, wait_for_results
from tests.acceptance.line import Line
from tests.acceptance.proxy import Proxy
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

NAMES: Final = [f"j-{n}" for n in range(8)]


@pytest.fixture
def line(valkey: redis.Redis, redis_url: str) -> Iterator[Line]:
    """The way to Redis of the worker that is to lose it."""
    way = Line(valkey, redis_url)
    yield way
    way.forget()


def _freeze(worker: WorkerProcess, _line: Line) -> None:
    worker.signal(signal.SIGSTOP)


def _thaw(worker: WorkerProcess, _line: Line) -> None:
    worker.signal(signal.SIGCONT)


def _cut_off(_worker: WorkerProcess, line: Line) -> None:
    line.close()


def _connect(_worker: WorkerProcess, line: Line) -> None:
    line.open()


Change = Callable[[WorkerProcess, Line], None]


@pytest.mark.parametrize(
    ("begin", "end"), [(_freeze, _thaw), (_cut_off, _connect)], ids=["SIGSTOP and SIGCONT", "cut off from Redis"]
)
def test_who_was_away_longer_than_its_lease_settles_nothing_and_goes_on(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate, line: Line, begin: Change, end: Change
) -> None:
    """Its jobs run again elsewhere and are settled once; what it has of them is late; then it works under a new lease."""
    away = fleet.start(worker_id="away", concurrency=4, lease_seconds=LEASE, redis_url=line.url)
    other = fleet.start(worker_id="other", concurrency=4, lease_seconds=LEASE)
    push_jobs(valkey, *NAMES, prompt=gate.prompt())
    wait_until_busy(witness, len(NAMES))
    lost = held_by(away)
    assert len(lost) == 4

    begin(away, line)
    gate.answer(*witness.served())
    wait_until(lambda: witness.count() == len(NAMES) + 4, description="its jobs run again")
    # What was sent before has been answered by now, and the second runs go on until the late results have come.
    wait_until(
        lambda: all(runs_of(witness, name)[0].finished_at for name in lost), description="the first runs have ended"
    )
    end(away, line)
    away.wait_for_event("lease.was_lost")
    wait_until(
        lambda: all("lease_lost" in str(valkey.lrange(KEYS.attempts(name), 0, -1)) for name in lost),
        description="the ledgers say what the first runs spent",
    )
    gate.open()

    results = wait_for_results(valkey, *NAMES)
    assert codes(results.values()) == [None] * len(NAMES)
    late = [results[name].attempts[0] for name in sorted(lost)]
    assert {attempt.worker_id for attempt in late} == {"away"}
    assert {results[name].worker_id for name in lost} == {"other"}
    assert all(attempt_codes(results[name])[1:] == [None] for name in lost)
    assert all(attempt_codes(results[name]) == [None] for name in NAMES if name not in lost)
    # Their ends were seen, too late: the ledger says what they spent.
    assert [attempt.code for attempt in late] == ["lease_lost"] * 4
    spent = [attempt.usage.total_tokens for attempt in late if isinstance(attempt.usage, Usage)]
    assert len(spent) == 4
    assert [incarnation.partition(":")[0] for incarnation in declared_dead(fleet.workers)] == ["away"]

    health = wait_for_health(away, wasted_tokens_total=sum(spent), claims_lost_total=len(spent))
    assert (int(health["wasted_tokens_total"]), int(health["claims_lost_total"])) == (sum(spent), len(spent))
    assert health["succeeded_total"] == "0"
    assert other.stop() == 0
    push_jobs(valkey, "next", prompt="next")
    assert result_of(valkey, "next").worker_id == "away"
    assert away.process.poll() is None
    assert witness.count() == len(NAMES) + 4 + 1
    assert nothing_is_left(valkey)


def test_an_inference_of_several_leases_keeps_its_worker_and_runs_once(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """How long an inference takes has nothing to do with the lease: it is renewed meanwhile."""
    workers = [fleet.start(worker_id=name, concurrency=2, lease_seconds=LEASE) for name in ("first", "second")]
    push_jobs(valkey, *NAMES[:4], prompt=gate.prompt())
    wait_until_busy(witness, 4)
    wait_for_looks(*workers, looks=round(2 * LEASE / LOOK_SECONDS))
    gate.open()

    results = wait_for_results(valkey, *NAMES[:4])
    assert [attempt_codes(result) for result in results.values()] == [[None]] * 4
    assert witness.count() == 4
    assert declared_dead(workers) == []
    assert nothing_is_left(valkey)


def test_claims_without_any_lease_are_found_and_returned(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """The worst moment of all, made by hand: a worker is dead, its claims are there and its lease is not."""
    victim = fleet.start(worker_id="victim", concurrency=2, lease_seconds=LEASE_ALONE)
    push_jobs(valkey, "lost-1", "lost-2", prompt=gate.prompt())
    wait_until_busy(witness, 2)
    victim.kill()
    assert valkey.hdel(KEYS.leases, "victim") == 1
    assert len(victim.claims()) == 2

    gate.open()
    fleet.start(worker_id="finder", lease_seconds=LEASE_ALONE)
    results = wait_for_results(valkey, "lost-1", "lost-2")
    assert [attempt_codes(result) for result in results.values()] == [["worker_lost", None]] * 2
    assert nothing_is_left(valkey)


def test_a_live_worker_whose_lease_is_gone_lets_go_of_its_jobs_and_goes_on(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """Such as after somebody deleted the leases: claims without a lease go back, also its own, and each is settled once."""
    worker = fleet.start(concurrency=2, lease_seconds=LEASE_ALONE)
    push_jobs(valkey, "lost-1", "lost-2", prompt=gate.prompt())
    wait_until_busy(witness, 2)

    valkey.delete(KEYS.leases)
    worker.wait_for_event("lease.was_lost")
    wait_until_busy(witness, 4)
    gate.open()
    results = wait_for_results(valkey, "lost-1", "lost-2")
    assert [attempt_codes(result) for result in results.values()] == [["worker_lost", None]] * 2
    assert worker.wait_until_state("ready")
    assert nothing_is_left(valkey)


def test_a_frozen_redis_is_nobodys_death(
    tmp_path: Path, durable_valkey: ValkeyServer, triton: TritonServer, witness: Witness
) -> None:
    """Redis answers nothing for longer than a lease: both workers keep their jobs, and each is run once."""
    with Fleet(tmp_path, triton.url, durable_valkey.url) as fleet:
        workers = [fleet.start(worker_id=name, concurrency=2, lease_seconds=LEASE) for name in ("first", "second")]
        client = fleet.client(durable_valkey.url)
        push_jobs(client, *NAMES[:4], prompt="sleep=0.3 work")
        wait_until_busy(witness, 4)
        durable_valkey.freeze()
        time.sleep(1.5 * LEASE)  # This is about time itself: nothing can be waited for while Redis is away.
        durable_valkey.thaw()
        results = wait_for_results(client, *NAMES[:4])
        assert [attempt_codes(result) for result in results.values()] == [[None]] * 4
        assert witness.count() == 4
        assert declared_dead(workers) == []
        assert not [event for worker in workers for event in worker.events("lease.was_lost")]
        assert nothing_is_left(client)


def test_a_second_live_process_under_a_worker_id_is_refused(
    fleet: Fleet, valkey: redis.Redis, witness: Witness, gate: Gate
) -> None:
    """It ends with 2 and says why in one line; the first one's running jobs do not notice."""
    first = fleet.start(worker_id="only-one", lease_seconds=LEASE)
    push_jobs(valkey, "running", prompt=gate.prompt())
    wait_until_busy(witness, 1)

    second = fleet.start(worker_id="only-one", lease_seconds=LEASE, until=())
    assert second.wait() == 2
    (refusal,) = second.events("worker.was_refused")
    assert "another live process" in refusal["reason"]
    assert "Traceback" not in second.log.read_text()
    assert first.process.poll() is None
    gate.open()
    assert attempt_codes(result_of(valkey, "running")) == [None]
    assert declared_dead(fleet.workers) == []


def test_a_worker_that_ended_well_leaves_its_worker_id_free_at_once(fleet: Fleet, valkey: redis.Redis) -> None:
    """A restart does not wait for a lease: it was given up at the end."""
    first = fleet.start(worker_id="again", lease_seconds=30)
    assert first.stop() == 0
    assert not valkey.hexists(KEYS.leases, "again")

    second = fleet.start(worker_id="again", lease_seconds=30)
    assert not second.events("lease.was_awaited")
    assert settled_once(valkey) == {}


def test_jobs_whose_claim_is_learned_of_after_the_lease_was_lost_are_not_run_twice(
    fleet: Fleet, valkey: redis.Redis, redis_url: str, witness: Witness
) -> None:
    """The reply to a claim comes when the jobs have long gone back: whoever claims them next runs them, nobody else."""
    with Proxy(redis_url) as proxy:
        worker = fleet.start(concurrency=2, lease_seconds=LEASE_ALONE, redis_url=proxy.url)
        claim = proxy.trap("claim_from_queues", "late")
        push_jobs(valkey, "late", prompt="work")
        claim.wait()
        assert held_by(worker) == {"late"}
        valkey.delete(KEYS.leases)
        worker.wait_for_event("lease.was_lost")
        worker.wait_for_event("worker.declared_dead")  # By the same process, under its new lease.
        claim.let_go()

        assert attempt_codes(result_of(valkey, "late")) == ["worker_lost", None]
        assert witness.count() == 1
        assert nothing_is_left(valkey)
        worker.stop()
