"""Workers of one pool claim, end jobs, die and come back at random: nothing is granted that a reference limiter would not grant.

No slot leaks, no request or token is counted twice, and nobody who waits is forgotten.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any, Final

import pytest
import redis

from tasks.delivery import Standing
from tests.committer_contract import KEYS, lease_of, settle
from tests.integration.bench import RedisBench
from tests.jobs import attempt, job_json
from tests.pool_reference import Limiter, Need
from tests.redis_model import POOL
from worker.exchange import Claim, Claimed, ClaimRequest, Commit, Exchange, Limit, Return, Run
from worker.fleet import redis_time_ms

MODELS: Final = ("acme/a", "acme/b", "acme/c")
WORKERS: Final = tuple(f"worker-{n}" for n in range(5))
SLOT_MS: Final = 60_000
IN_LINE: Final = frozenset({Limit.SLOTS, Limit.REQUESTS, Limit.TURN})
JUST_NOW_MS: Final = 100
"""What lapses within this time may be there or not."""
AGED: Final = ("slots", "grants", "waiting", "thirsty", "active")


@dataclass
class Worker:
    """A run of a worker."""

    name: str
    number: int = 0
    claims: list[Claim] = field(default_factory=list)


@dataclass
class Ends:
    """How some jobs end; ``told`` tells the limiter of those that held something, at a time."""

    commits: list[Commit] = field(default_factory=list)
    told: list[Callable[[Limiter, float], None]] = field(default_factory=list)

    def add(self, commit: Commit | None, name: str, **how: Any) -> None:
        """Let one end so, by a commit or by the end of its worker."""
        if commit is not None:
            self.commits.append(commit)
        self.told.append(lambda limiter, at_ms: limiter.ended(name, at_ms, **how))


@dataclass
class Walk:
    """The steps; ``past_ms`` is how much older everything was made than it is."""

    bench: RedisBench
    random: Random
    limiter: Limiter
    past_ms: int = 0
    now_ms: float = 0.0
    workers: list[Worker] = field(default_factory=lambda: [Worker(f"{name}:0") for name in WORKERS])
    serial: Iterator[int] = field(default_factory=count)

    @property
    def client(self) -> redis.Redis:
        """The Redis."""
        return self.bench.client

    def step(self) -> None:
        """Do something."""
        worker = self.random.choice(self.workers)
        match self.random.choice(["push", "claim", "claim", "claim", "end", "end", "end and claim", "die", "wait"]):
            case "push":
                self.push()
            case "claim":
                self.exchange(worker, Ends(), claims=True)
            case "end":
                self.exchange(worker, self.ends(worker), claims=False)
            case "end and claim":
                self.exchange(worker, self.ends(worker), claims=True)
            case "die" if self.random.random() < 0.2:
                self.die(worker)
            case "wait":
                self.wait(self.random.choice([10, 300, 3_000, 20_000, 61_000]))
        self.check()

    def push(self) -> None:
        """Enqueue some jobs."""
        model = self.random.choice(MODELS)
        for _ in range(self.random.randint(1, 4)):
            size = self.random.choice([4, 40, 400])
            tokens = self.random.choice([1, 10, 100])
            raw = job_json(job_id=f"j-{next(self.serial)}", model=model, prompt="x" * size, max_tokens=tokens)
            self.client.lpush(KEYS.jobs(model), raw)

    def ends(self, worker: Worker) -> Ends:
        """Draw how some of a worker's jobs end."""
        ends = Ends()
        for one in self.random.sample(worker.claims, min(len(worker.claims), self.random.randint(0, 3))):
            worker.claims.remove(one)
            name = f"{worker.name}/{one.tag}"
            if not one.known.holds:
                ends.commits.append(replace(settle(one), run=Run.UNSTARTED))
                continue
            match self.random.choice(["settled", "settled", "unstarted", "broken off", "lost"]):
                case "settled":
                    prompt = self.random.randint(1, 200)
                    spent = prompt + self.random.randint(0, 200)
                    settled = replace(
                        settle(one), holds=one.known.holds, run=Run.OVER, spent=spent, prompt_tokens=prompt
                    )
                    ends.add(settled, name, frees=True, refunds=False, spent=spent, prompt_tokens=prompt)
                case "lost":
                    lost = replace(settle(one), holds=one.known.holds, run=Run.ON)
                    ends.add(lost, name, frees=False, refunds=False)
                case "unstarted":
                    ends.add(Return(one.tag), name, frees=True, refunds=True)
                case _:
                    ends.add(Return(one.tag, attempt().model_dump_json()), name, frees=False, refunds=False)
        return ends

    def exchange(self, worker: Worker, ends: Ends, *, claims: bool) -> None:
        """End jobs and claim others, and hold what was granted and refused against the limiter."""
        request = None
        if claims:
            worker.number += 1
            models = tuple(self.random.sample(MODELS, self.random.randint(1, 3)))
            request = ClaimRequest(worker.number, self.random.choice([0, 1, 2, 5]), models)
        in_line: Any = self.client.zrange(KEYS.pool_waiting(POOL), 0, -1)
        others_wait = any(name.decode() != worker.name for name in in_line)
        reply = self.bench.exchange(Exchange(tuple(ends.commits), claim=request), worker.name)
        self.tell(ends, reply.claimed.now_ms if reply.claimed else None)
        if request is not None and reply.claimed is not None:
            self.hear(worker, request, reply.claimed, others_wait=others_wait)

    def tell(self, ends: Ends, at_ms: int | None = None) -> None:
        """Tell the limiter of ends at the time that Redis took them: as the claim of that call says, or the bucket itself.

        By the time at which they were sent, what comes in while the machine stands still would be counted otherwise here than there.
        """
        at_ms = at_ms or int(self.client.hget(KEYS.pool(POOL), "tokens_at_ms") or 0)
        for told in ends.told:
            told(self.limiter, at_ms + self.past_ms)

    def hear(self, worker: Worker, request: ClaimRequest, claimed: Claimed, *, others_wait: bool) -> None:
        """Check a reply."""
        self.now_ms = claimed.now_ms + self.past_ms
        for one in claimed.claims:
            worker.claims.append(one)
            if one.known.standing is Standing.TO_RUN:
                need = self.need(one.raw, KEYS.model_of(one.queue))
                self.limiter.granted(f"{worker.name}/{one.tag}", need, self.now_ms)
                self.limiter.active[need.model] = self.now_ms
        for model, refusal in claimed.refused.items():
            if model in claimed.empty:
                continue
            head: Any = self.client.lindex(KEYS.jobs(model), -1)
            need = self.need(head, model)
            rightly = self.limiter.is_rightly_refused(need, refusal.limit, self.now_ms, others_wait=True)
            assert rightly, f"{model} was refused for {refusal.limit}"
            if refusal.limit is Limit.TURN:
                assert others_wait, "nobody else waits"
            if refusal.limit in IN_LINE:
                self.limiter.active[model] = self.now_ms
        left = [model for model in request.open if model not in claimed.empty and model not in claimed.refused]
        assert not left or len(claimed.claims) >= request.wanted, f"jobs of {left} were left for no reason"

    def die(self, worker: Worker) -> None:
        """Let a worker be taken for dead: another run of it begins, with nothing in its hands."""
        self.bench.reap(worker.name, lease_of(self.bench, worker.name))
        ends = Ends()
        for one in worker.claims:
            if one.known.holds:
                ends.add(None, f"{worker.name}/{one.tag}", frees=False, refunds=False)
        self.tell(ends)
        name, _, run = worker.name.rpartition(":")
        worker.name, worker.claims, worker.number = f"{name}:{int(run) + 1}", [], 0

    def wait(self, ms: int) -> None:
        """Make all that the pool knows older, in place of waiting."""
        self.past_ms += ms
        pipe = self.client.pipeline(transaction=False)
        for kind in AGED:
            members: Any = self.client.zrange(f"{KEYS.pool(POOL)}:{kind}", 0, -1)
            for member in members:
                pipe.zincrby(f"{KEYS.pool(POOL)}:{kind}", -ms, member)
        known: Any = self.client.hgetall(KEYS.pool(POOL))
        if b"tokens_at_ms" in known:
            pipe.hset(KEYS.pool(POOL), "tokens_at_ms", int(known[b"tokens_at_ms"]) - ms)
        for turn in self.client.scan_iter(f"{KEYS.pool(POOL)}:turn:*"):
            pipe.decrby(turn, ms)
        pipe.execute()

    def check(self) -> None:
        """Nothing has leaked: each slot that has not lapsed is one that the limiter knows."""
        found: Any = self.client.zrange(KEYS.pool_slots(POOL), 0, -1, withscores=True)
        soon_ms = redis_time_ms(self.client) + JUST_NOW_MS
        real = {member.decode().split("\n")[1] for member, lapse_ms in found if lapse_ms > soon_ms}
        known = {claim for claim, (_, at_ms) in self.limiter.slots.items() if at_ms > soon_ms + self.past_ms}
        assert real == known
        counted: Any = self.client.hgetall(f"{KEYS.pool(POOL)}:used")
        standing = Counter(member.decode().split("\n")[0] for member, _ in found)
        assert {model.decode(): int(used) for model, used in counted.items() if int(used)} == standing

    def let_all_end(self) -> None:
        """Whoever waits is served in the end: once all have come back, no job is left that could run."""
        for worker in self.workers:
            while worker.claims:
                self.exchange(worker, self.ends(worker), claims=False)
        for _ in range(400):
            self.wait(61_000)
            for worker in self.workers:
                self.exchange(worker, Ends(), claims=True)
                while worker.claims:
                    self.exchange(worker, self.ends(worker), claims=False)
            if not any(self.client.llen(KEYS.jobs(model)) for model in MODELS):
                return
        pytest.fail("jobs are left that nobody was granted")

    @staticmethod
    def need(raw: bytes, model: str) -> Need:
        """Return what a job needs."""
        job = json.loads(raw)
        return Need(model, len(job["prompt"]), job["max_tokens"])


