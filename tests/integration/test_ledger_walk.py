"""Processes enter, claim, end jobs, die, are ended by others and come back at random, with lost and late replies.

Every step is done on a real Redis and on the model of it (tests/redis_model.py): they must say the same, hold the same, and keep the
promises: everything is in one place, a job is settled once and runs once at a time, and a run that was ended changes nothing.
"""

import json
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

import pytest
import redis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tasks.delivery import Standing
from tasks.errors import ErrorCode
from tasks.result import Attempt, AttemptCode
from tests.committer_contract import AN_HOUR_MS, KEYS, LONG_AGO, OTHER_MODEL, lost_attempt
from tests.conservation import whereabouts
from tests.integration.bench import NOW, HeldUp, Leases, Ledgers, ledger_on
from tests.jobs import MODEL, job_json, usage
from tests.redis_model import Place, RedisModel
from worker import lua
from worker.exchange import (
    Amend,
    Bury,
    Claim,
    Claimed,
    ClaimRequest,
    Commit,
    Drop,
    Exchange,
    ExchangeReply,
    Open,
    Retry,
    Return,
    Settle,
)
from worker.keys import PRIORITIES
from worker.ledger import SCRIPTS, Ledger
from worker.redis_link import RedisUnavailable

MODELS: Final = (MODEL, OTHER_MODEL)
WORKERS: Final = ("triton-01", "triton-02", "triton-01")
"""The worker_ids of the processes: two are configured alike, as when one is started beside or after the other."""
IDS: Final = ("a", "b", "c")
KINDS: Final = (
    "settle",
    "settle",
    "settle whatever",
    "retry",
    "retry later",
    "return",
    "return broken off",
    "bury",
    "drop",
)
FATES: Final = ("heard", "heard", "heard", "lost", "held up")


@dataclass
class Process:
    """A process of a worker: its run has a name, which it changes when it learns that it was declared dead."""

    index: int
    worker_id: str
    link: HeldUp
    runs: int = 0
    number: int = 0
    sendings: int = 0
    asks: Exchange | None = None
    """What it asks again, since it has heard no answer."""
    claims: list[tuple[str, Claim]] = field(default_factory=list)
    """What it has heard of, with the run that claimed it."""
    late: list[tuple[str, Exchange, int]] = field(default_factory=list)
    """What is held up on its way: the run, what it asked, and the number of the sending."""

    @property
    def run(self) -> str:
        """The run that it is now."""
        return f"{self.worker_id}:{self.index}.{self.runs}"


