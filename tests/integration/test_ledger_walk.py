"""Processes enter, claim, end jobs, die, are ended by others and come back at random, with lost and late replies.

Every step is done on a real Redis and on the model of it (tests/redis_model.py): they must say the same, hold the same, and keep the
promises: everything is in one place, a job is settled once and runs once at a time, and a run that was ended changes nothing.
"""

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import sha1
from itertools import count
from random import Random
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
from tests.redis_model import POOL, Place, RedisModel
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
    Known,
    Open,
    Retry,
    Return,
    Run,
    Settle,
)
from worker.keys import PRIORITIES
from worker.ledger import SCRIPTS, Ledger
from worker.redis_link import RedisUnavailable

MODELS: Final = (MODEL, OTHER_MODEL)
WORKERS: Final = ("triton-01", "triton-02", "triton-01")
"""The worker_ids of the processes: two are configured alike, as when one is started beside or after the other."""
IDS: Final = ("a", "b", "c", "d")
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
RANDOMS: Final = st.integers(0, 2**24 - 1).map(Random)
FATES: Final = ("heard", "heard", "heard", "heard", "lost", "held up")


def fingerprint_in(raw: bytes) -> str:
    """Return the fingerprint of what is in there: of two contents, whatever the bytes, so that those of one id are the same at times."""
    return f"{zlib.crc32(raw) % 2:032x}"


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

    @rule(random=RANDOMS)
    def gateways_enqueue(self, random: Random) -> None:
        """Enqueue some jobs: of ids that were used before, expired ones, the very same again, and what is no job."""
        for _ in range(random.randint(1, 6)):
            queue = KEYS.jobs(random.choice(MODELS)) + random.choice(PRIORITIES)
            raw = self._drawn_bytes(random)
            self.pushed.append(raw)
            self.client.lpush(queue, raw)
            self.model.push(queue, raw)

    @rule(random=RANDOMS)
    def a_gateway_cancels(self, random: Random) -> None:
        """Cancel a job, whether there is one or not; or let an earlier wish be forgotten."""
        if self.model.cancelled:
            job_id = self.model.cancelled.pop()
            self.client.delete(KEYS.cancel(job_id))
        else:
            job_id = random.choice([*IDS, *(job_id for job_id in self.model.running)])
            self.client.set(KEYS.cancel(job_id), "1", ex=60)
            self.model.cancelled.add(job_id)

    def _drawn_bytes(self, random: Random) -> bytes:
        number = next(self.serial)
        job_id = random.choice([*IDS, *[f"new-{number}"] * 4])
        match random.choice(["job"] * 4 + ["late", "again", "again", "message", "garbage"]):
            case "late":
                return job_json(job_id=job_id, custom_id=str(number), expires_at=LONG_AGO)
            case "again" if self.pushed:
                return random.choice(self.pushed[-6:])
            case "message":
                raw = b"\n%d\n\x00message\n" % number
                self.envelopes[raw] = job_id
                return raw
            case "garbage":
                return b"\n%d\n" % number + random.randbytes(5)
        return job_json(job_id=job_id, custom_id=str(number))

    # Leases.

    @initialize()
    def everyone_enters(self) -> None:
        """The first two processes; the third finds its worker_id taken."""
        for process in self.processes:
            self._enter(process)

    @rule(random=RANDOMS)
    def a_process_renews(self, random: Random) -> None:
        """Or gives its lease up, if nothing is claimed."""
        process = random.choice(self.processes)
        if random.random() < 0.1:
            assert self.leases.leave(process.run) == self.model.leave(process.run)
        else:
            self._renew_or_begin_anew(process)

    @rule(random=RANDOMS)
    def somebody_is_taken_for_dead(self, random: Random) -> None:
        """End it by its lease as it is, as it was, or by its claims alone."""
        if random.random() < 0.2:
            self._lose_the_lease(random.choice(WORKERS))
        runs = sorted({text.split()[0] for text in self.model.leases.values()} | self.model.claimants)
        if random.random() < 0.2:
            runs += [text.split()[0] for text in self.leases_seen[-5:]]
        if runs:
            self._end(random.choice(runs), random)

    def _end(self, run: str, random: Random) -> None:
        now = [text for text in self.model.leases.values() if text.split()[0] == run]
        before = [text for text in self.leases_seen if text.split()[0] == run][-3:]
        stood = random.choice([*now * 6, *before, ""])
        for _ in range(random.choice([1, 2])):
            went_back = self.leases.reap(run, stood)
            assert went_back == self.model.reap(run, stood)
            if went_back >= 0:
                self.reaped.add(run)

    def _lose_the_lease(self, worker_id: str) -> None:
        """Let a lease be gone by itself, as after a day without Redis."""
        self.client.hdel(KEYS.leases, worker_id)
        self.model.leases.pop(worker_id, None)

    def _renew_or_begin_anew(self, process: Process) -> None:
        real, model = self.leases.renew(process.run), self.model.renew(process.run)
        assert real == model
        self.leases_seen += real.leases.values()
        if not real.held:
            process.runs += 1
            self._enter(process)

    def _enter(self, process: Process) -> None:
        assert self.leases.enter(process.run) == self.model.enter(process.run)
        self.leases_seen += self.model.leases.values()

    # What processes ask.

    @rule(random=RANDOMS)
    def the_first_asks(self, random: Random) -> None:
        """Ask for something, or the same again while there was no answer."""
        self._ask(self.processes[0], random)

    @rule(random=RANDOMS)
    def the_second_asks(self, random: Random) -> None:
        """As the first."""
        self._ask(self.processes[1], random)

    @rule(random=RANDOMS)
    def one_of_them_asks(self, random: Random) -> None:
        """As the first."""
        self._ask(random.choice(self.processes), random)

    @rule(random=RANDOMS)
    def all_of_them_ask(self, random: Random) -> None:
        """Some times, in any order."""
        for _ in range(random.randint(3, 12)):
            self._ask(random.choice(self.processes), random)

    @rule()
    def what_was_held_up_arrives(self) -> None:
        """Late: perhaps before its caller asks again, perhaps long after; nobody hears the answer."""
        for process in self.processes:
            self._let_arrive(process)

    def _let_arrive(self, process: Process) -> None:
        late, process.late = process.late, []
        for run, asked, sending in late:
            answers = process.link.let_one_arrive()
            if asked.claim:
                self.model.now_ms = answers[-1][0]
            self._model_does(run, asked, sending)

    @rule()
    def time_passes(self) -> None:
        """Let all that waits be due."""
        for waits in self.model.waiting:
            self.client.zadd(KEYS.waiting, {waits.member: 1})
            self.model.waiting[waits] = 1

    def _ask(self, process: Process, random: Random) -> None:
        if process.late and random.random() < 0.2:
            self._let_arrive(process)
        if not self.model.holds_lease(process.run) and random.random() < 0.8:
            self._renew_or_begin_anew(process)
        fate = random.choice(FATES)
        asked = process.asks or self._drawn_exchange(process, random)
        process.asks = None if fate == "heard" else asked
        process.sendings += 1
        ledger = self.ledgers[process.index]
        if fate == "held up":
            process.late.append((process.run, asked, process.sendings))
            process.link.gives_up = True
            with pytest.raises(RedisUnavailable):
                ledger.exchange(asked, NOW)
            process.link.gives_up = False
            return
        reply = ledger.exchange(asked, NOW)
        self._done_too(process.run, asked, process.sendings, reply)
        if fate == "heard":
            self._hear(process, asked, reply)

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
    def slots_are_those_of_claims_and_of_what_may_be_on(self) -> None:
        """None leaks, none is given back while its inference may be on, and each claim that may be run has one."""
        real: Any = self.client.zrange(KEYS.pool_slots(POOL), 0, -1)
        assert {member.decode() for member in real} == self.model.slots
        marks = {key.decode() for key in self.client.scan_iter(f"{KEYS.prefix}alone:*", count=1000)}
        assert marks == {f"{KEYS.prefix}alone:{circuit}" for circuit in self.model.alone}

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

    @invariant()
    def whose_attempts_they_are_is_known(self) -> None:
        """Of each job that has waited for a retry and has not ended."""
        prefix = KEYS.retried("")
        real = {
            key.decode().removeprefix(prefix): self.client.get(key)
            for key in self.client.scan_iter(f"{prefix}*", count=1000)
        }
        assert real == {
            job_id: f"{tried.fingerprint} {sha1(tried.raw, usedforsecurity=False).hexdigest()}".encode()
            for job_id, tried in self.model.retried.items()
        }
        assert set(real) <= {job_id for job_id, attempts in self.model.attempts.items() if attempts}

    # How.

    def _items(self, key: bytes) -> list[bytes]:
        found: Any = self.client.lrange(key, 0, -1)
        return list(found)

    def _drawn_exchange(self, process: Process, random: Random) -> Exchange:
        """Draw what a process asks for that has heard an answer to everything: of claims of earlier runs of it, too."""

        def some(most: int) -> list[tuple[str, Claim]]:
            held = [(run, one) for run, one in process.claims if one.tag in self.model.claims[run]]
            recent = held if random.random() < 0.7 else process.claims[-8:]
            return random.sample(recent, min(len(recent), random.randint(0, most)))

        commits = {one.tag: self._commit(random.choice(KINDS), run, one) for run, one in some(4)}
        opens = [
            Open(one.tag, job_id, fingerprint_in(one.raw), None, None, KEYS.model_of(one.queue))
            for _, one in some(8)
            if one.job_id is None and (job_id := self._job_id(one))
        ]
        lost = [(run, one) for run, one in process.claims if run in self.reaped][-4:]
        amends = [self._amend(run, one) for run, one in lost if random.random() < 0.5]
        claim = self._drawn_claim(process, random) if random.random() < 0.7 else None
        amending = tuple(amend for amend in amends if amend)
        return Exchange(tuple(commits.values()), amending, tuple(opens), claim, one_runs_alone=random.random() < 0.3)

    def _drawn_claim(self, process: Process, random: Random) -> ClaimRequest:
        process.number += 1
        split = random.choice([0, 1, 2, 2, 2])
        return ClaimRequest(
            process.number,
            wanted=random.choice([0, 1, 2, 3, 6]),
            open=MODELS[:split],
            closed=MODELS[split:],
            most_ended=random.choice([0, 2]),
            one_runs_alone=random.random() < 0.3,
        )

    def _job_id(self, one: Claim) -> str | None:
        return one.job_id or self.envelopes.get(one.raw) or self.model.read(one.raw)[0]

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
                heed_cancel, holds = kind == "settle", held.holds if held else one.known.holds
                run_was = Run.OVER if kind == "settle" else Run.ON
                return Settle(one.tag, job_id, MODEL, "succeeded", "f" * 32, result, heed_cancel, holds, run_was)
            case "retry" | "retry later" if job_id:
                code = ErrorCode.RUNTIME_MODEL_CRASHED if kind == "retry" else ErrorCode.RUNTIME_CONNECTION_LOST
                delay_ms, run_was = (0, Run.OVER) if kind == "retry" else (AN_HOUR_MS, Run.ON)
                tried, content = self._attempt(run, one, code).model_dump_json(), fingerprint_in(one.raw)
                return Retry(one.tag, job_id, content, delay_ms, tried, run_was)
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
            if isinstance(known, Known):
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
        model.retried,
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
    walk(valkey, redis_url, ledgers, examples=200, steps=50)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_promise_holds_after_many_more(valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> None:
    """Thousands of walks, and longer ones."""
    walk(valkey, redis_url, ledgers, examples=4000, steps=80)
