"""Faults in the workers' Python code, put in for good: for a process of the kit's own (tests/chaos/mutations.py)."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from unittest import mock

import gevent

from tasks import generate
from tasks.delivery import Delivery, Duplicate
from tasks.generate import Generation
from tasks.job import GenerateJob
from tasks.reading import JobIdentity
from tasks.usage import Usage
from worker.exchange import Exchange, ExchangeReply, Settle
from worker.lease import Dead, Incarnation, LeaseWatch
from worker.lease_keeper import LeaseKeeper
from worker.ledger import Ledger
from worker.triton.adapter import TritonInference


def drop_claims_first() -> None:
    """Drop the claim in a step before the settlement."""
    exchange = Ledger.exchange

    def in_two_steps(self: Ledger, asked: Exchange, now: str) -> ExchangeReply:
        tags = [commit.tag for commit in asked.commits if isinstance(commit, Settle)]
        if tags:
            self.scripts.run([["HDEL", self.keys.claims(self.incarnation()), *tags]])
            gevent.sleep(0.15)
        return exchange(self, asked, now)

    mock.patch.object(Ledger, "exchange", in_two_steps).start()


def count_no_answer() -> None:
    """Settle with no completion tokens."""
    infer = TritonInference.infer

    def miscounted(self: TritonInference, job: GenerateJob, request_id: str) -> Generation:
        generation = infer(self, job, request_id)
        usage = Usage.of(prompt_tokens=generation.usage.prompt_tokens, completion_tokens=0)
        return replace(generation, usage=usage)

    mock.patch.object(TritonInference, "infer", miscounted).start()


def take_each_second_for_the_same() -> None:
    """Drop each second job of an id, whatever its content."""

    def second(_delivery: Delivery, identity: JobIdentity) -> Duplicate:
        return Duplicate(identity)

    mock.patch.object(generate, "_second", second).start()


def trust_the_lease() -> None:
    """Run jobs also where the lease may be lost."""
    mock.patch.object(Incarnation, "is_trusted", return_value=True).start()


_LATE_SECONDS: Final = 4.0


def learn_late() -> None:
    """Have a worker learn late that it was declared dead."""
    look = LeaseKeeper.look

    def looked(self: LeaseKeeper) -> bool:
        held = look(self)
        if not held:
            gevent.sleep(_LATE_SECONDS / 2)
        return held

    mock.patch.object(LeaseKeeper, "look", looked).start()


def reap_late() -> None:
    """Have workers act late on what they saw of others."""
    look, verdicts = LeaseWatch.look, list[tuple[float, Dead]]()

    def looked(self: LeaseWatch, leases: Mapping[str, str], claimants: frozenset[str], now_ms: float) -> list[Dead]:
        known = {dead for _, dead in verdicts}
        verdicts.extend((time.monotonic(), dead) for dead in look(self, leases, claimants, now_ms) if dead not in known)
        due = [verdict for verdict in verdicts if time.monotonic() - verdict[0] > _LATE_SECONDS]
        verdicts[:] = [verdict for verdict in verdicts if verdict not in due]
        return [dead for _, dead in due]

    mock.patch.object(LeaseWatch, "look", looked).start()
