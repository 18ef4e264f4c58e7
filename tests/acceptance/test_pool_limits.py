"""Requests and tokens per minute hold over all workers, and waiting for them, or for a slot, costs next to nothing."""

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.acceptance.delivery import nothing_is_left
from tests.acceptance.fleet import KEYS, Client, Fleet
from tests.acceptance.gateway import QUEUE, codes, push_jobs, send_task, stock_producer, wait_for_results
from tests.acceptance.pool import GPU, MINUTE_MS, Crew, claim_calls, crew, empty_the_bucket, grants, names, slots
from tests.acceptance.pool_trials import CALLS_A_JOB, RESERVED, calls_a_job, overdraft, tokens_lost, use_tokens
from tests.waiting import wait_until
from tests.witness import Witness
from worker.fleet import redis_time_ms
from worker.lookout import SWEEP_MS

WATCHED_MS: Final = 1_500
"""How long workers that wait are watched."""

AT_ONCE_SECONDS: Final = 0.8 * SWEEP_MS / 1000
"""Sooner than the next sweep, for those that have just swept."""

LEAVE_MS: Final = 2_000
"""In what time grants leave the minute that a test has made older."""

PATIENT: Final[dict[str, Any]] = {
    "lease_seconds": 10,
    "runtime_config": {"model_name": "text_generation", "timeout_seconds": 60},
}
"""A worker that stands still for a moment is not taken for dead, nor is a request given up: either would be one more request."""


@pytest.fixture(scope="module")
def four(standing_fleet: Fleet) -> Crew:
    """Four workers of one pool, for the whole module."""
    return crew(standing_fleet, 4, **PATIENT)


class TestRequests:
    def test_no_more_are_granted_than_the_limit_whoever_asks(
        self, four: Crew, valkey: Client, witness: Witness
    ) -> None:
        """As many at once as the minute has left; each that leaves the minute makes room for one, and who waits takes it."""
        four.limits(requests=20)
        push_jobs(valkey, *names(60), prompt="work")
        wait_until(lambda: witness.count() == 20, description="twenty run")
        self.wait_until_all_wait(valkey, four)
        assert len(grants(valkey)) == 20

        self.leave_in(valkey, 0, 5)
        four.limits(requests=21)  # It lets those who wait look again, as a minute that passes would not.
        wait_until(lambda: witness.count() >= 26, description="five more run, and one")
        self.wait_until_all_wait(valkey, four)
        assert (witness.count(), len(grants(valkey))) == (26, 21)

        left_ms = self.leave_in(valkey, LEAVE_MS, 3)
        four.limits(requests=22)
        # Those who wait were told when by grants that the test has changed since: whoever sweeps next finds it at the latest.
        wait_until(lambda: witness.count() >= 30, description="one more runs, then three")
        self.wait_until_all_wait(valkey, four)
        assert (witness.count(), len(grants(valkey))) == (30, 22)
        assert min(sorted(grants(valkey).values())[-3:]) >= left_ms
        assert valkey.llen(QUEUE) == 30

    def test_a_raised_limit_is_used_at_once_by_those_who_wait(
        self, four: Crew, valkey: Client, witness: Witness
    ) -> None:
        """They are called; nobody has to wait for the next look."""
        four.limits(requests=5)
        push_jobs(valkey, *names(30), prompt="work")
        wait_until(lambda: witness.count() == 5, description="five run")
        self.wait_until_all_wait(valkey, four)
        wait_until_all_have_swept(valkey, four)
        four.limits(requests=30)
        wait_for_results(valkey, *names(30), timeout=AT_ONCE_SECONDS)
        assert witness.count() == 30

    @staticmethod
    def wait_until_all_wait(client: Client, some: Crew) -> None:
        """Return when every worker stands in line."""
        line = KEYS.pool_waiting(GPU)
        wait_until(lambda: client.zcard(line) == len(some.workers), description="all workers wait")

    @staticmethod
    def leave_in(client: Client, ms: int, count: int) -> int:
        """Make the oldest grants so old that they leave the minute in so many ms; return when, in Redis' unix ms."""
        left_ms: int = redis_time_ms(client) + ms
        for member in list(grants(client))[:count]:
            client.zadd(KEYS.pool_grants(GPU), {member: left_ms - MINUTE_MS}, xx=True)
        return left_ms


def wait_until_all_have_swept(client: Client, some: Crew) -> None:
    """Return when workers that wait have each asked once more: they began together, so the next sweep of all is far off."""
    before = claim_calls(client)
    wait_until(lambda: claim_calls(client) - before >= len(some.workers), description="all have swept")


Send = Callable[[str, Client, str], None]


SPENDER: Final = "spends=4000 work"
"""Uses so much more than it reserves that the next one has to wait for longer than a test takes."""


def _bare(_: str, client: Client, job_id: str) -> None:
    push_jobs(client, job_id, prompt=SPENDER, max_tokens=900)


