"""Two runs of a worker claim, settle, retry, return and bury at random, with repeats: what Redis then holds is what it should."""

from collections import Counter
from dataclasses import replace
from typing import Any

import redis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.committer_contract import AN_HOUR_MS, KEYS, LONG_AGO, OTHER_MODEL, retry, settle
from tests.conservation import assert_conserved, whereabouts
from tests.integration.bench import BareLedger, Ledgers, RedisBench
from tests.jobs import MODEL, job_json
from tests.redis_model import RedisModel
from worker.exchange import Bury, Claim, Claimed, ClaimRequest, Commit, Exchange, ExchangeReply, Open, Return
from worker.keys import PRIORITIES

INCARNATIONS = ("triton-01:a", "triton-01:b")
MODELS = (MODEL, OTHER_MODEL)
KINDS = ("settle", "retry", "retry later", "return", "bury")


class Walk(RuleBasedStateMachine):
    """The same steps on a real Redis and on the model of it."""

    def __init__(self, bench: RedisBench) -> None:
        super().__init__()
        bench.client.flushall()
        self.client = bench.client
        self.real = bench
        self.model = RedisModel()
        self.pushed: list[bytes] = []
        self.seen: list[tuple[str, Claim]] = []
        """Claims, with who claimed them."""
        self.numbers = dict.fromkeys(INCARNATIONS, 0)

    @rule(
        model=st.sampled_from(MODELS),
        priority=st.sampled_from(PRIORITIES),
        job_id=st.sampled_from(["a", "b", "new", "new", "new"]),
        expired=st.booleans(),
    )
    def push_a_job(self, model: str, priority: str, job_id: str, expired: bool) -> None:
        """Enqueue a job, perhaps of an id that was used before."""
        number = len(self.pushed)
        content: dict[str, Any] = {"job_id": f"new-{number}" if job_id == "new" else job_id, "custom_id": str(number)}
        self._push(KEYS.jobs(model) + priority, job_json(**content, **({"expires_at": LONG_AGO} if expired else {})))

    @rule(model=st.sampled_from(MODELS), garbage=st.binary(max_size=20))
    def push_garbage(self, model: str, garbage: bytes) -> None:
        """Enqueue what is no job."""
        self._push(KEYS.jobs(model), b"\n%d\n" % len(self.pushed) + garbage)

    @rule(
        incarnation=st.sampled_from(INCARNATIONS),
        wanted=st.integers(0, 4),
        split=st.integers(0, 2),
        most_expired=st.sampled_from([0, 0, 2]),
        times=st.integers(1, 3),
        data=st.data(),
    )
    def claim(
        self, incarnation: str, wanted: int, split: int, most_expired: int, times: int, data: st.DataObject
    ) -> None:
        """Claim, with commits beside it, and hear the answer only after some tries."""
        self.numbers[incarnation] += 1
        request = ClaimRequest(self.numbers[incarnation], wanted, MODELS[:split], MODELS[split:], most_expired)
        before = self.numbers[incarnation] - 1
        commits = self._draw_commits(data, KINDS[:1] + KINDS[2:], incarnation, before)
        opens = tuple(
            Open(one.tag, one.job_id or "?", None, 0) for one in self._draw_claims(data, 2, incarnation, before)
        )
        self._do(incarnation, Exchange(commits, opens, request), times)

    @rule(incarnation=st.sampled_from(INCARNATIONS), times=st.integers(1, 3), data=st.data())
    def commit(self, incarnation: str, times: int, data: st.DataObject) -> None:
        """Commit what may have been claimed by the other, may be gone, or may have been committed before."""
        self._do(incarnation, Exchange(self._draw_commits(data, KINDS, incarnation, self.numbers[incarnation])), times)

    @rule(incarnation=st.sampled_from(INCARNATIONS), how_late=st.integers(1, 4))
    def claim_late(self, incarnation: str, how_late: int) -> None:
        """Let a call arrive that was given up, and followed by others, long ago; what its caller had heard of is done."""
        number = self.numbers[incarnation] - how_late
        if number > 0 and f"{number}.1" not in self.model.claims[incarnation]:
            self._do(incarnation, Exchange(claim=ClaimRequest(number, 4, MODELS)), 1)

    @invariant()
    def everything_is_in_one_place(self) -> None:
        """Nothing is lost, nothing is twice, and everything is where the model has it."""
        now = whereabouts(self.client, KEYS)
        claims = [raw for held in self.model.claims.values() for _, raw in held.values()]
        assert now.claimed == Counter(claims)
        assert now.queued == Counter(raw for items in self.model.lists.values() for raw in items)
        assert now.waiting == Counter(record[3] for record in self.model.waiting)
        assert now.dead == Counter(raw for _, _, raw in self.model.dead_letters)
        settled = [raw for _, raw in self.model.settlements] + self.model.duplicates
        assert now.unfinished + now.dead + Counter(settled) == Counter(self.pushed)
        assert self.real.settled() == [job_id for job_id, _ in self.model.settlements]
        assert_conserved(now, self.pushed)

    def _push(self, queue: str, raw: bytes) -> None:
        self.pushed.append(raw)
        self.real.push(raw, queue=queue)
        self.model.push(queue, raw)

    def _draw_claims(self, data: st.DataObject, most: int, incarnation: str, last_call: int) -> list[Claim]:
        """Draw claims of a run itself, of calls whose answer it may have heard, and of the other run under tags it has not."""
        held = self.model.claims[incarnation]
        known = [
            one
            for owner, one in self.seen
            if Return(one.tag).place[0] <= last_call and (owner == incarnation or one.tag not in held)
        ]
        if not known:
            return []
        recent = st.sampled_from(known[-12:])
        return data.draw(st.lists(recent, max_size=most, unique_by=lambda one: one.tag))

    def _draw_commits(
        self, data: st.DataObject, kinds: tuple[str, ...], incarnation: str, last_call: int
    ) -> tuple[Commit, ...]:
        kind = st.sampled_from(kinds)
        return tuple(_commit(data.draw(kind), one) for one in self._draw_claims(data, 5, incarnation, last_call))

    def _do(self, incarnation: str, asked: Exchange, times: int) -> None:
        for _ in range(times):
            real = self.real.exchange(asked, incarnation)
            if real.claimed:
                self.model.now_ms = real.claimed.now_ms
            model = self.model.exchange(incarnation, asked)
            assert _comparable(real) == _comparable(model)
            self._take_over_due_times()
            self.seen += [(incarnation, one) for one in (real.claimed.claims if real.claimed else ())]

    def _take_over_due_times(self) -> None:
        """Only Redis knows at which millisecond it took a retry."""
        found: Any = self.client.zrange(KEYS.waiting, 0, -1, withscores=True)
        scores = dict(found)
        for record in self.model.waiting:
            incarnation, tag, queue, raw = record
            self.model.waiting[record] = int(scores[f"{incarnation}/{tag}\n{queue}\n".encode() + raw])


