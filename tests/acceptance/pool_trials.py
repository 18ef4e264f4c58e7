"""What workers of a pool are put through, in short and at length; each trial returns or checks what has to be so."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.acceptance.delivery import attempt_codes
from tests.acceptance.fleet import KEYS, Client
from tests.acceptance.gateway import codes, push_jobs, wait_for_results
from tests.acceptance.pool import (
    LEASE,
    TIMEOUT,
    Crew,
    claim_calls,
    empty_the_bucket,
    names,
    seconds_of,
    slots,
    wait_until_slots,
)
from tests.waiting import wait_until
from tests.witness import Served, Witness

LIMIT: Final = 3
"""Slots of the pool."""

DETECTION_SECONDS: Final = 1.5
"""How much later than it lapses a slot may be used: a worker that waits for it has its own timer, on a busy machine."""

RESERVED: Final = 500
"""Tokens that each job is granted, but for its short prompt."""

CALLS_A_JOB: Final = 4
"""How often jobs are asked for, for each that is granted: by who gets it, by who has ended one, and by a few in vain."""


def share_of_the_ideal(some: Crew, witness: Witness, jobs: int, seconds: float) -> float:
    """Run jobs of so many seconds in three slots; return which part of the rate that they could have, they had.

    Never a fourth is in Triton, every worker has at least half of its part of the jobs, and all slots are back at the end.
    """
    some.limits(LIMIT)
    push_jobs(some.client, *names(jobs), prompt=f"sleep={seconds} work")
    results = wait_for_results(some.client, *names(jobs), timeout=4 * jobs * seconds / LIMIT + 10)
    assert witness.most_at_once() == LIMIT
    parts = Counter(result.worker_id for result in results.values())
    assert set(parts) == {worker.worker_id for worker in some.workers}
    assert min(parts.values()) >= jobs / len(some.workers) / 2
    assert slots(some.client) == []
    return jobs * seconds / LIMIT / seconds_of(witness.served())


def kill_now_and_then(some: Crew, witness: Witness, jobs: int, seconds: float, kills: int, draw: random.Random) -> None:
    """Kill one of those that run jobs, so many times over the course of so many jobs; each is started again.

    Every job is settled once, never a fourth is in Triton, and in the end all slots are back.
    """
    some.limits(LIMIT)
    push_jobs(some.client, *names(jobs), prompt=f"sleep={seconds} work")
    for kill in range(kills):
        _wait_for_settled(some.client, (kill + draw.random()) * 0.9 * jobs / kills)
        busy = wait_until(lambda: [n for n, one in enumerate(some.workers) if one.claims()], description="one is busy")
        victim = draw.choice(busy)
        some.workers[victim].kill()
        some.replace(victim)
    results = wait_for_results(some.client, *names(jobs), timeout=120)
    assert codes(results.values()) == [None] * jobs
    assert sum(attempt_codes(result) != [None] for result in results.values()) >= kills / 2
    assert witness.most_at_once() == LIMIT
    wait_until_slots(some.client, 0, timeout=LEASE + TIMEOUT + DETECTION_SECONDS)


def _wait_for_settled(client: Client, jobs: float) -> None:
    wait_until(lambda: client.xlen(KEYS.settlements) >= jobs, description=f"{jobs} jobs are settled", timeout=60)


def use_tokens(some: Crew, witness: Witness, per_second: int, each: int, seconds: float) -> tuple[float, float]:
    """Run jobs that use ``each`` for about so many seconds; return what was used by the last one's start, and what might have been."""
    some.limits(tokens=per_second * 60)
    began = empty_the_bucket(some.client)
    jobs = names(round(per_second * seconds / each))
    push_jobs(some.client, *jobs, prompt=f"sleep=0.2 spends={each}", max_tokens=RESERVED)
    results = wait_for_results(some.client, *jobs, timeout=2 * seconds + 10)
    assert codes(results.values()) == [None] * len(jobs)
    served = witness.served()
    return _spent(served[:-1], each), (served[-1].started_at - began) * per_second


def _spent(served: Sequence[Served], each: int) -> int:
    return sum(each + len(one.prompt.split()) for one in served)


def calls_a_job(some: Crew, limits: dict[str, Any], jobs: int, seconds: float) -> float:
    """Run jobs that all workers want for about so many seconds; return how often jobs were asked for, for each of them."""
    some.limits(**limits)
    empty_the_bucket(some.client)
    before = claim_calls(some.client)
    push_jobs(some.client, *names(jobs), prompt="sleep=0.05 spends=500", max_tokens=RESERVED)
    wait_for_results(some.client, *names(jobs), timeout=4 * seconds)
    return (claim_calls(some.client) - before) / jobs
