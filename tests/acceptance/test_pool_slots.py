"""Slots: over all workers of a pool no more inferences run than it has slots, and each slot is back when its inference is over."""

import random
import signal
from collections import Counter
from typing import Final

import pytest

from tests.acceptance.delivery import attempt_codes, settled_once, wait_until_busy
from tests.acceptance.fleet import KEYS, Client, Fleet
from tests.acceptance.gateway import codes, push_jobs, wait_for_results
from tests.acceptance.pool import LEASE, TIMEOUT, Crew, crew, names, seconds_of, slots, wait_until_slots
from tests.waiting import wait_until
from tests.witness import Witness

LIMIT: Final = 3
DETECTION_SECONDS: Final = 1.5
"""How much later than it lapses a slot may be used: a worker that waits for it has its own timer, on a busy machine."""


@pytest.fixture(scope="module")
def four(standing_fleet: Fleet) -> Crew:
    """Four workers of one pool that run a job each, for the whole module."""
    return crew(standing_fleet, 4, concurrency=1, drain_seconds=0)


@pytest.fixture
def eight(fleet: Fleet) -> Crew:
    """Eight workers, each of which could fill the pool alone."""
    return crew(fleet, 8, concurrency=4)


def test_three_slots_are_three_inferences_and_each_worker_has_its_part(
    four: Crew, valkey: Client, witness: Witness
) -> None:
    """Never a fourth in Triton; the slots are kept busy, nobody is left out, and all are back at the end."""
    four.limits(LIMIT)
    jobs = names(90)
    push_jobs(valkey, *jobs, prompt="sleep=0.1 work")
    results = wait_for_results(valkey, *jobs, timeout=30)

    assert witness.most_at_once() == LIMIT
    assert len(jobs) * 0.1 / LIMIT >= 0.5 * seconds_of(witness.served())
    parts = Counter(result.worker_id for result in results.values())
    assert set(parts) == {worker.worker_id for worker in four.workers}
    assert min(parts.values()) >= 0.5 * len(jobs) / len(four.workers)
    assert slots(valkey) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_eight_workers_use_three_slots_for_95_percent_of_the_time(
    eight: Crew, valkey: Client, witness: Witness
) -> None:
    """Of what three slots could do at the best; and never a fourth inference."""
    eight.limits(LIMIT)
    jobs = names(600)
    push_jobs(valkey, *jobs, prompt="sleep=0.2 work")
    results = wait_for_results(valkey, *jobs, timeout=120)

    assert witness.most_at_once() == LIMIT
    assert len(jobs) * 0.2 / LIMIT >= 0.95 * seconds_of(witness.served())
    parts = Counter(result.worker_id for result in results.values())
    assert min(parts.values()) >= 0.5 * len(jobs) / len(eight.workers)
    assert slots(valkey) == []


def wait_for_settled(client: Client, jobs: float) -> None:
    """Return when so many jobs are settled."""
    wait_until(lambda: client.xlen(KEYS.settlements) >= jobs, description=f"{jobs} jobs are settled", timeout=60)


def kill_now_and_then(crew: Crew, client: Client, jobs: int, kills: int, draw: random.Random) -> None:
    """Kill one of those that run jobs, so many times over the course of so many jobs; each is started again."""
    for kill in range(kills):
        wait_for_settled(client, (kill + draw.random()) * jobs / kills)
        busy = wait_until(lambda: [n for n, one in enumerate(crew.workers) if one.claims()], description="one is busy")
        victim = draw.choice(busy)
        crew.workers[victim].kill()
        crew.replace(victim)


def judge_kills(client: Client, witness: Witness, jobs: list[str], kills: int) -> None:
    """Every job was settled once, never more ran than there are slots, and all slots are back."""
    results = wait_for_results(client, *jobs, timeout=120)
    assert codes(results.values()) == [None] * len(jobs)
    assert sum(attempt_codes(result) != [None] for result in results.values()) >= kills / 2
    assert witness.most_at_once() == LIMIT
    wait_until_slots(client, 0, timeout=LEASE + TIMEOUT + DETECTION_SECONDS)


def test_killed_workers_leave_neither_a_fourth_inference_nor_a_lost_slot(
    four: Crew, valkey: Client, witness: Witness
) -> None:
    """Triton goes on with what they had started: those slots stay taken, and come back by themselves."""
    four.limits(LIMIT)
    jobs = names(40)
    push_jobs(valkey, *jobs, prompt="sleep=0.2 work")
    kill_now_and_then(four, valkey, len(jobs), 3, random.Random(4))
    judge_kills(valkey, witness, jobs, 3)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_many_killed_workers_leave_neither_a_fourth_inference_nor_a_lost_slot(
    eight: Crew, valkey: Client, witness: Witness, seed: int
) -> None:
    """Twenty of eight, at any moment."""
    eight.limits(LIMIT)
    jobs = names(400)
    push_jobs(valkey, *jobs, prompt="sleep=0.2 work")
    kill_now_and_then(eight, valkey, len(jobs), 20, random.Random(seed))
    judge_kills(valkey, witness, jobs, 20)


def test_a_worker_that_is_killed_drained_or_frozen_leaves_its_slot_until_the_inference_must_be_over(
    four: Crew, valkey: Client, witness: Witness
) -> None:
    """Its job is first in line at once, and is not started beside its own first run: only when a slot has lapsed."""
    four.limits(LIMIT)
    jobs = names(LIMIT)
    push_jobs(valkey, *jobs, prompt="sleep=1 work")
    wait_until_busy(witness, LIMIT)
    killed, drained, frozen = (n for n, one in enumerate(four.workers) if one.claims())
    four.workers[killed].kill()
    four.workers[drained].stop()
    four.workers[frozen].signal(signal.SIGSTOP)
    assert len(slots(valkey)) == LIMIT
    results = wait_for_results(valkey, *jobs)

    four.workers[frozen].signal(signal.SIGCONT)
    four.replace(killed)
    four.replace(drained)
    assert codes(results.values()) == [None] * LIMIT
    assert sorted(str(attempt_codes(result)[0]) for result in results.values()) == ["drained", *["worker_lost"] * 2]
    first, again = witness.served()[0], witness.served()[LIMIT]
    assert witness.most_at_once() == LIMIT
    assert TIMEOUT <= again.started_at - first.started_at <= LEASE + TIMEOUT + DETECTION_SECONDS


def test_an_inference_that_is_not_answered_in_time_has_its_slot_for_that_time(
    four: Crew, valkey: Client, witness: Witness
) -> None:
    """Neither given back before the timeout is over, nor lost after it."""
    four.limits(1)
    push_jobs(valkey, "slow", prompt=f"sleep={TIMEOUT + 1} work")
    push_jobs(valkey, "next", prompt="work")
    results = wait_for_results(valkey, "slow", "next")

    assert codes(results.values()) == ["runtime_timeout", None]
    slow, after = witness.served()
    assert after.started_at - slow.started_at + 0.1 >= TIMEOUT
    assert slow.finished_at is None
    assert slots(valkey) == []
    assert settled_once(valkey).keys() == {"slow", "next"}
