"""The scripts about leases on a real Redis: what they write, byte for byte, and that a repeat writes nothing more."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tasks import rfc3339
from tasks.delivery import Delivery, Outcome, Settlement
from tasks.errors import ConnectionLost
from tasks.result import Attempt, AttemptCode, GenerateResult
from tests.committer_contract import (
    FINGERPRINT,
    KEYS,
    OTHER_MODEL,
    OTHER_RUN,
    RUN,
    claim,
    jobs,
    lease_of,
    lost_attempt,
    reaped,
    retry,
    settle,
    words,
)
from tests.generating import ran
from tests.integration.bench import A_DAY, A_WEEK, RedisBench, entries, state
from tests.jobs import MODEL, attempt, delivery, job_json, usage
from tests.redis_model import POOL
from worker import lua
from worker.exchange import Amend, Bury, Claim, ClaimRequest, Drop, Exchange, Known, Open
from worker.keys import PRIORITIES
from worker.outcomes import Done, as_commit, follow_up

pytestmark = pytest.mark.leaves("claims:*", "waiting")


class TestLeases:
    def test_they_are_kept_a_day_after_the_last_of_them(self, bench: RedisBench) -> None:
        """Each entry and each renewal begins that anew."""
        bench.enter()
        assert A_DAY - 5 <= bench.client.ttl(KEYS.leases) <= A_DAY
        bench.client.expire(KEYS.leases, 10)
        bench.renew(OTHER_RUN)
        assert bench.client.ttl(KEYS.leases) <= 10
        bench.renew()
        assert A_DAY - 5 <= bench.client.ttl(KEYS.leases) <= A_DAY

    def test_a_renewal_takes_the_length_that_is_configured_now(self, bench: RedisBench) -> None:
        """Not that of an earlier run under the same name."""
        bench.client.hset(KEYS.leases, "triton-01", f"{RUN} 7 99")
        bench.renew()
        assert bench.client.hget(KEYS.leases, "triton-01") == f"{RUN} 8 10000".encode()
        bench.leave()

    def test_a_counter_may_be_large(self, bench: RedisBench) -> None:
        """Two renewals a second, for ever: it is never written as a fraction or with an exponent."""
        bench.client.hset(KEYS.leases, "triton-01", f"{RUN} 9007199254740000 10000")
        bench.renew()
        assert lease_of(bench) == f"{RUN} 9007199254740001 10000"
        bench.leave()

    @pytest.mark.parametrize("step", ["enter", "leave"])
    def test_a_repeat_changes_nothing(self, bench: RedisBench, step: str) -> None:
        """After a lost reply."""
        bench.enter()
        getattr(bench, step)()
        before = state(bench.client)
        getattr(bench, step)()
        assert state(bench.client) == before

    def test_who_may_not_enter_changes_nothing(self, bench: RedisBench) -> None:
        """Nor does its renewal, or its leaving."""
        bench.enter()
        before = state(bench.client)
        bench.enter("triton-01:later")
        bench.renew("triton-01:later")
        bench.leave("triton-01:later")
        assert state(bench.client) == before


class TestEndingARun:
    def test_a_repeat_changes_nothing(self, bench: RedisBench) -> None:
        """After a lost reply, or by another who saw the same."""
        bench.push(*jobs("a", "b"), b"garbage")
        claim(bench)
        stood = lease_of(bench)
        assert bench.reap(RUN, stood) == 3
        before = state(bench.client)
        assert bench.reap(RUN, stood) == -1
        assert bench.reap(RUN, "") == -1
        assert state(bench.client) == before

    def test_who_has_moved_is_left_alone(self, bench: RedisBench) -> None:
        """Nothing of it changes."""
        bench.push(*jobs("a"))
        claim(bench)
        stood = lease_of(bench)
        bench.renew()
        before = state(bench.client)
        assert bench.reap(RUN, stood) == -1
        assert bench.reap(RUN, "") == -1
        assert state(bench.client) == before

    def test_nothing_of_it_is_left(self, bench: RedisBench) -> None:
        """But its jobs, their ledgers, the number of its last call for as long as that may matter, and what its pool knows."""
        bench.push(*jobs("a"))
        claim(bench)
        reaped(bench)
        left = {key.decode() for key in bench.client.scan_iter(count=1000)}
        of_the_pool = {name for name in left if name.startswith(KEYS.pool(POOL))}
        assert left - of_the_pool == {KEYS.jobs(MODEL), KEYS.attempts("a"), KEYS.calls(RUN)}

    def test_each_job_goes_back_to_its_own_list(self, bench: RedisBench) -> None:
        """Byte for byte, line feeds and zero bytes included, and in its order there."""
        raws = [b"\n%d\n\x00\xff\r\n" % n + bytes(range(256)) for n in range(3)]
        low, other = KEYS.jobs(MODEL) + PRIORITIES[2], KEYS.jobs(OTHER_MODEL)
        for queue in (low, other):
            bench.push(*raws, queue=queue)
        bench.exchange(Exchange(claim=ClaimRequest(1, 5, (MODEL, OTHER_MODEL))))
        assert reaped(bench) == 5
        assert bench.queued(low) == bench.queued(other) == raws

    def test_hundreds_go_back_in_order(self, bench: RedisBench) -> None:
        """Of calls and places whose numbers have one digit or many."""
        names = [f"j-{n}" for n in range(333)]
        bench.push(*jobs(*names))
        for number in (8, 9, 10, 99, 100):
            claim(bench, number, 60)
        assert reaped(bench) == 300
        assert bench.queued() == jobs(*names)

    def test_its_ledger_is_kept_as_long_as_all_ledgers(self, bench: RedisBench) -> None:
        """And each further entry renews that."""
        bench.push(*jobs("a"), b"garbage")
        claim(bench)
        reaped(bench)
        for key in (KEYS.attempts("a"), *bench.client.scan_iter(KEYS.attempts("#*"))):
            assert A_WEEK - 5 <= bench.client.ttl(key) <= A_WEEK
        assert len(list(bench.client.scan_iter(KEYS.attempts("*")))) == 2

    def test_an_opened_message_is_lost_under_its_jobs_id(self, bench: RedisBench) -> None:
        """One that was not, under its bytes."""
        bench.push(b"message", b"another")
        opened, unopened = claim(bench).claims
        bench.exchange(Exchange(opens=(Open(opened.tag, "a", FINGERPRINT, None, None, MODEL),)))
        reaped(bench)
        again, unopened_again = claim(bench, incarnation=OTHER_RUN).claims
        assert (again.known.attempts, unopened_again.known.attempts) == ((), (lost_attempt(unopened),))
        (known,) = bench.exchange(
            Exchange(opens=(Open(again.tag, "a", FINGERPRINT, None, None, MODEL),)), OTHER_RUN
        ).opened
        assert isinstance(known, Known)
        assert known.attempts == (lost_attempt(opened),)

    def test_what_waits_is_not_touched(self, bench: RedisBench) -> None:
        """It is in nobody's hands."""
        bench.push(*jobs("a"))
        words(bench, retry(claim(bench).claims[0], 3_600_000))
        before = bench.client.dump(KEYS.waiting)
        assert reaped(bench) == 0
        assert bench.client.dump(KEYS.waiting) == before


