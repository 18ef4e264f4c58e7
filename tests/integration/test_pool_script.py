"""What a pool grants: slots, requests and tokens, to whom and when, on a real Redis. Time passes by making what stands there older."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
import redis

from tasks.delivery import Standing
from tests.committer_contract import FINGERPRINT, KEYS, OTHER_MODEL, OTHER_RUN, RUN, reaped, settle
from tests.integration.bench import Ledgers, RedisBench
from tests.jobs import MODEL, attempt, job_json
from tests.redis_model import POOL, circuit_of
from worker import pool as pools
from worker.exchange import Claim, Claimed, ClaimRequest, Exchange, Known, Limit, Open, Postponed, Return, Run
from worker.fleet import redis_time_ms
from worker.ledger_terms import PoolTerms
from worker.redis_link import RedisLink

THIRD_RUN: Final = "triton-03:c"
FAST: Final = "acme/fast"
MINUTE_MS: Final = 60_000
BRIM: Final = 1_000
"""Tokens that may be taken at once, at 6000 a minute."""

PATIENCE_MS: Final = 100
"""Who has waited less lets the one that has just ended a job go on."""

A_WHILE_MS: Final = 30_000
"""Longer than any machine stands still."""

pytestmark = pytest.mark.leaves("claims:*", "jobs:*")


@dataclass
class Pool:
    """Workers of one pool; each counts its claim calls."""

    bench: RedisBench
    numbers: dict[str, int]
    link: RedisLink

    @property
    def client(self) -> redis.Redis:
        """The Redis."""
        return self.bench.client

    def limits(self, **limits: Any) -> None:
        """Set the pool's limits; those not named are off."""
        fields: dict[Any, Any] = {
            "max_concurrency": 1000,
            "requests_per_minute": "",
            "tokens_per_minute": "",
            "kept_slots": "{}",
        }
        self.client.hset(KEYS.pool(POOL), mapping=fields | limits)
        self.client.expire(KEYS.pool(POOL), 86_400)

    def push(self, *job_ids: str, model: str = MODEL, **fields: Any) -> None:
        """Enqueue jobs."""
        self.bench.push(*(job_json(job_id=job_id, model=model, **fields) for job_id in job_ids), queue=KEYS.jobs(model))

    def claim(
        self, run: str = RUN, wanted: int = 100, models: tuple[str, ...] = (MODEL,), quotas: tuple[int, ...] = ()
    ) -> Claimed:
        """Claim as a worker does."""
        self.numbers[run] = self.numbers.get(run, 0) + 1
        reply = self.bench.exchange(Exchange(claim=ClaimRequest(self.numbers[run], wanted, models, quotas=quotas)), run)
        assert reply.claimed is not None
        return reply.claimed

    def ids(self, run: str = RUN, wanted: int = 100, models: tuple[str, ...] = (MODEL,)) -> list[str | None]:
        """Claim, and return what was claimed."""
        return [one.job_id for one in self.claim(run, wanted, models).claims]

    def end(
        self,
        claims: Iterable[Claim],
        run: str = RUN,
        became: Run = Run.OVER,
        *,
        spent: int = 0,
        prompt_tokens: int = 0,
        then: ClaimRequest | None = None,
    ) -> Claimed | None:
        """Settle jobs, whose inferences are over or not, and claim in the same call."""
        commits = tuple(
            replace(settle(one), holds=one.known.holds, run=became, spent=spent, prompt_tokens=prompt_tokens)
            for one in claims
        )
        return self.bench.exchange(Exchange(commits, claim=then), run).claimed

    def opened(self, run: str, max_tokens: int) -> Known | Postponed | None:
        """Claim a message and open it, with a prompt of four bytes."""
        (one,) = self.claim(run, 1).claims
        opens = Open(one.tag, one.raw.decode(), FINGERPRINT, None, None, MODEL, 4, max_tokens)
        (known,) = self.bench.exchange(Exchange(opens=(opens,)), run).opened
        return known

    def slots(self) -> int:
        """Return how many slots stand in Redis, lapsed or not."""
        return int(self.client.zcard(KEYS.pool_slots(POOL)))

    def tokens(self) -> float:
        """Return the level of the bucket as it was left."""
        return float(self.client.hget(KEYS.pool(POOL), "tokens_level") or "nan")

    def tokens_at_ms(self) -> int:
        """Return when that was, by Redis' clock."""
        return int(self.client.hget(KEYS.pool(POOL), "tokens_at_ms") or 0)

    def refilled(self, level: float, since_ms: int) -> float:
        """Return what a level is by the last change of the bucket, at 6000 a minute: as much as Redis' own clock has passed since."""
        return level if level >= BRIM else min(BRIM, level + (self.tokens_at_ms() - since_ms) / 10)

    def fill(self, tokens: int) -> None:
        """Put tokens into the bucket, though no time has passed for who waits for them."""
        self.client.hset(KEYS.pool(POOL), mapping={"tokens_level": tokens, "tokens_at_ms": redis_time_ms(self.client)})

    def call_lastingly(self, run: str) -> None:
        """Let a worker that is called not be late, however long this test stands still before it comes."""
        assert self.is_called(run)
        self.client.incrby(f"{KEYS.pool(POOL)}:turn:{run}", A_WHILE_MS)

    def waits_since_ms(self, run: str) -> float:
        """Return since when a worker waits for a slot, by Redis' clock."""
        return float(self.client.zscore(KEYS.pool_waiting(POOL), run) or "nan")

    def pass_ms(self, ms: int) -> None:
        """Make all that the pool knows older."""
        for key in (
            KEYS.pool_slots(POOL),
            KEYS.pool_grants(POOL),
            KEYS.pool_waiting(POOL),
            KEYS.pool_thirsty(POOL),
            f"{KEYS.pool(POOL)}:active",
        ):
            members: Any = self.client.zrange(key, 0, -1)
            for member in members:
                self.client.zincrby(key, -ms, member)
        if self.client.hexists(KEYS.pool(POOL), "tokens_at_ms"):
            self.client.hincrby(KEYS.pool(POOL), "tokens_at_ms", -ms)
        for turn in self.client.scan_iter(f"{KEYS.pool(POOL)}:turn:*"):
            self.client.decrby(turn, ms)

    def start(self, max_concurrency: int) -> dict[str, str]:
        """Start a worker that is configured so; returns the limits that it replaces."""
        return pools.Pool(self.link, KEYS, PoolTerms(POOL, max_concurrency), "starting").enter()

    def is_called(self, run: str) -> bool:
        """Tell whether a worker that waits was told that it is its turn."""
        return bool(self.client.exists(f"{KEYS.pool(POOL)}:turn:{run}"))