LIMITS: Final = ((4, None, None), (8, 10, None), (3, 12, 1200), (50, None, 900))
"""Slots, requests and tokens a minute."""


def walk(bench: RedisBench, seed: int, steps: int, limits: tuple[int, int | None, int | None]) -> None:
    """Take so many steps."""
    slots, requests, tokens = limits
    fields: Any = {"max_concurrency": slots, "requests_per_minute": requests or "", "tokens_per_minute": tokens or ""}
    bench.client.hset(KEYS.pool(POOL), mapping={**fields, "kept_slots": "{}"})
    bench.client.expire(KEYS.pool(POOL), 86_400)
    walking = Walk(bench, Random(seed), Limiter(slots, requests, tokens, SLOT_MS))
    walking.limiter.level = walking.limiter.burst
    for _ in range(steps):
        walking.step()
    walking.let_all_end()
    bench.client.flushall()


@pytest.mark.parametrize("limits", LIMITS, ids=["slots", "requests", "all", "tokens"])
def test_nothing_is_granted_that_is_not_there(bench: RedisBench, limits: tuple[int, int | None, int | None]) -> None:
    """And what is refused is refused for a reason."""
    walk(bench, 1, 800, limits)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("limits", LIMITS, ids=["slots", "requests", "all", "tokens"])
def test_nothing_is_granted_in_many_more_steps(
    bench: RedisBench, seed: int, limits: tuple[int, int | None, int | None]
) -> None:
    """A hundred thousand in all."""
    walk(bench, seed, 1000, limits)
