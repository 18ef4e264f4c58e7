"""What whoever carries out exchanges promises: the real Committer over a real Redis, and the fake of the unit tests.

Each is a subclass that gives the ``bench`` fixture.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import pytest

from tasks import rfc3339
from tasks.delivery import Standing
from tasks.errors import ErrorCode
from tasks.result import Attempt, AttemptCode
from tests.jobs import MODEL, attempt, job_json, usage
from tests.redis_model import ASIDE_MS, Seen
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
    Postponed,
    Retry,
    Return,
    Settle,
)
from worker.keys import Keys

KEYS = Keys("speedinfer")
OTHER_MODEL = "acme/model-2"
LONG_AGO = "2020-01-01T00:00:00Z"
AN_HOUR_MS = 3_600_000
FINGERPRINT = "f" * 32
RUN = "triton-01:a"
OTHER_RUN = "triton-02:b"


class Bench(Protocol):
    """A Redis, and two workers beside it. Whoever exchanges for the first time has entered before."""

    def push(self, *raws: bytes, queue: str = KEYS.jobs(MODEL)) -> None:
        """Enqueue as a gateway does, the first one first."""
        ...

    def exchange(self, asked: Exchange, incarnation: str = RUN) -> ExchangeReply:
        """Carry out an exchange for a run of a worker."""
        ...

    def queued(self, queue: str = KEYS.jobs(MODEL)) -> list[bytes]:
        """Return what is in a list, next in line first."""
        ...

    def settled(self) -> list[str]:
        """Return the job_ids in the settlement queue."""
        ...

    def buried(self) -> list[tuple[str, str, bytes]]:
        """Return the dead letters: queue, reason, raw."""
        ...

    def claimed_tags(self, incarnation: str = RUN) -> set[str]:
        """Return the tags of what a run of a worker has claimed."""
        ...

    def running(self) -> dict[str, str]:
        """Return which claim runs each job that is claimed: job_id to ``<incarnation>/<tag>``."""
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a job as a gateway does."""
        ...

    def enter(self, incarnation: str = RUN) -> str:
        """Ask for the lease; returns the one that is in the way, or ''."""
        ...

    def renew(self, incarnation: str = RUN) -> Seen:
        """Count the lease up, and look at everyone's."""
        ...

    def leave(self, incarnation: str = RUN) -> bool:
        """Give the lease up; False if claims are left."""
        ...

    def reap(self, incarnation: str, stood: str) -> int:
        """End a run whose lease stood still so, '' where it has none; returns how many jobs went back, -1 for none."""
        ...


def jobs(*job_ids: str) -> list[bytes]:
    """Return a job for each id."""
    return [job_json(job_id=job_id) for job_id in job_ids]


def claim(bench: Bench, number: int = 1, wanted: int = 10, incarnation: str = RUN) -> Claimed:
    """Claim from the queue of MODEL."""
    reply = bench.exchange(Exchange(claim=ClaimRequest(number, wanted, (MODEL,))), incarnation)
    assert reply.claimed is not None
    return reply.claimed


def lease_of(bench: Bench, incarnation: str = RUN) -> str:
    """Return a run's lease as it stands, seen by another; '' where it has none."""
    by_worker = bench.renew("nobody:x").leases
    return next((text for text in by_worker.values() if text.startswith(f"{incarnation} ")), "")


def reaped(bench: Bench, incarnation: str = RUN) -> int:
    """End a run whose lease has just stood still."""
    return bench.reap(incarnation, lease_of(bench, incarnation))


def standings(claims: Iterable[Claim]) -> list[tuple[str | None, str]]:
    """Return how claims stand, by job_id, in order."""
    return [(one.job_id, one.known.standing) for one in claims]


def lost_attempt(one: Claim, incarnation: str = RUN) -> Attempt:
    """Return the attempt of a claim whose worker died."""
    return Attempt(
        worker_id=incarnation.rpartition(":")[0],
        started_at=rfc3339.from_ms(one.claimed_ms),
        code=AttemptCode.WORKER_LOST,
        inference_ms=None,
        usage=None,
    )


def crashed(bench: Bench, *raws: bytes, times: int = 2) -> None:
    """Let jobs be where a worker died, so many times."""
    bench.push(*raws)
    for n in range(times):
        doomed = f"doomed-{n}:x"
        assert len(claim(bench, 1, len(raws), doomed).claims) == len(raws)
        assert reaped(bench, doomed) == len(raws)


def ids(claims: Iterable[Claim]) -> list[str | None]:
    """Return the job_ids of claims, in order."""
    return [one.job_id for one in claims]


def settle(one: Claim) -> Settle:
    """Return the settlement of a claim."""
    return Settle(one.tag, one.job_id or "?", MODEL, "succeeded", FINGERPRINT, '{"version":1}')


def retry(one: Claim, delay_ms: int = 0, failed: Attempt | None = None) -> Retry:
    """Return the retry of a claim."""
    return Retry(one.tag, one.job_id or "?", FINGERPRINT, delay_ms, (failed or attempt()).model_dump_json())


def words(bench: Bench, *commits: Commit, incarnation: str = RUN) -> tuple[int, ...]:
    """Commit, and return what is said of each commit."""
    return bench.exchange(Exchange(commits), incarnation).outcomes