@pytest.fixture
def pool(bench: RedisBench, ledgers: Ledgers, redis_url: str) -> Pool:
    """A pool without limits."""
    made = Pool(bench, {}, ledgers.link(redis_url))
    made.limits()
    return made


def refusal(claimed: Claimed, model: str = MODEL) -> Limit | None:
    """Return which limit was in a model's way."""
    return claimed.refused[model].limit if model in claimed.refused else None


class TestSlots:
    def test_no_more_run_than_there_are_slots(self, pool: Pool) -> None:
        """Over all workers; what is refused stays in its queue, and hears why."""
        pool.limits(max_concurrency=3)
        pool.push("a", "b", "c", "d")
        assert pool.ids(RUN, 2) == ["a", "b"]
        second = pool.claim(OTHER_RUN)
        assert ([one.job_id for one in second.claims], refusal(second)) == (["c"], Limit.SLOTS)
        assert pool.bench.queued() == [job_json(job_id="d", model=MODEL)]

    @pytest.mark.parametrize(("became", "left"), [(Run.OVER, 0), (Run.UNSTARTED, 0), (Run.ON, 1)])
    def test_an_end_gives_the_slot_back_unless_the_inference_may_be_on(
        self, pool: Pool, became: Run, left: int
    ) -> None:
        """Triton does not cancel: what may still be running there is still counted."""
        pool.limits(max_concurrency=1)
        pool.push("a", "b")
        pool.end(pool.claim().claims, became=became)
        assert pool.slots() == left
        assert pool.ids() == ([] if left else ["b"])

    def test_a_slot_that_nobody_gives_back_lapses(self, pool: Pool) -> None:
        """When its inference's timeout is over, and not before: nobody has to clear up after a dead worker."""
        pool.limits(max_concurrency=1)
        pool.push("a", "b")
        pool.claim()
        reaped(pool.bench)
        assert pool.bench.queued()[0] == job_json(job_id="a", model=MODEL)
        refused = pool.claim(OTHER_RUN)
        assert refusal(refused) is Limit.SLOTS
        pool.pass_ms(50_000)
        assert refusal(pool.claim(OTHER_RUN)) is Limit.SLOTS
        pool.pass_ms(10_001)
        assert refusal(pool.claim(OTHER_RUN)) is Limit.TURN  # The dead worker waited too, for its second job.
        pool.pass_ms(300)
        assert pool.ids(OTHER_RUN) == ["a"]

    def test_who_is_refused_hears_when_the_next_slot_lapses(self, pool: Pool) -> None:
        """At the latest; a slot that is given back rings."""
        pool.limits(max_concurrency=1)
        pool.push("a", "b")
        granted_ms = pool.claim().now_ms
        pool.pass_ms(56_000)
        claimed = pool.claim(OTHER_RUN)
        assert claimed.now_ms + (claimed.refused[MODEL].ask_again_ms or 0) == granted_ms + 4_000

    def test_a_message_that_a_dead_worker_had_not_opened_frees_its_slot(self, pool: Pool) -> None:
        """It cannot have been started."""
        pool.push("a")
        pool.bench.push(b"a message")
        assert len(pool.claim().claims) == 2
        reaped(pool.bench)
        assert pool.slots() == 1

    def test_a_drain_leaves_only_what_was_running(self, pool: Pool) -> None:
        """What goes back unstarted gives its slot back, what is broken off does not."""
        pool.push("a", "b")
        running, unstarted = pool.claim().claims
        broken_off = Return(running.tag, attempt().model_dump_json())
        pool.bench.exchange(Exchange((broken_off, Return(unstarted.tag))))
        assert pool.slots() == 1

    def test_what_is_known_to_be_over_is_freed_early(self, pool: Pool) -> None:
        """When the server refuses connections, say; a second time there is nothing to free."""
        pool.limits(max_concurrency=1)
        pool.push("a", "b")
        (one,) = pool.claim().claims
        pool.end([one], became=Run.ON)
        freed = Exchange(freed=(f"{MODEL}\n{RUN}/{one.tag}",))
        for _ in range(2):
            pool.bench.exchange(freed)
            assert pool.slots() == 0

    @pytest.mark.parametrize("standing", ["settled", "held", "cancelled", "expired"])
    def test_what_is_not_run_takes_no_slot(self, pool: Pool, standing: str) -> None:
        """Nor a request: it is only to be ended."""
        pool.limits(max_concurrency=2, requests_per_minute=100)
        if standing == "cancelled":
            pool.bench.cancel("a")
        elif standing in {"settled", "held"}:
            pool.push("a")
            claims = pool.claim(OTHER_RUN).claims
            pool.end(claims if standing == "settled" else (), OTHER_RUN)
        before = pool.slots(), pool.client.zcard(KEYS.pool_grants(POOL))
        pool.push("a", expires_at="2020-01-01T00:00:00Z" if standing == "expired" else None)
        claims = pool.claim().claims
        assert {one.known.standing for one in claims} == {Standing(standing)}
        assert {one.known.holds for one in claims} == {""}
        assert (pool.slots(), pool.client.zcard(KEYS.pool_grants(POOL))) == before

    def test_the_same_call_again_takes_no_second_slot(self, pool: Pool) -> None:
        """A repeat after a lost reply has what the first try was granted."""
        pool.push("a", "b")
        first = pool.claim(wanted=1)
        pool.numbers[RUN] -= 1
        assert pool.claim(wanted=1).claims == first.claims
        assert pool.slots() == 1