def test_times_are_written_as_the_task_writes_them(valkey: redis.Redis) -> None:
    """To the millisecond, in any year; else a run that was lost could not be found again in its ledger."""
    found = re.search(r"^local function rfc3339.*?^end$", lua.load("reap_if_stood_still"), re.DOTALL | re.MULTILINE)
    assert found is not None, "the script's function has another name now"
    script = valkey.register_script(
        found.group() + "\nlocal told = {} for n, ms in ipairs(ARGV) do told[n] = rfc3339(tonumber(ms)) end return told"
    )
    last = rfc3339.to_ms(rfc3339.parse("9999-12-31T23:59:59.999Z"))
    edges = ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59.999Z", "2000-03-01T00:00:00Z", "2100-02-28T23:59:59.999Z"]
    moments = st.integers(0, last) | st.sampled_from([rfc3339.to_ms(rfc3339.parse(edge)) for edge in edges])

    @settings(max_examples=300, deadline=None, database=None, phases=[Phase.generate, Phase.shrink])
    @given(st.lists(moments, min_size=1, max_size=20))
    def check(times: list[int]) -> None:
        assert [told.decode() for told in script(args=times)] == [rfc3339.from_ms(ms) for ms in times]

    check()


class TestLateAnswers:
    """A run that was declared dead was alive: its inference ended, and what it spent is known after all."""

    @staticmethod
    def late(bench: RedisBench, one: Claim, ends: Callable[[Delivery], Outcome]) -> Amend:
        """End a claim whose run was ended meanwhile, as the worker does; returns what corrects its ledger."""
        of = delivery(one.raw, tag=one.tag, claimed_at_ms=one.claimed_ms, job_id=one.job_id)
        outcome = ends(of)
        commit = as_commit(of, outcome)
        (word,) = words(bench, commit)
        after = follow_up(Done(of, outcome, commit), word, "triton-01")
        assert after.amend is not None
        return after.amend

    @pytest.mark.parametrize("ends_with", ["settlement", "retry"])
    def test_what_was_lost_is_found_and_replaced(self, bench: RedisBench, ends_with: str) -> None:
        """The very words that were written down, in the place where they stand."""
        bench.push(*jobs("a"))
        first, second = attempt(), attempt(AttemptCode.DRAINED)
        for number, one_try in enumerate((first, second), 1):
            words(bench, retry(claim(bench, number).claims[0], 0, one_try))
        (one,) = claim(bench, 3).claims
        reaped(bench)

        def ends(of: Delivery) -> Outcome:
            return ran(of=of) if ends_with == "settlement" else ran(ConnectionLost(usage=usage()), of)

        amend = self.late(bench, one, ends)
        bench.exchange(Exchange(amends=(amend,)))
        (again,) = claim(bench, incarnation=OTHER_RUN).claims
        *before, late = again.known.attempts
        assert before == [first, second]
        spent = {"code": AttemptCode.LEASE_LOST, "inference_ms": 840, "usage": usage()}
        assert late == lost_attempt(one).model_copy(update=spent)

    def test_it_is_kept_no_longer_than_the_ledger(self, bench: RedisBench) -> None:
        """Nothing of a correction lasts; and a repeat changes nothing."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        reaped(bench)
        amend = self.late(bench, one, lambda of: ran(of=of))
        bench.client.expire(KEYS.attempts("a"), 100)
        bench.exchange(Exchange(amends=(amend,)))
        assert bench.client.ttl(KEYS.attempts("a")) <= 100
        before = state(bench.client)
        bench.exchange(Exchange(amends=(amend,)))
        assert state(bench.client) == before

    def test_a_ledger_that_is_gone_is_not_made_again(self, bench: RedisBench) -> None:
        """The job has ended."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        reaped(bench)
        amend = self.late(bench, one, lambda of: ran(of=of))
        (again,) = claim(bench, incarnation=OTHER_RUN).claims
        words(bench, settle(again), incarnation=OTHER_RUN)
        before = state(bench.client)
        bench.exchange(Exchange(amends=(amend,)))
        assert state(bench.client) == before

    def test_a_settlement_that_was_under_way_has_it_too(self, bench: RedisBench) -> None:
        """Its result was written before the answer came: the attempt in it is replaced as it is settled, and nothing else."""
        bench.push(*jobs("a"))
        claims: list[Claim] = []
        for number, run in enumerate((RUN, "triton-01:later", "triton-01:last"), 1):
            claims += claim(bench, number, incarnation=run).claims
            reaped(bench, run)
        (again,) = claim(bench, incarnation=OTHER_RUN).claims
        of = delivery(again.raw, tag=again.tag, job_id="a", attempts=again.known.attempts)
        outcome = ran(of=of)
        assert isinstance(outcome, Settlement)
        amend = self.late(bench, claims[1], lambda of: ran(of=of))
        bench.exchange(Exchange(amends=(amend,)))
        assert words(bench, as_commit(of, outcome), incarnation=OTHER_RUN) == (1,)
        (fields,) = entries(bench.client, KEYS.settlements)
        result = GenerateResult.model_validate_json(fields[b"result"])
        attempts = list(outcome.result.attempts)
        attempts[1] = Attempt.model_validate_json(amend.was)
        assert result == outcome.result.model_copy(update={"attempts": attempts})
        assert bench.client.get(KEYS.result("a")) == fields[b"result"]

    def test_a_text_cannot_be_taken_for_an_attempt(self, bench: RedisBench) -> None:
        """Though a model writes down what a ledger holds."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        reaped(bench)
        (again,) = claim(bench, incarnation=OTHER_RUN).claims
        amend = self.late(bench, one, lambda of: ran(of=of))
        bench.exchange(Exchange(amends=(amend,)))
        of = delivery(again.raw, tag=again.tag, job_id="a", attempts=again.known.attempts)
        outcome = ran(of=of)
        assert isinstance(outcome, Settlement)
        result = outcome.result.model_copy(update={"text": amend.lost, "metadata": {"a": amend.lost}})
        commit = as_commit(of, Settlement(outcome.identity, result, None))
        assert words(bench, commit, incarnation=OTHER_RUN) == (1,)
        (fields,) = entries(bench.client, KEYS.settlements)
        told = GenerateResult.model_validate_json(fields[b"result"])
        assert (told.text, told.metadata) == (amend.lost, {"a": amend.lost})
        assert told.attempts[0] == Attempt.model_validate_json(amend.was)


class TestDoubles:
    def test_dropping_changes_its_claim_alone(self, bench: RedisBench) -> None:
        """And a repeat nothing; nor does another run's."""
        bench.push(*jobs("a", "a"))
        bench.enter(OTHER_RUN)
        first, double = claim(bench).claims
        drop = Drop(double.tag, "a")
        before = state(bench.client)
        assert words(bench, drop, incarnation=OTHER_RUN) == (0,)
        assert state(bench.client) == before
        assert words(bench, drop) == (1,)
        after = state(bench.client)
        assert {key for key in before if before[key] != after.get(key)} == {KEYS.claims(RUN).encode()}
        assert words(bench, drop) == (0,)
        assert state(bench.client) == after
        words(bench, settle(first))

    def test_one_that_has_become_the_only_one_stays(self, bench: RedisBench) -> None:
        """Nothing changes."""
        bench.push(*jobs("a", "a"))
        first, double = claim(bench).claims
        words(bench, Bury(first.tag, "not_json"))
        before = state(bench.client)
        assert words(bench, Drop(double.tag, "a")) == (2,)
        assert state(bench.client) == before

    def test_a_mark_that_names_no_claim_holds_up_nothing(self, bench: RedisBench) -> None:
        """Whatever left it there: the job is run, and marked as run by this claim."""
        bench.client.hset(KEYS.running, "a", "triton-09:gone/1.1")
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        assert one.known.standing == ""
        assert bench.running() == {"a": f"{RUN}/{one.tag}"}
        bench.client.hset(KEYS.running, "a", "triton-09:gone/1.1")
        assert words(bench, Drop(one.tag, "a")) == (2,)
        bench.client.delete(KEYS.running)


