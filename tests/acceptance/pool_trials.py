"""What workers of a pool are put through, in short and at length; each trial returns or checks what has to be so."""

import random
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tasks import rfc3339
from tasks.result import GenerateResult
from tasks.usage import Usage
from tests.acceptance.delivery import attempt_codes
from tests.acceptance.fleet import KEYS, Client
from tests.acceptance.gateway import codes, push_jobs, wait_for_results
from tests.acceptance.pool import (
    GPU,
    Crew,
    at_its_best,
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

DETECTION_SECONDS: Final = 3.5
"""How much later than it lapses a slot may be used: a worker that waits for it has its own timer, on a machine that may stall meanwhile.

Less than a sweep, in which it would be found by chance.
"""

RESERVED: Final = 500
"""Tokens that each job is granted, but for its short prompt."""

CALLS_A_JOB: Final = 4
"""How often jobs are asked for, for each that is granted: by who gets it, by who has ended one, and by a few in vain."""


def share_of_the_ideal(
    some: Crew, witness: Witness, jobs: int, seconds: float, *, in_a_row: int | None = None
) -> float:
    """Run jobs of so many seconds in three slots; return which part of the rate that they could have, they had.

    Never a fourth is in Triton, every worker has at least half of its part of the jobs, and all slots are back at the end. Rate and
    parts are those of all jobs, or of so many ``in_a_row``, at their best.
    """
    some.limits(LIMIT)
    push_jobs(some.client, *names(jobs), prompt=f"sleep={seconds} work")
    results = wait_for_results(some.client, *names(jobs), timeout=4 * jobs * seconds / LIMIT + 30)
    assert witness.most_at_once() == LIMIT
    assert slots(some.client) == []
    judged = in_a_row or jobs

    def least_part(served: Sequence[Served]) -> float:
        parts = Counter(results[one.request_id.partition("/")[0]].worker_id for one in served)
        return min(parts[worker.worker_id] for worker in some.workers) * len(some.workers) / len(served)

    served = witness.served()
    assert at_its_best(served, least_part, judged) >= 1 / 2
    return at_its_best(served, lambda some_of_them: judged * seconds / LIMIT / seconds_of(some_of_them), judged)


def kill_now_and_then(some: Crew, witness: Witness, jobs: int, seconds: float, kills: int, draw: random.Random) -> None:
    """Kill one of those that run jobs, so many times over the course of so many jobs; each is started again.

    Every job is settled once, never a fourth is in Triton, and in the end all slots are back.
    """
    some.limits(LIMIT)
    push_jobs(some.client, *names(jobs), prompt=f"sleep={seconds} work")
    left = set[bytes]()
    for kill in range(kills):
        _wait_for_settled(some.client, (kill + draw.random()) * 0.9 * jobs / kills)
        some.replace(_killed(some, draw, left))
    results = wait_for_results(some.client, *names(jobs), timeout=120)
    assert codes(results.values()) == [None] * jobs
    assert sum(attempt_codes(result) != [None] for result in results.values()) >= kills / 2
    assert witness.most_at_once() == LIMIT
    wait_until_slots(some.client, 0, timeout=some.lapse_seconds + DETECTION_SECONDS)


def _killed(some: Crew, draw: random.Random, left: set[bytes]) -> int:
    """Kill a worker that has a job, and return its number; its claims are added to those that dead ones have ``left``.

    Jobs are short, so it is stopped before its claims are looked at.
    """

    def killed() -> list[int]:
        number = draw.randrange(len(some.workers))
        victim = some.workers[number]
        victim.signal(signal.SIGSTOP)
        claims = {*some.client.scan_iter(KEYS.claims(f"{victim.worker_id}:*"))} - left
        if not claims:
            victim.signal(signal.SIGCONT)
            return []
        victim.kill()
        left.update(claims)
        return [number]

    return wait_until(killed, description="one is busy", timeout=60)[0]


def _wait_for_settled(client: Client, jobs: float) -> None:
    wait_until(lambda: client.xlen(KEYS.settlements) >= jobs, description=f"{jobs} jobs are settled", timeout=60)


def use_tokens(some: Crew, per_second: int, each: int, seconds: float) -> int:
    """Run jobs that use ``each`` for about so many seconds; return since when, in Redis' unix ms, from an empty bucket."""
    some.limits(tokens=per_second * 60)
    began_ms = empty_the_bucket(some.client)
    jobs = names(round(per_second * seconds / each))
    push_jobs(some.client, *jobs, prompt=f"sleep=0.2 spends={each}", max_tokens=RESERVED)
    results = wait_for_results(some.client, *jobs, timeout=2 * seconds + 30)
    assert codes(results.values()) == [None] * len(jobs)
    return began_ms


def used_and_limit(witness: Witness, began_ms: int, per_second: int, each: int) -> tuple[float, float]:
    """Return what was used by the last job's start, and what might have been."""
    *before, last = witness.served()
    return sum(each + len(one.prompt.split()) for one in before), (last.started_at - began_ms / 1000) * per_second


def overdraft(client: Client, began_ms: int, each: int, per_second: int) -> float:
    """Return how many more tokens were out than had come in, at the worst grant: by Redis' own times, whatever stood still meanwhile.

    Of jobs that had ended by then that is what they used, of the others what they had reserved. The bucket was empty at first.
    """
    runs = []
    for stream_id, fields in client.xrange(KEYS.settlements):
        result = GenerateResult.model_validate_json(fields[b"result"])
        granted_ms = rfc3339.to_ms(rfc3339.parse(result.attempts[0].started_at)) - (result.timings.pool_wait_ms or 0)
        runs.append((granted_ms, int(stream_id.partition(b"-")[0])))
    runs.sort()

    def out(now_ms: int, ended_ms: int) -> int:
        if abs(ended_ms - now_ms) <= 1:  # Which of both was first cannot be told.
            return min(each, RESERVED)
        return each if ended_ms < now_ms else RESERVED

    return max(
        sum(out(now_ms, ended_ms) for _, ended_ms in runs[: n + 1]) - (now_ms + 1 - began_ms) / 1000 * per_second
        for n, (now_ms, _) in enumerate(runs)
    )


def tokens_lost(client: Client, began_ms: int, per_second: int) -> float:
    """Return how many tokens have come in that neither were used nor are there, now that all jobs have ended."""
    fields = client.hgetall(KEYS.pool(GPU))
    came_in = (int(fields[b"tokens_at_ms"]) - began_ms) / 1000 * per_second
    results = (GenerateResult.model_validate_json(entry[b"result"]) for _, entry in client.xrange(KEYS.settlements))
    used = sum(result.usage.total_tokens for result in results if isinstance(result.usage, Usage))
    return came_in - used - float(fields[b"tokens_level"])


def calls_a_job(some: Crew, limits: dict[str, Any], jobs: int, seconds: float) -> float:
    """Run jobs that all workers want for about so many seconds; return how often jobs were asked for, for each of them."""
    some.limits(**limits)
    empty_the_bucket(some.client)
    before = claim_calls(some.client)
    push_jobs(some.client, *names(jobs), prompt="sleep=0.05 spends=500", max_tokens=RESERVED)
    wait_for_results(some.client, *names(jobs), timeout=4 * seconds + 30)
    return (claim_calls(some.client) - before) / jobs