class TestRequests:
    def test_no_more_are_granted_in_any_minute(self, pool: Pool) -> None:
        """However they are spread over it; one that leaves the minute makes room for one."""
        pool.limits(requests_per_minute=3)
        pool.push(*"abcdefgh")
        assert pool.ids(RUN, 2) == ["a", "b"]
        pool.pass_ms(30_000)
        claimed = pool.claim(OTHER_RUN)
        assert ([one.job_id for one in claimed.claims], refusal(claimed)) == (["c"], Limit.REQUESTS)
        pool.pass_ms(20_000)
        assert pool.ids(OTHER_RUN) == []
        pool.pass_ms(10_001)
        assert pool.ids(OTHER_RUN) == ["d", "e"]
        pool.pass_ms(30_000)
        assert pool.ids(OTHER_RUN) == ["f"]

    def test_what_never_ran_costs_no_request(self, pool: Pool) -> None:
        """It went back: a refusal costs nothing."""
        pool.limits(requests_per_minute=1)
        pool.push("a")
        (one,) = pool.claim().claims
        pool.bench.exchange(Exchange((Return(one.tag),)))
        assert pool.ids() == ["a"]

    def test_who_waits_hears_when(self, pool: Pool) -> None:
        """Each at a time of its own: not all come at once for one request."""
        pool.limits(requests_per_minute=2)
        pool.push(*"abcdef")
        granted_ms = [pool.claim(RUN, 1).now_ms - 20_000]
        pool.pass_ms(20_000)
        granted_ms.append(pool.claim(RUN, 1).now_ms)
        told = [pool.claim(run) for run in (OTHER_RUN, THIRD_RUN)]
        times = [each.now_ms + (each.refused[MODEL].ask_again_ms or 0) for each in told]
        assert times == [at_ms + MINUTE_MS + 1 for at_ms in granted_ms]