class Walk(RuleBasedStateMachine):
    """The same steps on a real Redis and on the model of it."""

    def __init__(self, client: redis.Redis, leases: Leases, links: Sequence[HeldUp]) -> None:
        super().__init__()
        client.flushall()
        self.client = client
        self.leases = leases
        self.model = RedisModel()
        self.processes = [Process(n, worker_id, links[n]) for n, worker_id in enumerate(WORKERS)]
        self.ledgers = [_ledger_of(process) for process in self.processes]
        self.pushed: list[bytes] = []
        self.envelopes: dict[bytes, str] = {}
        """The job_ids of what only the worker can read."""
        self.told: dict[Place, tuple[str | None, Standing]] = {}
        """What was last heard of a claim: its job, and how that stands."""
        self.leases_seen: list[str] = []
        self.reaped: set[str] = set()
        self.serial = count(1)

    # Gateways.

    @rule(
        model=st.sampled_from(MODELS),
        priority=st.sampled_from(PRIORITIES),
        job_id=st.sampled_from([*IDS, "new"]),
        kind=st.sampled_from(["plain", "plain", "plain", "expired", "the same again"]),
    )
    def push_a_job(self, model: str, priority: str, job_id: str, kind: str) -> None:
        """Enqueue a job, perhaps of an id that was used before, or one that was enqueued before."""
        number = next(self.serial)
        job_id = f"new-{number}" if job_id == "new" else job_id
        raw = job_json(job_id=job_id, custom_id=str(number), **({"expires_at": LONG_AGO} if kind == "expired" else {}))
        if kind == "the same again" and self.pushed:
            raw = self.pushed[-1]
        self._push(KEYS.jobs(model) + priority, raw)

    @rule(model=st.sampled_from(MODELS), job_id=st.sampled_from([*IDS, None]), garbage=st.binary(max_size=5))
    def push_what_the_script_cannot_read(self, model: str, job_id: str | None, garbage: bytes) -> None:
        """Enqueue what may be a message with a job in it, or nothing at all."""
        raw = b"\n%d\n" % next(self.serial) + garbage
        if job_id:
            self.envelopes[raw] = job_id
        self._push(KEYS.jobs(model), raw)

    @rule(job_id=st.sampled_from(IDS))
    def cancel(self, job_id: str) -> None:
        """Cancel a job, whether there is one or not."""
        self.client.set(KEYS.cancel(job_id), "1", ex=60)
        self.model.cancelled.add(job_id)

    # Leases.

    @initialize()
    def everyone_enters(self) -> None:
        """The first two processes; the third finds its worker_id taken."""
        for process in self.processes:
            self.enter(process)

    @rule(index=st.sampled_from(range(len(WORKERS))))
    def renew_or_begin_anew(self, index: int) -> None:
        """Renew; whoever learns that its lease is gone goes on under another name, if it gets a lease for that."""
        process = self.processes[index]
        real, model = self.leases.renew(process.run), self.model.renew(process.run)
        assert real == model
        self.leases_seen += real.leases.values()
        if not real.held:
            process.runs += 1
            self.enter(process)

    @rule(index=st.sampled_from(range(len(WORKERS))))
    def leave(self, index: int) -> None:
        """Give the lease up, if nothing is claimed."""
        run = self.processes[index].run
        assert self.leases.leave(run) == self.model.leave(run)

    @rule(data=st.data(), times=st.integers(1, 2))
    def end_a_run(self, data: st.DataObject, times: int) -> None:
        """End what seemed dead: by its lease as it is, as it was, or by its claims alone."""
        runs = sorted({text.split()[0] for text in self.leases_seen} | set(self.model.claims))
        if not runs:
            return
        run = data.draw(st.sampled_from(runs))
        now = [text for text in self.model.leases.values() if text.split()[0] == run]
        before = [text for text in self.leases_seen if text.split()[0] == run][-3:]
        stood = data.draw(st.sampled_from([*now * 3, *before, ""]))
        for _ in range(times):
            went_back = self.leases.reap(run, stood)
            assert went_back == self.model.reap(run, stood)
            if went_back >= 0:
                self.reaped.add(run)

    @rule(worker_id=st.sampled_from(WORKERS))
    def lose_a_lease(self, worker_id: str) -> None:
        """Let a lease be gone by itself, as after a day without Redis."""
        self.client.hdel(KEYS.leases, worker_id)
        self.model.leases.pop(worker_id, None)

    # What processes ask.

    @rule(index=st.sampled_from(range(len(WORKERS))), fate=st.sampled_from(FATES), data=st.data())
    def ask(self, index: int, fate: str, data: st.DataObject) -> None:
        """Ask for something, or the same again while there was no answer."""
        process = self.processes[index]
        asked = process.asks or self._drawn(process, data)
        process.asks = None if fate == "heard" else asked
        process.sendings += 1
        if fate == "held up":
            process.late.append((process.run, asked, process.sendings))
            process.link.gives_up = True
            with pytest.raises(RedisUnavailable):
                self.ledgers[index].exchange(asked, NOW)
            process.link.gives_up = False
            return
        reply = self.ledgers[index].exchange(asked, NOW)
        self._done_too(process.run, asked, process.sendings, reply)
        if fate == "heard":
            self._hear(process, asked, reply)

    @rule(index=st.sampled_from(range(len(WORKERS))))
    def what_was_held_up_arrives(self, index: int) -> None:
        """Late: perhaps before its caller asks again, perhaps long after; nobody hears the answer."""
        process = self.processes[index]
        late, process.late = process.late, []
        for (run, asked, sending), answers in zip(late, process.link.let_arrive(), strict=True):
            if asked.claim:
                self.model.now_ms = answers[-1][0]
            self._model_does(run, asked, sending)

    @rule()
    def time_passes(self) -> None:
        """Let all that waits be due."""
        self.client.zadd(
            KEYS.waiting, {waits.member: 1 for waits in self.model.waiting}
        ) if self.model.waiting else None
        self.model.waiting = dict.fromkeys(self.model.waiting, 1)

    # What has to be so.

    @invariant()
    def everything_is_in_one_place(self) -> None:
        """Nothing is lost, nothing is twice, and everything is where the model has it."""
        now = whereabouts(self.client, KEYS)
        assert now.claimed == Counter(held.raw for claims in self.model.claims.values() for held in claims.values())
        assert now.queued == Counter(raw for items in self.model.lists.values() for raw in items)
        assert now.waiting == Counter(waits.raw for waits in self.model.waiting)
        assert now.dead == Counter(raw for _, _, raw in self.model.dead_letters)
        settled = [raw for _, raw in self.model.settlements] + self.model.duplicates
        assert now.unfinished + now.dead + Counter(settled) == Counter(self.pushed)

    @invariant()
    def each_job_is_settled_once(self) -> None:
        """With the result that the model has, late attempts included."""
        entries: Any = self.client.xrange(KEYS.settlements)
        ended = [(fields[b"job_id"].decode(), json.loads(fields[b"result"])) for _, fields in entries]
        assert ended == [(job_id, json.loads(self.model.results[job_id])) for job_id, _ in self.model.settlements]
        assert len({job_id for job_id, _ in ended}) == len(ended)

    @invariant()
    def who_runs_what_is_known(self) -> None:
        """By what runs, and by who has claims: neither names what is not there."""
        real: Any = self.client.hgetall(KEYS.running)
        running = {job_id.decode(): claim.decode() for job_id, claim in real.items()}
        assert running == {job_id: "/".join(place) for job_id, place in self.model.running.items()}
        for job_id, place in self.model.running.items():
            assert self.model.claims[place.incarnation][place.tag].job_id == job_id
        claimants: Any = self.client.smembers(KEYS.claimants)
        assert {name.decode() for name in claimants} == self.model.claimants

    @invariant()
    def one_run_at_a_time(self) -> None:
        """No two runs that hold their leases were told to run one job."""
        may_run = Counter(
            job_id
            for place, (job_id, standing) in self.told.items()
            if job_id
            and standing is Standing.TO_RUN
            and place.tag in self.model.claims[place.incarnation]
            and self.model.holds_lease(place.incarnation)
        )
        assert not [job_id for job_id, runs in may_run.items() if runs > 1]

    @invariant()
    def every_attempt_is_in_its_ledger(self) -> None:
        """Of jobs, and of bytes that nobody could read."""
        prefix = KEYS.attempts("")
        real = {
            key.decode().removeprefix(prefix): [Attempt.model_validate_json(item) for item in self._items(key)]
            for key in self.client.scan_iter(f"{prefix}*", count=1000)
        }
        assert real == {ledger: attempts for ledger, attempts in self.model.attempts.items() if attempts}

    # How.

    def enter(self, process: Process) -> None:
        """Ask for a lease."""
        assert self.leases.enter(process.run) == self.model.enter(process.run)
        self.leases_seen += self.model.leases.values()

    def _push(self, queue: str, raw: bytes) -> None:
        self.pushed.append(raw)
        self.client.lpush(queue, raw)
        self.model.push(queue, raw)

    def _items(self, key: bytes) -> list[bytes]:
        found: Any = self.client.lrange(key, 0, -1)
        return list(found)

    def _drawn(self, process: Process, data: st.DataObject) -> Exchange:
        """Draw what a process asks for that has heard an answer to everything: of claims of earlier runs of it, too."""
        heard = st.sampled_from(process.claims[-8:]) if process.claims else st.nothing()
        some = st.lists(heard, max_size=4, unique_by=lambda each: each[1].tag) if process.claims else st.just([])
        commits = [self._commit(data.draw(st.sampled_from(KINDS)), run, one) for run, one in data.draw(some)]
        opens = [one for _, one in data.draw(some) if one.raw in self.envelopes]
        amends = [self._amend(run, one) for run, one in data.draw(some) if run in self.reaped]
        request = None
        if data.draw(st.booleans()):
            process.number += 1
            split, wanted = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 4))
            alone, most_ended = data.draw(st.booleans()), data.draw(st.sampled_from([0, 2]))
            request = ClaimRequest(process.number, wanted, MODELS[:split], MODELS[split:], most_ended, alone)
        return Exchange(
            tuple(commits),
            tuple(amend for amend in amends if amend),
            tuple(Open(one.tag, self.envelopes[one.raw], None, None) for one in opens),
            request,
        )

    def _job_id(self, one: Claim) -> str | None:
        return one.job_id or self.envelopes.get(one.raw)

    def _attempt(self, run: str, one: Claim, code: ErrorCode | AttemptCode | None) -> Attempt:
        """Make an attempt like no other."""
        return lost_attempt(one, run).model_copy(
            update={"code": code, "inference_ms": next(self.serial), "usage": usage()}
        )

    def _amend(self, run: str, one: Claim) -> Amend | None:
        job_id = self._job_id(one)
        was = self._attempt(run, one, AttemptCode.LEASE_LOST).model_dump_json()
        return Amend(job_id, lost_attempt(one, run).model_dump_json(), was) if job_id else None

    def _commit(self, kind: str, run: str, one: Claim) -> Commit:
        held = self.model.claims[run].get(one.tag)
        job_id = held.job_id if held else self._job_id(one)
        match kind:
            case "settle" | "settle whatever" if job_id:
                attempts = [*one.known.attempts, self._attempt(run, one, None)]
                result = json.dumps(
                    {"attempts": [each.model_dump(mode="json") for each in attempts]}, separators=(",", ":")
                )
                return Settle(one.tag, job_id, MODEL, "succeeded", "f" * 32, result, heed_cancel=kind == "settle")
            case "retry" | "retry later" if job_id:
                code = ErrorCode.RUNTIME_MODEL_CRASHED if kind == "retry" else ErrorCode.RUNTIME_CONNECTION_LOST
                delay_ms = 0 if kind == "retry" else AN_HOUR_MS
                return Retry(one.tag, job_id, delay_ms, self._attempt(run, one, code).model_dump_json())
            case "drop" if job_id:
                return Drop(one.tag, job_id)
            case "return broken off":
                return Return(one.tag, self._attempt(run, one, AttemptCode.DRAINED).model_dump_json())
            case "return":
                return Return(one.tag)
        return Bury(one.tag, "not_json")

    def _done_too(self, run: str, asked: Exchange, sending: int, real: ExchangeReply) -> None:
        if real.claimed:
            self.model.now_ms = real.claimed.now_ms
        assert _comparable(self._model_does(run, asked, sending)) == _comparable(real)

    def _model_does(self, run: str, asked: Exchange, sending: int) -> ExchangeReply:
        before = deepcopy(_matters(self.model)) if run in self.reaped else None
        reply = self.model.exchange(run, asked, sending)
        self._take_over_due_times()
        # Found by comparison with the real one: that nothing of this changes there either.
        assert before is None or before == _matters(self.model), f"{run} was ended, and still changed something"
        return reply

    def _hear(self, process: Process, asked: Exchange, reply: ExchangeReply) -> None:
        claims = reply.claimed.claims if reply.claimed else ()
        process.claims += [(process.run, one) for one in claims]
        self.told |= {Place(process.run, one.tag): (one.job_id, one.known.standing) for one in claims}
        for opens, known in zip(asked.opens, reply.opened, strict=True):
            if known:
                self.told[Place(process.run, opens.tag)] = opens.job_id, known.standing

    def _take_over_due_times(self) -> None:
        """Only Redis knows at which millisecond it took a retry."""
        found: Any = self.client.zrange(KEYS.waiting, 0, -1, withscores=True)
        scores = dict(found)
        assert set(scores) == {waits.member for waits in self.model.waiting}
        self.model.waiting = {waits: int(scores[waits.member]) for waits in self.model.waiting}