def _message(url: str, _: Client, job_id: str) -> None:
    with stock_producer(url) as producer:
        send_task(producer, job_id, prompt=SPENDER, max_tokens=900)


def job_id_of(raw: bytes) -> str:
    """Return the id of a job, bare or in a message."""
    content = json.loads(raw)
    job = content if "job_id" in content else json.loads(base64.b64decode(content["body"]))[0][0]
    return str(job["job_id"])


class TestTokens:
    @pytest.mark.parametrize("each", [RESERVED // 2, 2 * RESERVED])
    def test_what_is_used_keeps_to_the_limit_though_reservations_are_off_by_half(
        self, four: Crew, valkey: Client, each: int
    ) -> None:
        """Jobs that use half of what was reserved, or twice as much: nothing is granted that is not there, and nothing gets lost."""
        began_ms = use_tokens(four, 4000, each, 3)
        assert overdraft(valkey, began_ms, each, 4000) <= 0
        assert tokens_lost(valkey, began_ms, 4000) == pytest.approx(0, abs=1)
        assert nothing_is_left(valkey)

    def test_a_job_that_never_fits_is_told_so_and_the_others_go_on(
        self, four: Crew, valkey: Client, redis_url: str, witness: Witness
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

    @pytest.mark.parametrize("send", [_bare, _message])
    def test_jobs_that_wait_stay_in_their_queue_in_order(
        self, four: Crew, valkey: Client, redis_url: str, witness: Witness, send: Send
    ) -> None:
        """Whatever they come in: one whose tokens have to be learned goes back to the front, uncharged, and holds nothing."""
        four.limits(tokens=6000)
        jobs = names(4)
        for job_id in jobs:
            send(redis_url, valkey, job_id)

        def all_but_the_first_wait() -> bool:
            queue = [job_id_of(raw) for raw in reversed(valkey.lrange(QUEUE, 0, -1))]
            return witness.count() == 1 and queue == jobs[1:] and not slots(valkey)

        wait_until(all_but_the_first_wait, description="the first has run")
        four.limits()
        results = wait_for_results(valkey, *jobs, timeout=AT_ONCE_SECONDS)
        assert [len(result.attempts) for result in results.values()] == [1] * 4
        assert nothing_is_left(valkey)


class TestWaiting:
    @pytest.mark.parametrize(
        ("limits", "prompt"),
        [({"max_concurrency": 1}, "sleep=6 work"), ({"requests": 1}, "work"), ({"tokens": 600}, "work")],
        ids=["slots", "requests", "tokens"],
    )
    def test_workers_that_wait_do_not_ask_again_and_again(
        self, four: Crew, valkey: Client, limits: dict[str, Any], prompt: str
    ) -> None:
        """While nothing changes each looks once a sweep, by the commands that Redis counted."""
        four.limits(**limits)
        empty_the_bucket(valkey)
        jobs = names(16)
        push_jobs(valkey, jobs[0], prompt=prompt, max_tokens=590)
        push_jobs(valkey, *jobs[1:], prompt="work", max_tokens=590)
        line = KEYS.pool_thirsty(GPU) if "tokens" in limits else KEYS.pool_waiting(GPU)
        wait_until(lambda: valkey.zcard(line) == len(four.workers), description="all workers wait")

        calls, watched_ms = self.calls_while_nothing_changes(valkey)
        assert calls <= len(four.workers) * (1 + watched_ms / SWEEP_MS)
        four.limits()
        wait_for_results(valkey, *jobs)

    @pytest.mark.usefixtures("valkey")
    @pytest.mark.parametrize("limits", [{"max_concurrency": 1}, {"tokens": 600_000}], ids=["slots", "tokens"])
    def test_what_becomes_free_calls_those_who_can_have_it_and_not_all(
        self, four: Crew, limits: dict[str, Any]
    ) -> None:
        """No herd: few asked in vain for each that got a job."""
        assert calls_a_job(four, limits, 40, 2) <= CALLS_A_JOB

    @staticmethod
    def calls_while_nothing_changes(client: Client) -> tuple[int, int]:
        """Return how often workers ask for jobs, in some time after all have asked, and how long that was in ms."""
        seen = [(-1, 0)]

        def has_passed(quiet_ms: int) -> bool:
            calls, now_ms = claim_calls(client), redis_time_ms(client)
            if calls != seen[0][0]:
                seen[0] = calls, now_ms
            return now_ms - seen[0][1] > quiet_ms

        wait_until(lambda: has_passed(100), description="all have asked")
        began_ms, before = redis_time_ms(client), claim_calls(client)
        wait_until(lambda: redis_time_ms(client) - began_ms > WATCHED_MS, description="time has passed", interval=0.1)
        return claim_calls(client) - before, redis_time_ms(client) - began_ms