def _commit(kind: str, one: Claim) -> Commit:
    match kind:
        case "settle" if one.job_id:
            return settle(one)
        case "retry" if one.job_id:
            return retry(one, 0)
        case "retry later" if one.job_id:
            return retry(one, AN_HOUR_MS)
        case "return":
            return Return(one.tag)
    return Bury(one.tag, "not_json")


def _comparable(reply: ExchangeReply) -> ExchangeReply:
    """Without the times, which are Redis' own."""
    if reply.claimed is None:
        return reply
    waits = None if reply.claimed.next_due_ms is None else 0
    timeless: Claimed = replace(reply.claimed, now_ms=0, next_due_ms=waits)
    return replace(reply, claimed=timeless)


def test_every_job_is_in_exactly_one_place(valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> None:
    """Queue, claim, retry, settlement or dead letter: after any steps, of two runs of a worker, with any repeats."""
    walk = settings(
        max_examples=200,
        stateful_step_count=30,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],  # to explain a failure, hypothesis traces every line, which is slow
    )

    made = {incarnation: BareLedger(ledgers(redis_url, incarnation)) for incarnation in INCARNATIONS}

    class WalkHere(Walk):
        def __init__(self) -> None:
            super().__init__(RedisBench(valkey, lambda incarnation: made[incarnation]))

    run_state_machine_as_test(WalkHere, settings=walk)
    valkey.flushall()