def _ledger_of(process: Process) -> Ledger:
    return replace(ledger_on(process.link, process.run), incarnation=lambda: process.run)


def _matters(model: RedisModel) -> tuple[Any, ...]:
    """What a run that was ended must leave as it is: all but ledgers, where it may say what it spent."""
    lists = {name: items for name, items in model.lists.items() if items}
    claims = {run: held for run, held in model.claims.items() if held}
    return (
        lists,
        claims,
        model.running,
        model.waiting,
        model.markers,
        model.settlements,
        model.dead_letters,
        model.leases,
    )


def _comparable(reply: ExchangeReply) -> ExchangeReply:
    """Without the times, which are Redis' own."""
    if reply.claimed is None:
        return reply
    waits = None if reply.claimed.next_due_ms is None else 0
    timeless: Claimed = replace(reply.claimed, now_ms=0, next_due_ms=waits)
    return replace(reply, claimed=timeless)


def walk(client: redis.Redis, url: str, ledgers: Ledgers, examples: int, steps: int) -> None:
    """Walk so often, so far."""
    links = [HeldUp(ledgers.link(url)) for _ in WORKERS]
    links[0].call([["SCRIPT", "LOAD", lua.load(name)] for name in SCRIPTS])
    leases = ledgers.leases(url)

    class WalkHere(Walk):
        def __init__(self) -> None:
            super().__init__(client, leases, links)
            for link in links:
                link.forget()

    run_state_machine_as_test(
        WalkHere,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],  # to explain a failure, hypothesis traces every line, which is slow
        ),
    )
    client.flushall()


def test_every_promise_holds_after_any_steps(valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> None:
    """Of three processes, with lost replies, repeats and late arrivals."""
    walk(valkey, redis_url, ledgers, examples=150, steps=50)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_promise_holds_after_many_more(valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> None:
    """Thousands of walks, and longer ones."""
    walk(valkey, redis_url, ledgers, examples=3000, steps=80)
