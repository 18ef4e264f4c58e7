"""Tokens per minute: what is used keeps to the limit, however wrong the reservations are."""

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.acceptance.delivery import nothing_is_left
from tests.acceptance.fleet import KEYS, Client, Fleet
from tests.acceptance.gateway import (
    codes,
    push_jobs,
    send_task,
    stock_producer,
    wait_for_results,
)
from tests.acceptance.pool import GPU, Crew, crew, names, slots
from tests.waiting import wait_until
from tests.witness import Served, Witness
from worker.fleet import redis_time_ms

RESERVED: Final = 500
"""What each job is granted, but for its short prompt."""


@pytest.fixture(scope="module")
def four(standing_fleet: Fleet) -> Crew:
    """Four workers of one pool, for the whole module."""
    return crew(standing_fleet, 4)


def empty_the_bucket(client: Client) -> float:
    """Let no tokens be there; returns when, in seconds."""
    now_ms = redis_time_ms(client)
    client.hset(KEYS.pool(GPU), mapping={"tokens_level": 0, "tokens_at_ms": now_ms})
    return now_ms / 1000


def spent(served: Sequence[Served], each: int) -> int:
    """Return what these inferences used, their prompts included."""
    return sum(each + len(one.prompt.split()) for one in served)


def use_tokens(some: Crew, witness: Witness, per_second: int, each: int, seconds: float) -> tuple[float, float]:
    """Run jobs that use ``each`` for about so many seconds; return what was used by the last one's start, and what might have been."""
    some.limits(tokens=per_second * 60)
    began = empty_the_bucket(some.client)
    jobs = names(round(per_second * seconds / each))
    push_jobs(some.client, *jobs, prompt=f"sleep=0.2 spends={each}", max_tokens=RESERVED)
    results = wait_for_results(some.client, *jobs, timeout=2 * seconds + 10)
    assert codes(results.values()) == [None] * len(jobs)
    served = witness.served()
    return spent(served[:-1], each), (served[-1].started_at - began) * per_second


@pytest.mark.parametrize("each", [RESERVED // 2, 2 * RESERVED])
def test_what_is_used_keeps_to_the_limit_though_reservations_are_off_by_half(
    four: Crew, valkey: Client, witness: Witness, each: int
) -> None:
    """Jobs that use half of what was reserved, or twice as much: the average is the limit, but for what is in flight."""
    used, limit = use_tokens(four, witness, per_second=4000, each=each, seconds=5)
    in_flight = 3 * RESERVED
    assert 0.9 * limit - in_flight <= used <= limit + in_flight
    assert nothing_is_left(valkey)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("each", [RESERVED // 2, 2 * RESERVED])
def test_five_minutes_use_the_limit_within_5_percent(fleet: Fleet, witness: Witness, each: int) -> None:
    """Though each reservation is off by half; eight workers."""
    used, limit = use_tokens(crew(fleet, 8), witness, per_second=4000, each=each, seconds=300)
    assert used == pytest.approx(limit, rel=0.05)


def test_a_job_that_never_fits_is_told_so_and_the_others_go_on(
    four: Crew, valkey: Client, redis_url: str, witness: Witness
) -> None:
    """Bare or in a Celery message: it takes no slot and no tokens, and is not parked."""
    four.limits(tokens=6000)
    push_jobs(valkey, "too-big", prompt="work", max_tokens=6000)
    with stock_producer(redis_url) as producer:
        send_task(producer, "too-big-message", prompt="work", max_tokens=6000)
        send_task(producer, "message", prompt="work", max_tokens=10)
    push_jobs(valkey, "bare", prompt="work", max_tokens=10)
    results = wait_for_results(valkey, "too-big", "too-big-message", "message", "bare")

    assert codes(results.values()) == ["exceeds_pool_limit"] * 2 + [None] * 2
    assert [result.error.retryable for result in results.values() if result.error] == [False, False]
    assert [len(result.attempts) for result in results.values()] == [0, 0, 1, 1]
    assert witness.count() == 2
    assert slots(valkey) == []
    assert nothing_is_left(valkey)


Send = Callable[[str, Client, str], None]


def _bare(_: str, client: Client, job_id: str) -> None:
    push_jobs(client, job_id, prompt="work", max_tokens=900)


def _message(url: str, _: Client, job_id: str) -> None:
    with stock_producer(url) as producer:
        send_task(producer, job_id, prompt="work", max_tokens=900)


@pytest.mark.parametrize("send", [_bare, _message])
def test_jobs_that_wait_for_tokens_stay_in_their_queue_in_order(
    four: Crew, valkey: Client, redis_url: str, witness: Witness, send: Send
) -> None:
    """Whatever they come in: one whose tokens have to be learned goes back to the front, uncharged, and holds nothing."""
    four.limits(tokens=6000)
    jobs = names(4)
    for job_id in jobs:
        send(redis_url, valkey, job_id)
    wait_until(lambda: len(witness.served()) == 1 and not four.held(), description="the first has run")
    assert valkey.llen(KEYS.jobs("acme/model-1")) == 3
    assert slots(valkey) == []

    four.limits(tokens=600_000)
    results = wait_for_results(valkey, *jobs)
    assert [len(result.attempts) for result in results.values()] == [1] * 4
    started = [served.request_id.partition("/")[0] for served in witness.served()]
    assert started[0] == "j-0"
    assert nothing_is_left(valkey)