def test_a_conflict_leaves_the_other_jobs_ledger_alone(bench: RedisBench) -> None:
    """The ledger of a job_id is that of the job which runs under it."""
    bench.push(*jobs("a"))
    (one,) = claim(bench).claims
    reaped(bench)
    bench.push(job_json(job_id="a", prompt="another"))
    again, conflict = claim(bench, incarnation=OTHER_RUN).claims
    words(bench, Bury(conflict.tag, "job_id_conflict"), incarnation=OTHER_RUN)
    kept: Any = bench.client.lrange(KEYS.attempts("a"), 0, -1)
    assert [Attempt.model_validate_json(item) for item in kept] == [lost_attempt(one)]
    assert bench.running() == {"a": f"{OTHER_RUN}/{again.tag}"}


def test_a_broken_off_retry_is_not_lost(bench: RedisBench) -> None:
    """A failed attempt whose reply was lost is there once, whether asked again by the same run or the next."""
    bench.push(*jobs("a"))
    (one,) = claim(bench).claims
    commit = retry(one, 3_600_000, lost_attempt(one).model_copy(update={"code": None, "inference_ms": 5}))
    assert words(bench, commit) == (1,)
    reaped(bench)
    bench.enter("triton-01:later")
    assert words(bench, commit, incarnation="triton-01:later") == (1,)
    assert bench.client.llen(KEYS.attempts("a")) == 1
