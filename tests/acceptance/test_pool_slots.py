"""Slots: over all workers of a pool no more inferences run than it has slots, and each slot is back when its inference is over."""

import random
import signal
from typing import Final

import pytest

from tasks import rfc3339
from tasks.result import GenerateResult
from tests.acceptance.delivery import attempt_codes, held_by, wait_until_busy
from tests.acceptance.fleet import KEYS, Client, Fleet
from tests.acceptance.gateway import codes, push_jobs, wait_for_results
from tests.acceptance.pool import Crew, crew, names, slots
from tests.acceptance.pool_trials import DETECTION_SECONDS, LIMIT, kill_now_and_then, share_of_the_ideal
from tests.witness import Witness

LEASE: Final = 2.5
"""Longer than a stall of a worker that is not meant to be dead."""

WORKS: Final = LEASE + 1.0
"""How long an inference takes that is still on when its worker is found to be dead."""

TIMEOUT: Final = WORKS + 2.0
"""Of the inferences: longer, by a stall, than one takes."""


@pytest.fixture(scope="module")
def four(standing_fleet: Fleet) -> Crew:
    """Four workers of one pool that run a job each, for the whole module."""
    terms = {"lease_seconds": LEASE, "runtime_config": {"model_name": "text_generation", "timeout_seconds": TIMEOUT}}
    return crew(standing_fleet, 4, concurrency=1, drain_seconds=0, **terms)


def started_ms(result: GenerateResult) -> int:
    """When a job's first run began, by Redis' clock."""
    return rfc3339.to_ms(rfc3339.parse(result.attempts[0].started_at))


@pytest.mark.usefixtures("valkey")
def test_three_slots_are_three_inferences_and_each_worker_has_its_part(four: Crew, witness: Witness) -> None:
    """Never a fourth in Triton; the slots are kept busy, nobody is left out, and all are back at the end."""
    assert share_of_the_ideal(four, witness, 120, 0.1, in_a_row=20) >= 0.5


def test_an_inference_that_is_not_answered_in_time_has_its_slot_for_that_time(
    four: Crew, valkey: Client, witness: Witness
) -> None:
    """Neither given back before the timeout is over, nor lost after it."""
    four.limits(1)
    push_jobs(valkey, "slow", prompt=f"sleep={TIMEOUT + 30} work")
    push_jobs(valkey, "next", prompt="work")
    results = wait_for_results(valkey, "slow", "next")

    assert codes(results.values()) == ["runtime_timeout", None]
    granted_ms = started_ms(results["next"]) - (results["next"].timings.pool_wait_ms or 0)
    assert granted_ms - started_ms(results["slow"]) >= TIMEOUT * 1000 - 1
    slow, _ = witness.served()
    assert slow.finished_at is None
    assert slots(valkey) == []


@pytest.mark.usefixtures("valkey")
def test_killed_workers_leave_neither_a_fourth_inference_nor_a_lost_slot(four: Crew, witness: Witness) -> None:
    """Triton goes on with what they had started: those slots stay taken, and come back by themselves."""
    kill_now_and_then(four, witness, 30, 0.2, 3, random.Random(4))


def test_a_worker_that_is_killed_drained_or_frozen_leaves_its_slot_until_the_inference_must_be_over(
    four: Crew, valkey: Client, witness: Witness
) -> None:
    """Its job is first in line at once, and is not started beside its own first run: only when a slot has lapsed."""
    four.limits(LIMIT)
    jobs = names(LIMIT)
    push_jobs(valkey, *jobs, prompt=f"sleep={WORKS} work")
    wait_until_busy(witness, LIMIT)
    killed, drained, frozen = (n for n, one in enumerate(four.workers) if one.claims())
    held = [next(iter(held_by(four.workers[n]))) for n in (killed, drained, frozen)]
    four.workers[frozen].signal(signal.SIGSTOP)
    four.workers[killed].kill()
    four.workers[drained].stop()
    assert len(slots(valkey)) == LIMIT
    for job_id in held[1:]:
        valkey.set(KEYS.cancel(job_id), "1", ex=600)  # One run again is enough to see when there is a slot.
    results = wait_for_results(valkey, *held)

    four.workers[frozen].signal(signal.SIGCONT)
    four.replace(killed)
    four.replace(drained)
    assert [attempt_codes(result)[0] for result in results.values()] == ["worker_lost", "drained", "worker_lost"]
    assert codes(results.values()) == [None, "job_cancelled", "job_cancelled"]
    first, again = witness.served()[0], witness.served()[LIMIT]
    assert witness.most_at_once() == LIMIT
    assert TIMEOUT <= again.started_at - first.started_at <= LEASE + TIMEOUT + DETECTION_SECONDS
