"""Requests per minute: never more are granted in any 60 seconds, however many workers ask, and hardly one fewer."""

from collections.abc import Sequence
from typing import Final

import pytest

from tests.acceptance.fleet import KEYS, Client, Fleet
from tests.acceptance.gateway import push_jobs, wait_for_results
from tests.acceptance.pool import GPU, MINUTE_MS, Crew, crew, grants, most_in_a_window, names
from tests.waiting import wait_until
from tests.witness import Witness
from worker.lookout import SWEEP_MS

WINDOW_SECONDS: Final = 60.0
ON_THEIR_WAY_SECONDS: Final = 1.0
"""How much closer than their grants two requests may reach Triton, on a busy machine."""

MORE_SECONDS: Final = SWEEP_MS / 1000 + 3.0
"""A sweep, and then some: limits that a test changes behind the workers' backs are seen by the next one."""


@pytest.fixture(scope="module")
def four(standing_fleet: Fleet) -> Crew:
    """Four workers of one pool, for the whole module."""
    return crew(standing_fleet, 4)


def wait_until_all_wait(client: Client, crew: Crew) -> None:
    """Return when every worker stands in line."""
    line = KEYS.pool_waiting(GPU)
    wait_until(lambda: client.zcard(line) == len(crew.workers), description="all workers wait")


def grow_older(client: Client, by_ms: Sequence[int]) -> None:
    """Make grants older than they are, the oldest by the first of these, and so on."""
    members = client.zrange(KEYS.pool_grants(GPU), 0, len(by_ms) - 1)
    for member, ms in zip(members, by_ms, strict=True):
        client.zincrby(KEYS.pool_grants(GPU), -ms, member)


def test_no_more_requests_are_granted_than_the_limit_whoever_asks(four: Crew, valkey: Client, witness: Witness) -> None:
    """As many at once as the minute has left; each that leaves the minute makes room for one, and who waits takes it."""
    four.limits(requests=20)
    push_jobs(valkey, *names(60), prompt="work")
    wait_until(lambda: witness.count() == 20, description="twenty run")
    wait_until_all_wait(valkey, four)
    assert len(grants(valkey)) == 20

    grow_older(valkey, [MINUTE_MS] * 5 + [MINUTE_MS - 9_000] * 3)
    wait_until(lambda: witness.count() == 25, description="five more run", timeout=MORE_SECONDS)
    wait_until(lambda: witness.count() == 28, description="three more run", timeout=MORE_SECONDS)
    assert len(grants(valkey)) == 20
    assert valkey.llen(KEYS.jobs("acme/model-1")) == 32


def test_a_raised_limit_is_used_at_once_by_those_who_wait(four: Crew, valkey: Client, witness: Witness) -> None:
    """They are called; nobody has to wait for the next look."""
    four.limits(requests=5)
    push_jobs(valkey, *names(30), prompt="work")
    wait_until(lambda: witness.count() == 5, description="five run")
    wait_until_all_wait(valkey, four)
    four.limits(requests=30)
    wait_for_results(valkey, *names(30), timeout=SWEEP_MS / 1000 / 2)
    assert witness.count() == 30


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [1, 4, 16])
def test_600_requests_a_minute_are_never_601_and_at_least_570(
    fleet: Fleet, valkey: Client, witness: Witness, workers: int
) -> None:
    """In any 60 s of more than two minutes; by what was granted, and by what reached Triton."""
    limit, spans = 600, 2
    some = crew(fleet, workers, concurrency=16)
    some.limits(requests=limit)
    push_jobs(valkey, *names(limit * (spans + 1)), prompt="work")
    seen = dict[str, float]()

    def time_is_up() -> bool:
        seen.update(grants(valkey))
        return max(seen.values(), default=0) - min(seen.values(), default=0) > spans * MINUTE_MS

    wait_until(time_is_up, description="two minutes have passed", timeout=spans * WINDOW_SECONDS + 60, interval=1.0)
    begin = min(seen.values())
    granted = [at_ms for at_ms in seen.values() if at_ms < begin + spans * MINUTE_MS]
    assert most_in_a_window(seen.values(), MINUTE_MS) <= limit
    arrived = [served.started_at for served in witness.served()]
    assert most_in_a_window(arrived, WINDOW_SECONDS - ON_THEIR_WAY_SECONDS) <= limit
    assert len(granted) >= 0.95 * spans * limit