class CommitterContract:
    """The promises; ``bench`` is given by the subclass."""

    @pytest.fixture
    def bench(self) -> Bench:
        """Return what is held to the contract."""
        raise NotImplementedError

    def test_jobs_are_claimed_in_the_order_in_which_they_came(self, bench: Bench) -> None:
        """First in, first claimed; each with the tag of its call and its place in it."""
        bench.push(*jobs("a", "b", "c"))
        found = claim(bench, number=7, wanted=2).claims
        assert [(one.tag, one.job_id, one.queue, one.raw) for one in found] == [
            ("7.1", "a", KEYS.jobs(MODEL), job_json(job_id="a")),
            ("7.2", "b", KEYS.jobs(MODEL), job_json(job_id="b")),
        ]
        assert bench.queued() == jobs("c")
        assert bench.claimed_tags() == {"7.1", "7.2"}

    def test_a_claim_names_the_models_found_empty(self, bench: Bench) -> None:
        """A model is empty when no list of its queue is left with a job, closed ones included."""
        bench.push(*jobs("a", "b"))
        asked = ClaimRequest(1, 1, (MODEL, OTHER_MODEL), ("acme/closed",))
        reply = bench.exchange(Exchange(claim=asked))
        assert reply.claimed is not None
        assert reply.claimed.empty == {OTHER_MODEL, "acme/closed"}
        assert claim(bench, number=2).empty == {MODEL}

    def test_the_same_call_again_gives_the_same_claims(self, bench: Bench) -> None:
        """A repeat after a lost reply takes nothing more, also when there is more by now."""
        bench.push(*jobs("a", "b"))
        first = claim(bench, number=1, wanted=2)
        bench.push(*jobs("c"))
        again = claim(bench, number=1, wanted=2)
        assert again.claims == first.claims
        assert bench.queued() == jobs("c")

    def test_a_call_that_arrives_after_a_later_one_claims_nothing(self, bench: Bench) -> None:
        """It comes over a connection that was given up long ago; nobody would run what it claims."""
        claim(bench, number=5)
        bench.push(*jobs("a"))
        assert claim(bench, number=4).claims == ()
        assert bench.queued() == jobs("a")
        assert claim(bench, number=4, incarnation=OTHER_RUN).claims != ()

    def test_models_take_turns_within_a_call(self, bench: Bench) -> None:
        """One job of each model in turn, so a full queue does not hold up another."""
        bench.push(*jobs("a1", "a2", "a3"))
        bench.push(*jobs("b1", "b2"), queue=KEYS.jobs(OTHER_MODEL))
        reply = bench.exchange(Exchange(claim=ClaimRequest(1, 4, (MODEL, OTHER_MODEL))))
        assert reply.claimed is not None
        assert ids(reply.claimed.claims) == ["a1", "b1", "a2", "b2"]

    def test_a_settled_job_is_out_of_its_claim(self, bench: Bench) -> None:
        """It is in the settlement queue once; the same commit again says the same and changes nothing."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        assert words(bench, settle(one)) == (1,)
        assert words(bench, settle(one)) == (1,)
        assert bench.settled() == ["a"]
        assert bench.claimed_tags() == set()

    def test_a_second_settlement_of_a_job_settles_nothing(self, bench: Bench) -> None:
        """The second claim of the job_id hears 0, and is dropped."""
        bench.push(*jobs("a", "a"))
        first, second = claim(bench).claims
        assert words(bench, settle(first), settle(second)) == (1, 0)
        assert bench.settled() == ["a"]
        assert bench.claimed_tags() == set()
        assert bench.running() == {}

    def test_another_runs_claims_cannot_be_touched(self, bench: Bench) -> None:
        """A tag is worth something only to the incarnation that claimed it."""
        bench.push(*jobs("a", "b", "c", "d", "d"))
        a, b, c, d, e = claim(bench).claims
        commits = (settle(a), retry(b), Return(c.tag), Bury(d.tag, "not_json"), Drop(e.tag, "d"))
        assert words(bench, *commits, incarnation=OTHER_RUN) == (-1, 0, 0, 0, 0)
        assert bench.claimed_tags() == {"1.1", "1.2", "1.3", "1.4", "1.5"}
        assert set(bench.running()) == {"a", "b", "c", "d"}
        assert (bench.settled(), bench.queued(), bench.buried()) == ([], [], [])

    def test_outcomes_come_in_the_order_of_the_commits(self, bench: Bench) -> None:
        """Whatever order they are carried out in."""
        bench.push(*jobs("a", "b", "c", "d"))
        a, b, c, d = claim(bench).claims
        gone = Settle("9.9", "x", MODEL, "succeeded", "f", "{}")
        assert words(bench, Bury(d.tag, "not_json"), gone, Return(c.tag), settle(a), retry(b)) == (1, -1, 1, 1, 1)

    def test_a_due_retry_is_next_in_line_with_its_attempts(self, bench: Bench) -> None:
        """Whoever claims first after the due time moves it back, ahead of the others, and says so."""
        bench.push(*jobs("a", "b"))
        (one,) = claim(bench, wanted=1).claims
        words(bench, retry(one, 0))
        reply = claim(bench, number=2, incarnation=OTHER_RUN)
        assert reply.returned == {MODEL}
        assert ids(reply.claims) == ["a", "b"]
        assert reply.claims[0].known.attempts == (attempt(),)
        assert reply.claims[0].raw == job_json(job_id="a")

    def test_a_retry_waits_until_it_is_due(self, bench: Bench) -> None:
        """Until then a claim tells when that is, by Redis' clock."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        words(bench, retry(one, AN_HOUR_MS))
        reply = claim(bench, number=2)
        assert reply.claims == ()
        assert reply.next_due_ms is not None
        assert reply.now_ms < reply.next_due_ms <= reply.now_ms + AN_HOUR_MS
        assert bench.claimed_tags() == set()

    def test_without_retries_nothing_is_due(self, bench: Bench) -> None:
        """``next_due_ms`` is None then."""
        assert claim(bench).next_due_ms is None

    def test_returned_jobs_keep_their_order_at_the_front(self, bench: Bench) -> None:
        """What was claimed first is next in line, in whatever order they were given back."""
        bench.push(*jobs("a", "b", "c", "d"))
        first, second = claim(bench, number=9, wanted=1).claims, claim(bench, number=10, wanted=2).claims
        assert words(bench, Return(second[0].tag), Return(first[0].tag), Return(second[1].tag)) == (1, 1, 1)
        assert bench.queued() == jobs("a", "b", "c", "d")

    def test_dead_letters_keep_the_bytes_as_they_came(self, bench: Bench) -> None:
        """Whatever they are, line feeds and zero bytes included."""
        raw = b"\xff\x00\n{]\r\n" + bytes(range(256))
        bench.push(raw)
        (one,) = claim(bench).claims
        assert one.job_id is None
        assert words(bench, Bury(one.tag, "not_json")) == (1,)
        assert bench.buried() == [(KEYS.jobs(MODEL), "not_json", raw)]

    def test_opening_tells_what_the_claim_could_not(self, bench: Bench) -> None:
        """Whether it is still held, how its job stands, and the attempts of that."""
        bench.push(*jobs("a"), b"an envelope", b"another", b"a third")
        a, *envelopes = claim(bench).claims
        words(bench, retry(a, AN_HOUR_MS))
        first, second, third = (one.tag for one in envelopes)
        bench.cancel("c")
        opens = (
            Open(first, "a", FINGERPRINT, None, None, MODEL),
            Open(second, "b", FINGERPRINT, 0, None, MODEL),
            Open(third, "c", FINGERPRINT, 0, None, MODEL),
            Open("9.9", "d", FINGERPRINT, None, 0, MODEL),
        )
        opened = bench.exchange(Exchange(opens=opens)).opened
        assert opened == (
            Known(Standing.TO_RUN, b"", alone=False, attempts=(attempt(),), holds=a.known.holds),
            Known(Standing.EXPIRED, b"", alone=False, attempts=()),
            Known(Standing.CANCELLED, b"", alone=False, attempts=()),
            None,
        )
        assert bench.running() == {"a": f"{RUN}/{first}", "b": f"{RUN}/{second}", "c": f"{RUN}/{third}"}
        words(bench, *(Bury(tag, "bad_envelope") for tag in (first, second, third)))
        assert bench.running() == {}

    def test_opening_again_tells_the_same(self, bench: Bench) -> None:
        """A repeat after a lost reply finds its own mark."""
        bench.push(b"an envelope")
        (one,) = claim(bench).claims
        opens = Exchange(opens=(Open(one.tag, "a", FINGERPRINT, None, None, MODEL),))
        assert bench.exchange(opens) == bench.exchange(opens)
        assert bench.running() == {"a": f"{RUN}/{one.tag}"}
        words(bench, Return(one.tag))

    def test_a_job_in_an_envelope_is_told_from_one_that_runs(self, bench: Bench) -> None:
        """And from one that was settled; only one of a job_id ever runs."""
        bench.push(b"an envelope", *jobs("a", "b"))
        envelope, a, b = claim(bench).claims
        words(bench, settle(b))
        (known,) = bench.exchange(Exchange(opens=(Open(envelope.tag, "a", FINGERPRINT, None, None, MODEL),))).opened
        assert known == Known(Standing.HELD, a.raw, alone=False, attempts=())
        (known,) = bench.exchange(Exchange(opens=(Open(envelope.tag, "b", FINGERPRINT, None, None, MODEL),))).opened
        assert known == Known(Standing.SETTLED, b"f" * 32, alone=False, attempts=())
        assert bench.running() == {"a": f"{RUN}/{a.tag}"}
        words(bench, settle(a), Drop(envelope.tag, "b"))

    def test_expired_jobs_say_so(self, bench: Bench) -> None:
        """They are claimed in their turn like others."""
        bench.push(job_json(job_id="late", expires_at=LONG_AGO), *jobs("b"))
        assert standings(claim(bench).claims) == [("late", Standing.EXPIRED), ("b", Standing.TO_RUN)]

    def test_ended_heads_of_closed_models_are_claimed(self, bench: Bench) -> None:
        """As many as allowed, and nothing behind a head that has not ended: expired or cancelled."""
        late = [job_json(job_id=f"late-{n}", expires_at=LONG_AGO) for n in range(3)]
        bench.push(late[0], *jobs("cancelled"), late[1], *jobs("b"), late[2])
        bench.cancel("cancelled")
        reply = bench.exchange(Exchange(claim=ClaimRequest(1, 5, (), (MODEL,), most_ended=2)))
        assert reply.claimed is not None
        assert standings(reply.claimed.claims) == [("late-0", Standing.EXPIRED), ("cancelled", Standing.CANCELLED)]
        reply = bench.exchange(Exchange(claim=ClaimRequest(2, 5, (), (MODEL,), most_ended=2)))
        assert reply.claimed is not None
        assert ids(reply.claimed.claims) == ["late-1"]
        assert bench.queued() == [*jobs("b"), late[2]]

    def test_ended_heads_need_no_slot(self, bench: Bench) -> None:
        """They are claimed beyond what is wanted, when a sweep asks for them, of open models too."""
        bench.push(*jobs("a"), job_json(job_id="late", expires_at=LONG_AGO), *jobs("b"))
        reply = bench.exchange(Exchange(claim=ClaimRequest(1, 1, (MODEL,), most_ended=10)))
        assert reply.claimed is not None
        assert standings(reply.claimed.claims) == [("a", Standing.TO_RUN), ("late", Standing.EXPIRED)]

    def test_commits_come_before_the_claim_of_the_same_call(self, bench: Bench) -> None:
        """A job that is given back may be claimed by the very call that gives it back."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        reply = bench.exchange(Exchange((Return(one.tag),), claim=ClaimRequest(2, 1, (MODEL,))))
        assert reply.claimed is not None
        assert [(again.tag, again.job_id) for again in reply.claimed.claims] == [("2.1", "a")]


class LeaseContract:
    """What Redis promises about leases; ``bench`` is given by the subclass."""

    @pytest.fixture
    def bench(self) -> Bench:
        """Return what is held to the contract."""
        raise NotImplementedError

    def test_a_free_worker_id_is_taken(self, bench: Bench) -> None:
        """And counted up from 0 by each renewal."""
        assert bench.enter() == ""
        assert lease_of(bench) == f"{RUN} 0 10000"
        seen = bench.renew()
        assert (seen.held, seen.leases) == (True, {"triton-01": f"{RUN} 1 10000"})
        assert bench.renew().leases == {"triton-01": f"{RUN} 2 10000"}

    def test_one_worker_id_has_one_run(self, bench: Bench) -> None:
        """The second one is told whose lease is in the way, and renews nothing."""
        bench.enter()
        bench.renew()
        assert bench.enter("triton-01:later") == f"{RUN} 1 10000"
        assert not bench.renew("triton-01:later").held
        assert lease_of(bench) == f"{RUN} 1 10000"

    def test_entering_again_changes_nothing(self, bench: Bench) -> None:
        """A repeat after a lost reply finds its own lease."""
        bench.enter()
        bench.renew()
        assert bench.enter() == ""
        assert lease_of(bench) == f"{RUN} 1 10000"

    def test_a_lease_given_up_is_free(self, bench: Bench) -> None:
        """A repeat finds none; another run's stays."""
        bench.enter()
        assert bench.leave()
        assert bench.leave()
        assert bench.enter("triton-01:later") == ""
        assert bench.leave()
        assert lease_of(bench, "triton-01:later") == "triton-01:later 0 10000"

    def test_with_claims_no_lease_is_given_up(self, bench: Bench) -> None:
        """Somebody has to find them by it."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        assert not bench.leave()
        assert lease_of(bench)
        words(bench, settle(one))
        assert bench.leave()
        assert not lease_of(bench)

    def test_without_a_lease_nothing_is_claimed(self, bench: Bench) -> None:
        """Of a run that was declared dead, or has left: nobody would ever look for what it took."""
        claim(bench, 1)
        reaped(bench)
        bench.push(*jobs("a"))
        reply = claim(bench, 2)
        assert (reply.held_lease, reply.claims) == (False, ())
        assert bench.queued() == jobs("a")

    def test_whoever_holds_claims_is_shown(self, bench: Bench) -> None:
        """Until the last of them is gone, whichever way."""
        bench.push(*jobs("a", "b", "c", "d"), b"e")
        claims = claim(bench).claims
        commits: list[Commit] = [settle(claims[0]), retry(claims[1]), Return(claims[2].tag)]
        commits += [Bury(claims[3].tag, "not_json"), Bury(claims[4].tag, "not_json")]
        for commit in commits:
            assert bench.renew(OTHER_RUN).claimants == {RUN}
            assert words(bench, commit) == (1,)
        assert bench.renew(OTHER_RUN).claimants == frozenset()
        assert bench.running() == {}

    def test_the_jobs_of_a_dead_run_are_next_in_line(self, bench: Bench) -> None:
        """In the order in which they were claimed, before all others, whatever the numbers of the calls."""
        bench.push(*jobs(*"abcdefghijklmnop"))
        first = claim(bench, 9, 11).claims
        second = claim(bench, 10, 2).claims
        words(bench, settle(first[4]))
        assert reaped(bench) == 12
        assert bench.queued() == jobs(*"abcdfghijklmnop")
        assert bench.claimed_tags() == set()
        assert bench.running() == {}
        again = claim(bench, 1, 20, OTHER_RUN).claims
        assert [one.known.attempts for one in again] == [
            *((lost_attempt(one),) for one in (*first[:4], *first[5:], *second)),
            *[()] * 3,
        ]

    def test_a_lease_that_moved_is_no_dead_ones(self, bench: Bench) -> None:
        """Nor is one that was taken anew by the same worker."""
        bench.push(*jobs("a"))
        claim(bench)
        stood = lease_of(bench)
        bench.renew()
        assert bench.reap(RUN, stood) == -1
        assert bench.claimed_tags() == {"1.1"}
        assert reaped(bench) == 1
        assert bench.enter("triton-01:later") == ""
        assert bench.reap(RUN, stood) == -1
        assert lease_of(bench, "triton-01:later")

    def test_of_two_who_end_it_one_does(self, bench: Bench) -> None:
        """A repeat hears of nothing; nothing goes back twice."""
        bench.push(*jobs("a"))
        claim(bench)
        stood = lease_of(bench)
        assert bench.reap(RUN, stood) == 1
        assert bench.reap(RUN, stood) == -1
        assert bench.reap(RUN, "") == -1
        assert bench.queued() == jobs("a")

    def test_an_idle_dead_one_loses_its_lease(self, bench: Bench) -> None:
        """So that its worker_id is free."""
        bench.enter()
        assert reaped(bench) == 0
        assert bench.enter("triton-01:later") == ""

    def test_claims_without_a_lease_go_back_too(self, bench: Bench) -> None:
        """Though not those of a run that has a lease, nor of one that has no claims."""
        bench.push(*jobs("a"))
        claim(bench)
        assert bench.reap(RUN, "") == -1
        self.lose_the_lease(bench)
        assert bench.reap(OTHER_RUN, "") == -1
        assert bench.reap(RUN, "") == 1
        assert bench.queued() == jobs("a")
        assert bench.renew(OTHER_RUN).claimants == frozenset()

    def lose_the_lease(self, bench: Bench) -> None:
        """Take RUN's lease away, as the end of its time to live would."""
        raise NotImplementedError

    def test_a_dead_run_changes_nothing_any_more(self, bench: Bench) -> None:
        """Its commits find no claim, also once another run has the job, under the very same tag."""
        bench.push(*jobs("a", "b", "c", "d", "d"))
        a, b, c, d, second = claim(bench).claims
        reaped(bench)
        commits = (settle(a), retry(b), Return(c.tag), Bury(d.tag, "x"), Drop(second.tag, "d"))
        assert words(bench, *commits) == (-1, 0, 0, 0, 0)
        claim(bench, incarnation=OTHER_RUN)
        running = bench.running()
        assert words(bench, *commits) == (-1, 0, 0, 0, 0)
        assert bench.exchange(Exchange(opens=(Open(d.tag, "d", FINGERPRINT, None, None, MODEL),))).opened == (None,)
        assert bench.claimed_tags(OTHER_RUN) == {"1.1", "1.2", "1.3", "1.4", "1.5"}
        assert bench.running() == running
        assert (bench.settled(), bench.queued(), bench.buried()) == ([], [], [])
        assert bench.renew().held is False

    def test_a_job_that_ran_here_is_lost_and_its_double_is_not(self, bench: Bench) -> None:
        """Both go back; only the one that may have run has an attempt for it."""
        bench.push(*jobs("a", "a"))
        first, _ = claim(bench).claims
        reaped(bench)
        again, double = claim(bench, 1, incarnation=OTHER_RUN).claims
        assert again.known.attempts == double.known.attempts == (lost_attempt(first),)

    def test_what_nobody_can_read_has_a_ledger_of_its_own(self, bench: Bench) -> None:
        """By its bytes: equal ones share it, and it goes with them to the dead letters."""
        bench.push(b"garbage", b"other garbage")
        first, other = claim(bench).claims
        reaped(bench)
        again, other_again = claim(bench, 1, incarnation=OTHER_RUN).claims
        assert again.known.attempts == (lost_attempt(first),)
        assert other_again.known.attempts == (lost_attempt(other),)
        words(bench, *(Bury(one.tag, "not_json") for one in (again, other_again)), incarnation=OTHER_RUN)
        bench.push(b"garbage")
        (fresh,) = claim(bench, 2, incarnation=OTHER_RUN).claims
        assert fresh.known.attempts == ()

    def test_what_really_became_of_a_lost_run_is_written_in_its_place(self, bench: Bench) -> None:
        """Once, though asked twice; and never into the ledger of a job that has ended."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        reaped(bench)
        lost = lost_attempt(one)
        was = lost.model_copy(update={"code": AttemptCode.LEASE_LOST, "inference_ms": 840, "usage": usage()})
        amend = Amend("a", lost.model_dump_json(), was.model_dump_json())
        for _ in range(2):
            bench.exchange(Exchange(amends=(amend, Amend("b", amend.lost, amend.was))))
        (again,) = claim(bench, incarnation=OTHER_RUN).claims
        assert again.known.attempts == (was,)
        words(bench, settle(again), incarnation=OTHER_RUN)
        bench.exchange(Exchange(amends=(amend,)))
        bench.push(*jobs("a"))
        (double,) = claim(bench, 2, incarnation=OTHER_RUN).claims
        assert double.known.attempts == ()


class StandingContract:
    """How jobs stand when they are claimed; ``bench`` is given by the subclass."""

    @pytest.fixture
    def bench(self) -> Bench:
        """Return what is held to the contract."""
        raise NotImplementedError

    def test_a_settled_job_is_told_with_what_was_settled(self, bench: Bench) -> None:
        """By its fingerprint; it runs no more."""
        bench.push(*jobs("a"))
        words(bench, settle(claim(bench).claims[0]))
        bench.push(*jobs("a"))
        (double,) = claim(bench, 2).claims
        assert double.known == Known(Standing.SETTLED, b"f" * 32, alone=False, attempts=())
        assert bench.running() == {}
        assert words(bench, Drop(double.tag, "a")) == (1,)
        assert words(bench, Drop(double.tag, "a")) == (0,)
        assert bench.claimed_tags() == set()

    @pytest.mark.parametrize("incarnation", [RUN, OTHER_RUN])
    def test_a_job_that_is_claimed_elsewhere_is_told_with_its_bytes(self, bench: Bench, incarnation: str) -> None:
        """In the same run's claims or in another's."""
        other = job_json(job_id="a", metadata={"n": "2"})
        bench.push(*jobs("a"), other)
        (first,) = claim(bench, 1, 1).claims
        (double,) = claim(bench, 2, 1, incarnation).claims
        assert double.known == Known(Standing.HELD, first.raw, alone=False, attempts=())
        assert bench.running() == {"a": f"{RUN}/{first.tag}"}
        assert words(bench, Drop(double.tag, "a"), incarnation=incarnation) == (1,)
        assert bench.running() == {"a": f"{RUN}/{first.tag}"}
        words(bench, settle(first))

    def test_a_double_whose_other_is_gone_is_not_dropped(self, bench: Bench) -> None:
        """Both would be away. It goes back, and is claimed as any job."""
        bench.push(*jobs("a", "a"))
        first, double = claim(bench).claims
        words(bench, Return(first.tag))
        assert words(bench, Drop(double.tag, "a")) == (2,)
        assert bench.claimed_tags() == {double.tag}
        assert words(bench, Return(double.tag)) == (1,)
        assert bench.queued() == jobs("a", "a")

    def test_a_double_whose_other_was_settled_meanwhile_is_dropped(self, bench: Bench) -> None:
        """It is the same as if it had come later."""
        bench.push(*jobs("a", "a"))
        first, double = claim(bench).claims
        assert words(bench, settle(first), Drop(double.tag, "a")) == (1, 1)
        assert bench.settled() == ["a"]
        assert bench.claimed_tags() == set()

    def test_a_double_that_may_run_by_the_time_of_a_repeat_goes_back(self, bench: Bench) -> None:
        """The first reply was lost, and the other went back to its queue since; but nothing was granted for this one."""
        bench.push(*jobs("a", "a"))
        (first,) = claim(bench, 1, 1).claims
        assert standings(claim(bench, 1, 1, OTHER_RUN).claims) == [("a", Standing.HELD)]
        words(bench, Return(first.tag))
        (double,) = claim(bench, 1, 1, OTHER_RUN).claims
        assert double.known == Known(Standing.HELD, double.raw, alone=False, attempts=())
        assert bench.running() == {}
        assert words(bench, Drop(double.tag, "a"), incarnation=OTHER_RUN) == (2,)
        assert words(bench, Return(double.tag), incarnation=OTHER_RUN) == (1,)
        assert bench.queued() == jobs("a", "a")

    def test_other_bytes_under_the_id_of_a_job_that_waits_are_compared_before_they_are_its_rival(
        self, bench: Bench
    ) -> None:
        """They are told without their id; the job is claimed when it is due, while they are still to be opened."""
        other = job_json(job_id="a", prompt="other")
        bench.push(*jobs("a"))
        words(bench, retry(claim(bench).claims[0], AN_HOUR_MS))
        bench.push(other)
        (unread,) = claim(bench, 2, incarnation=OTHER_RUN).claims
        assert claim(bench, 2, incarnation=OTHER_RUN).claims == (unread,)
        assert (unread.job_id, unread.known.standing, unread.known.attempts) == (None, Standing.TO_RUN, ())
        assert bench.running() == {}
        bench.push(*jobs("a"))
        (due,) = claim(bench, 3).claims
        assert (due.job_id, due.known.standing, due.known.attempts) == ("a", Standing.TO_RUN, (attempt(),))
        opens = Exchange(opens=(Open(unread.tag, "a", "e" * 32, None, None, MODEL),))
        assert bench.exchange(opens, OTHER_RUN).opened == (
            Known(Standing.HELD, due.raw, alone=False, attempts=(attempt(),)),
        )
        assert words(bench, settle(due)) == (1,)

    @pytest.mark.parametrize("other", [job_json(job_id="a", prompt="other"), b"message a"])
    def test_another_job_under_the_id_of_one_that_waits_is_preceded(self, bench: Bench, other: bytes) -> None:
        """Also where it has expired and was cancelled. It holds nothing, runs nowhere, and takes nothing with it."""
        bench.push(*jobs("a"))
        words(bench, retry(claim(bench).claims[0]))
        claim(bench, 2, 0)
        assert bench.queued() == jobs("a")
        bench.cancel("a")
        (due,) = claim(bench, 3).claims
        words(bench, retry(due, AN_HOUR_MS))
        bench.push(other)
        (unread,) = claim(bench, 4).claims
        known = Known(Standing.PRECEDED, FINGERPRINT.encode(), alone=False, attempts=(attempt(), attempt()))
        for _ in range(2):
            opens = Exchange(opens=(Open(unread.tag, "a", "e" * 32, 0, None, MODEL),))
            assert bench.exchange(opens).opened == (known,)
        assert bench.running() == {}
        assert words(bench, Bury(unread.tag, "job_id_conflict")) == (1,)
        assert words(bench, Bury(unread.tag, "job_id_conflict")) == (0,)
        bench.push(*jobs("a"))
        (same,) = claim(bench, 5).claims
        assert (same.job_id, same.known.attempts) == ("a", (attempt(), attempt()))
        assert words(bench, replace(settle(same), heed_cancel=False)) == (1,)
        assert bench.settled() == ["a"]

    @pytest.mark.parametrize("again", [job_json(job_id="a", metadata={"n": "2"}), b"message a"])
    def test_the_same_content_in_other_bytes_is_an_attempt_of_the_job_that_waits(
        self, bench: Bench, again: bytes
    ) -> None:
        """It is granted what it needs, and has the ledger."""
        bench.push(*jobs("a"))
        words(bench, retry(claim(bench).claims[0], AN_HOUR_MS))
        bench.push(again)
        (unread,) = claim(bench, 2).claims
        (known,) = bench.exchange(Exchange(opens=(Open(unread.tag, "a", FINGERPRINT, None, None, MODEL),))).opened
        assert isinstance(known, Known)
        assert (known.standing, known.attempts, known.holds != "") == (Standing.TO_RUN, (attempt(),), True)
        assert bench.running() == {"a": f"{RUN}/{unread.tag}"}

    def test_a_returned_job_runs_again(self, bench: Bench) -> None:
        """Nothing of its earlier claim is in its way."""
        bench.push(*jobs("a"))
        for number in (1, 2, 3):
            (one,) = claim(bench, number).claims
            assert one.known.standing is Standing.TO_RUN
            assert bench.running() == {"a": f"{RUN}/{one.tag}"}
            words(bench, Return(one.tag))
        assert bench.running() == {}

    def test_an_interrupted_run_is_in_its_ledger(self, bench: Bench) -> None:
        """What a drain breaks off may have cost something."""
        broken_off = attempt(AttemptCode.DRAINED)
        bench.push(*jobs("a"), b"garbage")
        one, garbage = claim(bench).claims
        words(bench, Return(one.tag, broken_off.model_dump_json()), Return(garbage.tag))
        assert [again.known.attempts for again in claim(bench, 2).claims] == [(broken_off,), ()]

    def test_a_cancelled_job_says_so(self, bench: Bench) -> None:
        """It is claimed in its turn like others."""
        bench.push(*jobs("a", "b"))
        bench.cancel("a")
        assert standings(claim(bench).claims) == [("a", Standing.CANCELLED), ("b", Standing.TO_RUN)]

    @pytest.mark.parametrize(
        ("settled", "held", "cancelled", "expired", "standing"),
        [
            (True, False, True, True, Standing.SETTLED),
            (False, True, True, True, Standing.HELD),
            (False, False, True, True, Standing.CANCELLED),
            (False, False, False, True, Standing.EXPIRED),
            (False, False, False, False, Standing.TO_RUN),
        ],
    )
    def test_what_stands_first(
        self, bench: Bench, settled: bool, held: bool, cancelled: bool, expired: bool, standing: Standing
    ) -> None:
        """Settled before held, before cancelled, before expired: a job ends once, of what ended it first."""
        raw = job_json(job_id="a", **({"expires_at": LONG_AGO} if expired else {}))
        bench.push(raw)
        if settled or held:
            (first,) = claim(bench).claims
            if settled:
                words(bench, settle(first))
            bench.push(raw)
        if cancelled:
            bench.cancel("a")
        assert standings(claim(bench, 2).claims) == [("a", standing)]

    def test_a_job_cancelled_while_it_ran_is_not_settled_otherwise(self, bench: Bench) -> None:
        """The settlement hears 2 and changes nothing, until it is the one that says so."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        bench.cancel("a")
        assert words(bench, settle(one)) == (2,)
        assert words(bench, settle(one)) == (2,)
        assert (bench.settled(), bench.claimed_tags()) == ([], {one.tag})
        heedless = Settle(one.tag, "a", MODEL, "failed", "f" * 32, "{}", heed_cancel=False)
        assert words(bench, heedless) == (1,)
        assert bench.settled() == ["a"]

    def test_a_cancellation_of_a_settled_job_changes_nothing(self, bench: Bench) -> None:
        """The settlement that reached Redis first stands, also for whoever repeats it."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        assert words(bench, settle(one)) == (1,)
        bench.cancel("a")
        assert words(bench, settle(one)) == (1,)
        assert bench.settled() == ["a"]


class SuspectContract:
    """Jobs that were there when a worker or a model died; ``bench`` is given by the subclass."""

    @pytest.fixture
    def bench(self) -> Bench:
        """Return what is held to the contract; two crashes make a suspect."""
        raise NotImplementedError

    def test_one_crash_is_chance(self, bench: Bench) -> None:
        """All that were there run together again."""
        crashed(bench, *jobs("a", "b"), times=1)
        assert [one.known.alone for one in claim(bench).claims] == [False, False]

    @pytest.mark.parametrize("code", [AttemptCode.WORKER_LOST, ErrorCode.RUNTIME_MODEL_CRASHED])
    def test_of_suspects_one_runs_at_a_time(self, bench: Bench, code: ErrorCode | AttemptCode) -> None:
        """The others wait for a moment; who is no suspect does not."""
        bench.push(*jobs("a", "b", "c"))
        for number in (1, 2):
            words(bench, *(retry(one, 0, attempt(code)) for one in claim(bench, number).claims))
        claim(bench, 3, 0)
        bench.push(*jobs("d"))
        reply = claim(bench, 4)
        assert [(one.job_id, one.known.alone) for one in reply.claims] == [("a", True), ("d", False)]
        assert reply.next_due_ms == reply.now_ms + ASIDE_MS
        assert set(bench.running()) == {"a", "d"}

    def test_while_one_runs_none_is_claimed(self, bench: Bench) -> None:
        """The caller says that one runs here; in another worker one may run meanwhile."""
        crashed(bench, *jobs("a", "b"))
        asked = ClaimRequest(1, 10, (MODEL,), one_runs_alone=True)
        reply = bench.exchange(Exchange(claim=asked))
        assert reply.claimed is not None
        assert reply.claimed.claims == ()
        assert reply.claimed.empty == {MODEL}
        assert bench.running() == {}

    def test_equal_ones_are_set_aside_each(self, bench: Bench) -> None:
        """Neither takes the other's place, also when the call is repeated with more of them."""
        crashed(bench, *jobs("a", "a"))
        alone = Exchange(claim=ClaimRequest(1, 10, (MODEL,), one_runs_alone=True))
        bench.exchange(alone)
        bench.push(*jobs("a"))
        bench.exchange(alone)
        assert bench.queued() == []
        assert self.waiting(bench) == jobs("a", "a", "a")

    def waiting(self, bench: Bench) -> list[bytes]:
        """Return what waits."""
        raise NotImplementedError

    def test_a_suspect_that_has_ended_is_not_set_aside(self, bench: Bench) -> None:
        """Cancelled, settled or held elsewhere, it does not run at all."""
        crashed(bench, *jobs("a", "a"))
        bench.cancel("a")
        reply = bench.exchange(Exchange(claim=ClaimRequest(1, 10, (MODEL,), one_runs_alone=True)))
        assert reply.claimed is not None
        assert standings(reply.claimed.claims) == [("a", Standing.CANCELLED), ("a", Standing.HELD)]

    def test_of_suspects_in_messages_one_is_opened_at_a_time(self, bench: Bench) -> None:
        """The others wait for a moment, whole; a message that is none's fault does not."""
        bench.push(b"message a", b"message b", b"message c")
        for number in (1, 2):
            claims = claim(bench, number).claims
            self._opened(bench, claims)
            died = attempt(AttemptCode.WORKER_LOST)
            commits = [Return(one.tag) if one.raw == b"message c" else retry(_named(one), 0, died) for one in claims]
            assert words(bench, *commits) == (1, 1, 1)
        claims = claim(bench, 3).claims
        first = self._opened(bench, claims)
        assert self._opened(bench, claims) == first
        aside = [one for one, known in zip(claims, first, strict=True) if known is None]
        alone = [one for one, known in zip(claims, first, strict=True) if isinstance(known, Known) and known.alone]
        assert (len(aside), len(alone)) == (1, 1)
        assert self.waiting(bench) == [aside[0].raw]
        assert set(bench.running()) == {_named(alone[0]).job_id, "c"}
        assert len(bench.claimed_tags()) == 2

    def test_while_one_runs_none_is_opened(self, bench: Bench) -> None:
        """The caller says that one runs here; the message goes where the others wait."""
        one = self._suspect_message(bench)
        opens = (Open(one.tag, "a", FINGERPRINT, None, None, MODEL),)
        for _ in range(2):
            assert bench.exchange(Exchange(opens=opens, one_runs_alone=True)).opened == (None,)
        assert self.waiting(bench) == [b"message a"]
        assert (bench.claimed_tags(), bench.running()) == (set(), {})
        assert bench.renew(OTHER_RUN).claimants == frozenset()

    def test_one_that_was_opened_before_runs_nowhere_once_it_is_set_aside(self, bench: Bench) -> None:
        """A repeat may find what the first try did not: nothing of that try is left."""
        one = self._suspect_message(bench)
        opens = (Open(one.tag, "a", FINGERPRINT, None, None, MODEL),)
        (known,) = bench.exchange(Exchange(opens=opens)).opened
        assert isinstance(known, Known)
        assert bench.running() == {"a": f"{RUN}/{one.tag}"}
        assert bench.exchange(Exchange(opens=opens, one_runs_alone=True)).opened == (None,)
        assert (bench.claimed_tags(), bench.running()) == (set(), {})

    @staticmethod
    def _suspect_message(bench: Bench) -> Claim:
        """Return the claim of message a, which is to run alone."""
        bench.push(b"message a")
        for number in (1, 2):
            (one,) = claim(bench, number).claims
            words(bench, retry(replace(one, job_id="a"), 0, attempt(AttemptCode.WORKER_LOST)))
        (one,) = claim(bench, 3).claims
        return one

    @staticmethod
    def _opened(bench: Bench, claims: Sequence[Claim]) -> tuple[Known | Postponed | None, ...]:
        """Open messages."""
        opens = tuple(Open(one.tag, _named(one).job_id or "", FINGERPRINT, None, None, MODEL) for one in claims)
        return bench.exchange(Exchange(opens=opens)).opened

    def test_garbage_can_be_a_suspect(self, bench: Bench) -> None:
        """Reading it may be what kills."""
        crashed(bench, b"garbage", b"more of it")
        assert [(one.raw, one.known.alone) for one in claim(bench).claims] == [(b"garbage", True)]

    def test_a_repeat_tells_the_same(self, bench: Bench) -> None:
        """That it is to run alone, too."""
        crashed(bench, *jobs("a", "b"))
        first = claim(bench)
        assert claim(bench).claims == first.claims
        assert [one.known.alone for one in first.claims] == [True]


def _named(message: Claim) -> Claim:
    """Return the claim of a message with its job_id, which is its last letter."""
    return replace(message, job_id=chr(message.raw[-1]))
