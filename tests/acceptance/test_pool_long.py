"""Pools at length: eight and sixteen workers, whole minutes, many kills."""

import random
from typing import Any, Final

import pytest

from tests.acceptance.fleet import Client, Fleet
from tests.acceptance.gateway import push_jobs
from tests.acceptance.pool import MINUTE_MS, TIMEOUT, Crew, crew, grants, most_in_a_window, names
from tests.acceptance.pool_trials import (
    CALLS_A_JOB,
    RESERVED,
    calls_a_job,
    kill_now_and_then,
    share_of_the_ideal,
    use_tokens,
    used_and_limit,
)
from tests.waiting import wait_until
from tests.witness import Witness

REQUESTS: Final = 600
WINDOWS: Final = 2
ON_THEIR_WAY_SECONDS: Final = 1.0
"""How much closer than their grants two requests may reach Triton, on a busy machine."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def eight(fleet: Fleet) -> Crew:
    """Eight workers, each of which could fill the pool alone."""
    return crew(fleet, 8)


def test_eight_workers_use_three_slots_for_95_percent_of_the_time(eight: Crew, witness: Witness) -> None:
    """Of what three slots could do at the best; and never a fourth inference."""
    assert share_of_the_ideal(eight, witness, 600, 0.2) >= 0.95


@pytest.mark.parametrize("seed", range(3))
def test_many_killed_workers_leave_neither_a_fourth_inference_nor_a_lost_slot(
    eight: Crew, witness: Witness, seed: int
) -> None:
    """Twenty kills among eight, at any moment."""
    kill_now_and_then(eight, witness, 120, TIMEOUT - 0.5, 20, random.Random(seed))


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_600_requests_a_minute_are_never_601_and_at_least_570(
    fleet: Fleet, valkey: Client, witness: Witness, workers: int
) -> None:
    """In any 60 s of two minutes and more; by what was granted, and by what reached Triton."""
    some = crew(fleet, workers, concurrency=16)
    some.limits(requests=REQUESTS)
    push_jobs(valkey, *names(REQUESTS * (WINDOWS + 1)), prompt="work")
    seen = dict[str, float]()

    def time_is_up() -> bool:
        now = grants(valkey)
        # One that has gone before its minute was over was given back unstarted, and cost nothing.
        oldest = max(now.values(), default=0) - MINUTE_MS
        for claim in [claim for claim, at_ms in seen.items() if at_ms > oldest and claim not in now]:
            del seen[claim]
        seen.update(now)
        return max(seen.values(), default=0) - min(seen.values(), default=0) > WINDOWS * MINUTE_MS

    wait_until(time_is_up, description="two minutes have passed", timeout=200, interval=1.0)
    begin = min(seen.values())
    assert most_in_a_window(seen.values(), MINUTE_MS) <= REQUESTS
    arrived = [served.started_at for served in witness.served()]
    assert most_in_a_window(arrived, MINUTE_MS / 1000 - ON_THEIR_WAY_SECONDS) <= REQUESTS
    granted = sum(at_ms < begin + WINDOWS * MINUTE_MS for at_ms in seen.values())
    assert granted >= 0.95 * WINDOWS * REQUESTS


@pytest.mark.parametrize("each", [RESERVED // 2, 2 * RESERVED])
def test_five_minutes_use_the_token_limit_within_5_percent(eight: Crew, witness: Witness, each: int) -> None:
    """Though each reservation is off by half."""
    began_ms = use_tokens(eight, 4000, each, 300)
    used, limit = used_and_limit(witness, began_ms, 4000, each)
    assert used == pytest.approx(limit, rel=0.05)


@pytest.mark.parametrize("limits", [{"max_concurrency": 1}, {"tokens": 600_000}], ids=["slots", "tokens"])
def test_more_workers_that_wait_ask_no_more(eight: Crew, limits: dict[str, Any]) -> None:
    """Eight as four: the calls for each job do not grow with who waits."""
    assert calls_a_job(eight, limits, 400, 20) <= CALLS_A_JOB