class TestTokens:
    def test_what_a_job_may_need_is_taken_and_what_it_used_is_paid(self, pool: Pool) -> None:
        """A quarter of its prompt's bytes and its max_tokens, corrected by the true counts."""
        pool.limits(tokens_per_minute=6000)  # 1000 at once
        pool.push("a", prompt="x" * 400, max_tokens=300)
        claims = pool.claim().claims
        assert pool.tokens() == 600
        at_ms = pool.tokens_at_ms()
        pool.end(claims, spent=150, prompt_tokens=50)
        assert pool.tokens() == pytest.approx(pool.refilled(600, at_ms) + 250)

    def test_the_estimate_of_a_prompt_is_learned(self, pool: Pool) -> None:
        """By public model, from true counts."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="x" * 400, max_tokens=10)
        pool.end(pool.claim().claims, spent=410, prompt_tokens=400)
        before, at_ms = pool.tokens(), pool.tokens_at_ms()
        pool.push("b", prompt="x" * 100, max_tokens=10)
        pool.claim()
        assert pool.tokens() == pytest.approx(pool.refilled(before, at_ms) - 110)

    def test_more_than_there_is_waits(self, pool: Pool) -> None:
        """As long as it takes to refill; in its queue."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", "b", prompt="xxxx", max_tokens=699)
        claimed = pool.claim()
        assert ([one.job_id for one in claimed.claims], refusal(claimed)) == (["a"], Limit.TOKENS)
        assert 3_990 <= (claimed.refused[MODEL].ask_again_ms or 0) <= 4_001
        pool.pass_ms(4_001)
        assert pool.ids() == ["b"]

    def test_what_was_used_beyond_is_a_debt(self, pool: Pool) -> None:
        """That later grants pay, since it has to be refilled first."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", "b", prompt="xxxx", max_tokens=99)
        (a,) = pool.claim(wanted=1).claims
        at_ms = pool.tokens_at_ms()
        pool.end([a], spent=2100, prompt_tokens=1)
        assert pool.tokens() == pytest.approx(pool.refilled(900, at_ms) - 2000)
        assert refusal(pool.claim()) is Limit.TOKENS
        pool.pass_ms(12_100)
        assert pool.ids() == ["b"]

    @pytest.mark.parametrize("became", [Run.UNSTARTED, Run.OVER, Run.ON])
    def test_a_failure_gives_all_back(self, pool: Pool, became: Run) -> None:
        """Where nothing is known to be spent."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=499)
        claims = pool.claim().claims
        at_ms = pool.tokens_at_ms()
        pool.end(claims, became=became)
        assert pool.tokens() == pytest.approx(pool.refilled(500, at_ms) + 500)

    def test_more_than_is_ever_granted_is_told_so(self, pool: Pool) -> None:
        """It takes nothing, and is not parked."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=6000)
        pool.push("b", prompt="xxxx", max_tokens=1)
        a, b = pool.claim().claims
        assert (a.known.standing, a.known.holds) == (Standing.EXCEEDS, "")
        assert b.known.standing is Standing.TO_RUN
        assert pool.slots() == 1

    def test_what_fits_the_minute_but_not_the_burst_is_granted_when_that_is_full(self, pool: Pool) -> None:
        """And leaves a debt."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=4999)
        assert pool.ids() == ["a"]
        assert pool.tokens() == -4000

    def test_a_big_job_is_not_overtaken_for_ever(self, pool: Pool) -> None:
        """The model that has waited longest for tokens is first, however little others need."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", "big", prompt="xxxx", max_tokens=799)
        pool.claim(wanted=1)
        assert refusal(pool.claim()) is Limit.TOKENS
        pool.push(*"bcd", model=OTHER_MODEL, prompt="xxxx", max_tokens=9)
        assert refusal(pool.claim(OTHER_RUN, models=(OTHER_MODEL,)), OTHER_MODEL) is Limit.TOKENS
        pool.pass_ms(6_100)
        assert pool.ids() == ["big"]
        pool.pass_ms(1_000)
        assert pool.ids(OTHER_RUN, models=(OTHER_MODEL,)) == ["b", "c", "d"]

    def test_a_first_that_is_gone_is_not_waited_for(self, pool: Pool) -> None:
        """Its worker may have died, its job may have been cancelled."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", "big", prompt="xxxx", max_tokens=799)
        pool.claim(wanted=1)
        pool.claim()
        pool.push("b", model=OTHER_MODEL, prompt="xxxx", max_tokens=9)
        pool.pass_ms(7_000)
        assert pool.ids(OTHER_RUN, models=(OTHER_MODEL,)) == ["b"]

    def test_they_go_to_who_has_waited_longest(self, pool: Pool) -> None:
        """Not to whom asks first when they are there; who has had some waits behind the others."""
        pool.limits(tokens_per_minute=6000)
        pool.push(*"abcdef", prompt="xxxx", max_tokens=999)
        assert pool.ids(wanted=1) == ["a"]
        for turn in range(3):
            first, second = (OTHER_RUN, RUN) if turn % 2 == 0 else (RUN, OTHER_RUN)
            assert refusal(pool.claim(first, 1)) is Limit.TOKENS
            pool.fill(1000)
            assert refusal(pool.claim(second, 1)) is Limit.TOKENS
            assert pool.ids(first, 1) == ["bcd"[turn]]

    def test_each_who_waits_hears_a_time_of_its_own(self, pool: Pool) -> None:
        """When there is enough for all who come first, too: they do not all come for the tokens of one."""
        pool.limits(tokens_per_minute=6000)
        pool.push(*"abcd", prompt="xxxx", max_tokens=499)
        claimed = pool.claim()
        assert [one.job_id for one in claimed.claims] == ["a", "b"]
        told = [pool.claim(run) for run in (RUN, OTHER_RUN, THIRD_RUN)]
        times = [each.now_ms + (each.refused[MODEL].ask_again_ms or 0) - claimed.now_ms for each in told]
        assert times == pytest.approx([5_000, 10_000, 15_000], abs=1)

    def test_what_goes_back_calls_who_waits_for_it(self, pool: Pool) -> None:
        """As many as it is enough for; nobody has to come in vain."""
        pool.limits(tokens_per_minute=6000)
        pool.push(*"abcde", prompt="xxxx", max_tokens=499)
        claims = pool.claim(wanted=2).claims
        for run in (OTHER_RUN, THIRD_RUN):
            pool.claim(run)
        pool.end(claims[:1], spent=400, prompt_tokens=1)
        assert [pool.is_called(run) for run in (OTHER_RUN, THIRD_RUN)] == [False, False]
        pool.end(claims[1:], spent=0)
        assert [pool.is_called(run) for run in (OTHER_RUN, THIRD_RUN)] == [True, False]
        assert pool.ids(OTHER_RUN) == ["c"]

    def test_what_has_refilled_is_not_lost_by_what_goes_back(self, pool: Pool) -> None:
        """The brim is for refilling; what was reserved and not used stands above it."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=999)
        claims = pool.claim().claims
        pool.pass_ms(5_000)
        at_ms = pool.tokens_at_ms()
        pool.end(claims)
        assert pool.tokens() == pytest.approx(pool.refilled(0, at_ms) + 1000)

    def test_a_message_keeps_its_workers_place_while_it_is_opened(self, pool: Pool) -> None:
        """It is taken before its tokens are known; another worker that came later does not come first by that."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=999)
        pool.claim()
        for number, run in enumerate((OTHER_RUN, THIRD_RUN)):
            pool.bench.push(b"message %d" % number)
            assert isinstance(pool.opened(run, 499), Postponed)
            pool.client.delete(f"{KEYS.pool(POOL)}:head:{MODEL}")  # Another message is at the head, say.
        pool.fill(500)
        assert isinstance(pool.opened(THIRD_RUN, 499), Postponed)
        pool.client.delete(f"{KEYS.pool(POOL)}:head:{MODEL}")
        assert not isinstance(pool.opened(OTHER_RUN, 499), Postponed)

    def test_a_big_message_is_not_overtaken_for_ever(self, pool: Pool) -> None:
        """Once it was opened what it needs is known, so it stays at the head, where small ones cannot pass it."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=599)
        pool.claim(wanted=1)
        pool.bench.push(b"big")
        pool.push(*"bcd", prompt="xxxx", max_tokens=399)
        assert isinstance(pool.opened(RUN, 999), Postponed)
        for run in (RUN, OTHER_RUN, THIRD_RUN):
            claimed = pool.claim(run)
            assert (claimed.claims, refusal(claimed)) == ((), Limit.TOKENS)
        pool.pass_ms(6_001)
        big, *small = pool.claim(RUN).claims
        assert (big.raw, [one.job_id for one in small]) == (b"big", [])
        assert pool.tokens() == 0
        at_ms = pool.tokens_at_ms()
        (known,) = pool.bench.exchange(
            Exchange(opens=(Open(big.tag, "big", FINGERPRINT, None, None, MODEL, 4, 999),))
        ).opened
        assert isinstance(known, Known)
        assert (known.standing, known.holds) == (Standing.TO_RUN, big.known.holds)
        assert pool.tokens() == pytest.approx(pool.refilled(0, at_ms))

    def test_a_message_whose_limit_was_lowered_is_opened_and_told_so(self, pool: Pool) -> None:
        """It waited for tokens, and could never fit any more."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=799)
        pool.claim()
        pool.bench.push(b"big")
        assert isinstance(pool.opened(RUN, 899), Postponed)
        pool.client.hset(KEYS.pool(POOL), "tokens_per_minute", 600)
        known = pool.opened(RUN, 899)
        assert isinstance(known, Known)
        assert known.standing is Standing.EXCEEDS

    @pytest.mark.parametrize(
        ("before", "after", "left"),
        [(60_000, 600, 100), (None, 600, 100), (600, 60_000, 100), (600, 600, 100)],
        ids=["lower", "new", "higher", "same"],
    )
    def test_what_was_put_by_under_another_limit_is_not_granted_under_this_one(
        self, pool: Pool, before: int | None, after: int, left: int
    ) -> None:
        """Ten seconds of the limit that is in force may be taken at once, and no more."""
        pool.limits(tokens_per_minute=before or "")
        pool.client.hset(KEYS.pool(POOL), mapping={"tokens_level": (before or 60_000) / 6, "tokens_at_ms": 1})
        pools.Pool(pool.link, KEYS, PoolTerms(POOL, 1000, None, after), "starting").enter()
        assert pool.tokens() == left

    def test_who_waits_for_tokens_asks_again_when_the_limit_changes(self, pool: Pool) -> None:
        """There are not enough yet, but they come in faster than it was told."""
        pool.limits(tokens_per_minute=600)
        pool.push("a", "b", prompt="xxxx", max_tokens=499)
        pool.claim()
        for run in (OTHER_RUN, THIRD_RUN):
            assert refusal(pool.claim(run)) is Limit.TOKENS
        pools.Pool(pool.link, KEYS, PoolTerms(POOL, 1000, None, 6_000), "starting").enter()
        assert [pool.is_called(run) for run in (OTHER_RUN, THIRD_RUN)] == [True, True]
        assert refusal(pool.claim(OTHER_RUN)) is Limit.TOKENS

    def test_a_debt_is_owed_under_another_limit_too(self, pool: Pool) -> None:
        """It is not forgiven by a newer start."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", prompt="xxxx", max_tokens=4999)
        pool.claim()
        at_ms = pool.tokens_at_ms()
        pools.Pool(pool.link, KEYS, PoolTerms(POOL, 1000, None, 600), "starting").enter()
        assert pool.tokens() == pytest.approx(pool.refilled(-4000, at_ms))

    def test_who_waits_for_tokens_is_called_when_there_is_no_limit_any_more(self, pool: Pool) -> None:
        """Or a higher one."""
        pool.limits(tokens_per_minute=6000)
        pool.push("a", "b", prompt="xxxx", max_tokens=999)
        pool.claim()
        pool.claim(OTHER_RUN)
        pool.start(1000)
        assert pool.is_called(OTHER_RUN)
        assert pool.ids(OTHER_RUN) == ["b"]

    def test_the_tokens_of_messages_are_counted_when_they_are_opened(self, pool: Pool) -> None:
        """One of a model at a time is taken unread; without tokens it goes back to the front, and costs nothing."""
        pool.limits(tokens_per_minute=6000, requests_per_minute=10)
        pool.bench.push(b"message a", b"message b")
        claimed = pool.claim()
        (one,) = claimed.claims
        assert refusal(claimed) is Limit.OPENING
        opens = Open(one.tag, "a", FINGERPRINT, None, None, MODEL, 4, 699)
        (known,) = pool.bench.exchange(Exchange(opens=(opens,))).opened
        assert known is not None
        assert pool.tokens() == 300
        enough_ms = pool.tokens_at_ms() + 4_000
        (two,) = pool.claim().claims
        opens = Open(two.tag, "b", FINGERPRINT, None, None, MODEL, 4, 699)
        before_ms = redis_time_ms(pool.client)
        (postponed,) = pool.bench.exchange(Exchange(opens=(opens,))).opened
        after_ms = redis_time_ms(pool.client)
        assert isinstance(postponed, Postponed)
        assert enough_ms - after_ms <= postponed.ask_again_ms <= enough_ms - before_ms + 1
        assert pool.bench.queued() == [b"message b"]
        assert (pool.slots(), pool.client.zcard(KEYS.pool_grants(POOL)), pool.tokens()) == (1, 1, 300)

    def test_a_message_that_could_never_fit_is_told_so(self, pool: Pool) -> None:
        """As a bare job is."""
        pool.limits(tokens_per_minute=600)
        pool.bench.push(b"message")
        (one,) = pool.claim().claims
        (known,) = pool.bench.exchange(
            Exchange(opens=(Open(one.tag, "a", FINGERPRINT, None, None, MODEL, 4, 600),))
        ).opened
        assert not isinstance(known, Postponed)
        assert known is not None
        assert (known.standing, known.holds) == (Standing.EXCEEDS, "")
        assert pool.slots() == 0


class TestTurns:
    def test_a_slot_goes_to_who_has_waited_longest(self, pool: Pool) -> None:
        """Not to whom it was taken from, however quick that is to ask again."""
        pool.limits(max_concurrency=1)
        pool.push(*"abcdef")
        for turn in range(4):
            run, other = (RUN, OTHER_RUN) if turn % 2 == 0 else (OTHER_RUN, RUN)
            claims = pool.claim(run, 1).claims
            assert [one.job_id for one in claims] == ["abcdef"[turn]]
            assert refusal(pool.claim(other, 1)) is Limit.SLOTS
            pool.pass_ms(200)
            pool.end(claims, run)
            pool.call_lastingly(other)
            assert refusal(pool.claim(run, 1)) is Limit.TURN

    def test_a_short_wait_is_not_worth_a_handover(self, pool: Pool) -> None:
        """The one that has just ended a job goes on, for a moment."""
        pool.limits(max_concurrency=1)
        pool.push(*"abc")
        claims = pool.claim(RUN, 1).claims
        pool.claim(OTHER_RUN, 1)
        since_ms = pool.waits_since_ms(OTHER_RUN)
        claimed = pool.end(claims, then=ClaimRequest(pool.numbers[RUN] + 1, 1, (MODEL,)))
        assert claimed is not None
        # Where the machine stood still meanwhile the wait was no short one, by the clock that the script goes by.
        goes_on = claimed.now_ms - since_ms < PATIENCE_MS
        assert [one.job_id for one in claimed.claims] == (["b"] if goes_on else [])

    def test_who_is_called_and_does_not_come_loses_its_turn(self, pool: Pool) -> None:
        """It may be dead; the next one is called."""
        pool.limits(max_concurrency=1)
        pool.push(*"abc")
        claims = pool.claim(RUN, 1).claims
        pool.claim(OTHER_RUN, 1)
        pool.pass_ms(200)
        pool.claim(THIRD_RUN, 1)
        pool.pass_ms(200)
        pool.end(claims)
        assert (pool.is_called(OTHER_RUN), pool.is_called(THIRD_RUN)) == (True, False)
        pool.pass_ms(300)
        assert pool.ids(THIRD_RUN, 1) == ["b"]

    def test_a_turn_that_is_not_used_is_passed_on(self, pool: Pool) -> None:
        """Whoever comes and finds no job for it calls the next."""
        pool.limits(max_concurrency=1)
        pool.push("a", "b")
        claims = pool.claim(RUN, 1).claims
        pool.claim(OTHER_RUN, 1)
        pool.pass_ms(200)
        pool.claim(THIRD_RUN, 1)
        pool.pass_ms(200)
        pool.end(claims)
        assert pool.claim(OTHER_RUN, 1, models=(FAST,)).claims == ()
        assert pool.is_called(THIRD_RUN)

    def test_more_slots_call_more_who_wait(self, pool: Pool) -> None:
        """As many as there is room for, when limits are raised."""
        pool.limits(max_concurrency=1)
        pool.push(*"abcd")
        pool.claim(RUN, 1)
        for run in (OTHER_RUN, THIRD_RUN):
            pool.claim(run, 1)
        assert pool.start(2) == {"max_concurrency": "1"}
        assert (pool.is_called(OTHER_RUN), pool.is_called(THIRD_RUN)) == (True, False)
        assert pool.start(2) == {}

    def test_who_has_its_slots_filled_waits_no_more(self, pool: Pool) -> None:
        """Else a turn would be kept for a worker that cannot use it."""
        pool.limits(max_concurrency=1)
        pool.push(*"ab")
        claims = pool.claim(RUN, 1).claims
        pool.claim(OTHER_RUN, 1)
        pool.end(claims)
        pool.pass_ms(200)
        pool.claim(OTHER_RUN, 0)
        assert pool.client.zcard(KEYS.pool_waiting(POOL)) in (0, 1)


class TestShares:
    def test_a_model_that_had_work_has_a_slot_kept(self, pool: Pool) -> None:
        """A backlog of another takes all but that."""
        pool.limits(max_concurrency=4)
        pool.push("f1", model=FAST)
        pool.end(pool.claim(models=(FAST,)).claims)
        pool.push(*"abcdef")
        assert pool.ids(models=(MODEL, FAST)) == ["a", "b", "c"]
        pool.push("f2", model=FAST)
        assert pool.ids(models=(MODEL, FAST)) == ["f2"]

    def test_a_job_that_does_not_run_is_no_work(self, pool: Pool) -> None:
        """Such as one that could never fit: nothing is kept for the next of its like."""
        pool.limits(max_concurrency=4, tokens_per_minute=6000)
        pool.push("f1", model=FAST, max_tokens=7000)
        pool.end(pool.claim(models=(FAST,)).claims)
        pool.push(*"abcdef", prompt="xxxx", max_tokens=1)
        assert pool.ids(models=(MODEL, FAST)) == ["a", "b", "c", "d"]

    def test_what_is_idle_for_a_minute_is_lent(self, pool: Pool) -> None:
        """A model that has no work any more keeps nothing from others."""
        pool.limits(max_concurrency=4)
        pool.push("f1", model=FAST)
        pool.end(pool.claim(models=(FAST,)).claims)
        pool.pass_ms(MINUTE_MS + 1)
        pool.push(*"abcdef")
        assert pool.ids(models=(MODEL, FAST)) == ["a", "b", "c", "d"]

    def test_shares_are_configurable(self, pool: Pool) -> None:
        """More than one slot, or none."""
        pool.limits(max_concurrency=8, kept_slots=f'{{"{FAST}":3,"{OTHER_MODEL}":0}}')
        for model in (FAST, OTHER_MODEL):
            pool.push("x" + model[-1], model=model)
            pool.end(pool.claim(models=(model,)).claims)
        pool.push(*"abcdefgh")
        assert pool.ids() == ["a", "b", "c", "d", "e"]

    def test_a_quarter_can_always_be_borrowed(self, pool: Pool) -> None:
        """However many models had work lately."""
        pool.limits(max_concurrency=4)
        for n in range(10):
            pool.push(f"m{n}", model=f"acme/m{n}")
            pool.end(pool.claim(models=(f"acme/m{n}",)).claims)
        pool.push(*"abcdef")
        assert pool.ids() == ["a"]
        pool.pass_ms(200)
        assert pool.ids() == []

    def test_who_waits_for_its_share_comes_before_borrowers(self, pool: Pool) -> None:
        """Also before those that have waited longer."""
        pool.limits(max_concurrency=2)
        pool.push(*"abcdef")
        claims = pool.claim(RUN, 2).claims
        assert refusal(pool.claim(OTHER_RUN, 1)) is Limit.SLOTS
        pool.pass_ms(200)
        pool.push("f", model=FAST)
        assert refusal(pool.claim(THIRD_RUN, 1, (FAST,)), FAST) is Limit.SLOTS
        pool.end(claims[:1])
        assert (pool.is_called(THIRD_RUN), pool.is_called(OTHER_RUN)) == (True, False)
        pool.call_lastingly(THIRD_RUN)
        assert pool.ids(OTHER_RUN, 1) == []
        assert pool.ids(THIRD_RUN, 1, (FAST,)) == ["f"]

    def test_quotas_of_a_worker_are_kept(self, pool: Pool) -> None:
        """So many of each model, in turn."""
        pool.push(*"abc")
        pool.push(*"xyz", model=OTHER_MODEL)
        claimed = pool.claim(RUN, 4, (MODEL, OTHER_MODEL), quotas=(1, 3))
        assert [one.job_id for one in claimed.claims] == ["a", "x", "y", "z"]


class TestCircuits:
    @pytest.fixture
    def state(self, pool: Pool) -> Callable[[str], None]:
        """Set the state of MODEL's circuit."""

        def write(state: str) -> None:
            pool.client.hset(f"{KEYS.prefix}circuit:{circuit_of(MODEL)}", "state", state)
            pool.client.expire(f"{KEYS.prefix}circuit:{circuit_of(MODEL)}", 60)

        return write

    def test_an_open_one_keeps_jobs_where_they_are(self, pool: Pool, state: Callable[[str], None]) -> None:
        """Jobs of other models are taken."""
        pool.push("a")
        pool.push("x", model=OTHER_MODEL)
        state("open")
        claimed = pool.claim(models=(MODEL, OTHER_MODEL))
        assert [one.job_id for one in claimed.claims] == ["x"]
        assert (refusal(claimed), refusal(claimed, OTHER_MODEL)) == (Limit.CIRCUIT, None)
        state("closed")
        assert pool.ids() == ["a"]

    def test_a_half_open_one_lets_few_through(self, pool: Pool, state: Callable[[str], None]) -> None:
        """So many at a time, over all workers; each that ends makes room for one."""
        pool.push(*"abcdef")
        state("half_open")
        first = pool.claim(RUN, 2).claims
        second = pool.claim(OTHER_RUN)
        assert [[one.job_id for one in claims] for claims in (first, second.claims)] == [["a", "b"], ["c"]]
        assert refusal(second) is Limit.PROBES
        pool.end(first[:1])
        assert pool.ids(OTHER_RUN) == ["d"]

    def test_a_probe_that_never_ran_lets_another_job_go_first(self, pool: Pool, state: Callable[[str], None]) -> None:
        """One bad job at the head cannot hold a circuit open; nor does it lose more than one place."""
        pool.push(*"abc")
        state("half_open")
        (one,) = pool.claim(wanted=1).claims
        pool.bench.exchange(Exchange((Return(one.tag),)))
        assert [job_json(job_id=job_id, model=MODEL) for job_id in "bac"] == pool.bench.queued()
        assert not pool.client.exists(f"{KEYS.prefix}probes:{circuit_of(MODEL)}")

    def test_a_probe_of_a_dead_worker_is_forgotten(self, pool: Pool, state: Callable[[str], None]) -> None:
        """Else it would be counted for ever."""
        pool.push(*"abcd")
        state("half_open")
        pool.claim(RUN, 3)
        reaped(pool.bench)
        assert len(pool.ids(OTHER_RUN)) == 3

    def test_a_paused_model_is_left_alone(self, pool: Pool) -> None:
        """By all workers, until it is resumed; jobs that have ended are still ended."""
        pool.push("a")
        pool.client.sadd(KEYS.paused, MODEL)
        assert refusal(pool.claim()) is Limit.PAUSED
        pool.client.srem(KEYS.paused, MODEL)
        assert pool.ids() == ["a"]
