"""What whoever carries out exchanges promises: the real Committer over a real Redis, and the fake of the unit tests.

Each is a subclass that gives the ``bench`` fixture.
"""

from collections.abc import Iterable
from typing import Protocol

import pytest

from tasks.result import Attempt
from tests.jobs import MODEL, attempt, job_json
from worker.exchange import (
    Bury,
    Claim,
    Claimed,
    ClaimRequest,
    Commit,
    Exchange,
    ExchangeReply,
    Open,
    Opened,
    Retry,
    Return,
    Settle,
)
from worker.keys import Keys

KEYS = Keys("speedinfer")
OTHER_MODEL = "acme/model-2"
LONG_AGO = "2020-01-01T00:00:00Z"
AN_HOUR_MS = 3_600_000


class Bench(Protocol):
    """A Redis, and two runs of a worker beside it."""

    def push(self, *raws: bytes, queue: str = KEYS.jobs(MODEL)) -> None:
        """Enqueue as a gateway does, the first one first."""
        ...

    def exchange(self, asked: Exchange, incarnation: str = "triton-01:a") -> ExchangeReply:
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

    def claimed_tags(self, incarnation: str = "triton-01:a") -> set[str]:
        """Return the tags of what a run of a worker has claimed."""
        ...


def jobs(*job_ids: str) -> list[bytes]:
    """Return a job for each id."""
    return [job_json(job_id=job_id) for job_id in job_ids]


def claim(bench: Bench, number: int = 1, wanted: int = 10, incarnation: str = "triton-01:a") -> Claimed:
    """Claim from the queue of MODEL."""
    reply = bench.exchange(Exchange(claim=ClaimRequest(number, wanted, (MODEL,))), incarnation)
    assert reply.claimed is not None
    return reply.claimed


def ids(claims: Iterable[Claim]) -> list[str | None]:
    """Return the job_ids of claims, in order."""
    return [one.job_id for one in claims]


def settle(one: Claim) -> Settle:
    """Return the settlement of a claim."""
    return Settle(one.tag, one.job_id or "?", MODEL, "succeeded", "f" * 32, '{"version":1}')


def retry(one: Claim, delay_ms: int = 0, failed: Attempt | None = None) -> Retry:
    """Return the retry of a claim."""
    return Retry(one.tag, one.job_id or "?", delay_ms, (failed or attempt()).model_dump_json())


def words(bench: Bench, *commits: Commit, incarnation: str = "triton-01:a") -> tuple[int, ...]:
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
        assert claim(bench, number=4, incarnation="triton-01:b").claims != ()

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

    def test_a_second_run_of_a_settled_job_settles_nothing(self, bench: Bench) -> None:
        """The second claim of the job_id hears 0, and is dropped."""
        bench.push(*jobs("a", "a"))
        first, second = claim(bench).claims
        assert words(bench, settle(first), settle(second)) == (1, 0)
        assert bench.settled() == ["a"]
        assert bench.claimed_tags() == set()

    def test_another_runs_claims_cannot_be_touched(self, bench: Bench) -> None:
        """A tag is worth something only to the incarnation that claimed it."""
        bench.push(*jobs("a", "b", "c", "d"))
        a, b, c, d = claim(bench).claims
        commits = (settle(a), retry(b), Return(c.tag), Bury(d.tag, "not_json"))
        assert words(bench, *commits, incarnation="triton-01:b") == (-1, 0, 0, 0)
        assert bench.claimed_tags() == {"1.1", "1.2", "1.3", "1.4"}
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
        reply = claim(bench, number=2, incarnation="triton-01:b")
        assert reply.returned == {MODEL}
        assert ids(reply.claims) == ["a", "b"]
        assert reply.claims[0].attempts == (attempt(),)
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
        """Whether it is still held, whether it has expired, and the attempts of its job."""
        bench.push(*jobs("a"), b"an envelope")
        a, envelope = claim(bench).claims
        words(bench, retry(a, AN_HOUR_MS))
        opens = (
            Open(envelope.tag, "a", None, None),
            Open(envelope.tag, "b", 0, None),
            Open("9.9", "c", None, 0),
        )
        opened = bench.exchange(Exchange(opens=opens)).opened
        assert opened == (
            Opened(held=True, expired=False, attempts=(attempt(),)),
            Opened(held=True, expired=True, attempts=()),
            Opened(held=False, expired=False, attempts=()),
        )
        words(bench, Bury(envelope.tag, "bad_envelope"))

    def test_expired_jobs_say_so(self, bench: Bench) -> None:
        """They are claimed in their turn like others."""
        bench.push(job_json(job_id="late", expires_at=LONG_AGO), *jobs("b"))
        assert [(one.job_id, one.expired) for one in claim(bench).claims] == [("late", True), ("b", False)]

    def test_expired_heads_of_closed_models_are_claimed(self, bench: Bench) -> None:
        """As many as allowed, and nothing behind a head that has not expired."""
        late = [job_json(job_id=f"late-{n}", expires_at=LONG_AGO) for n in range(4)]
        bench.push(*late[:3], *jobs("b"), late[3])
        asked = ClaimRequest(1, 5, (), (MODEL,), most_expired=2)
        reply = bench.exchange(Exchange(claim=asked))
        assert reply.claimed is not None
        assert ids(reply.claimed.claims) == ["late-0", "late-1"]
        reply = bench.exchange(Exchange(claim=ClaimRequest(2, 5, (), (MODEL,), most_expired=2)))
        assert reply.claimed is not None
        assert ids(reply.claimed.claims) == ["late-2"]
        assert bench.queued() == [*jobs("b"), late[3]]

    def test_expired_heads_need_no_slot(self, bench: Bench) -> None:
        """They are claimed beyond what is wanted, when a sweep asks for them, of open models too."""
        bench.push(*jobs("a"), job_json(job_id="late", expires_at=LONG_AGO), *jobs("b"))
        reply = bench.exchange(Exchange(claim=ClaimRequest(1, 1, (MODEL,), most_expired=10)))
        assert reply.claimed is not None
        assert [(one.job_id, one.expired) for one in reply.claimed.claims] == [("a", False), ("late", True)]

    def test_commits_come_before_the_claim_of_the_same_call(self, bench: Bench) -> None:
        """A job that is given back may be claimed by the very call that gives it back."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        reply = bench.exchange(Exchange((Return(one.tag),), claim=ClaimRequest(2, 1, (MODEL,))))
        assert reply.claimed is not None
        assert [(again.tag, again.job_id) for again in reply.claimed.claims] == [("2.1", "a")]
