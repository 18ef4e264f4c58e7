"""The scripts that put a claimed job elsewhere: to the retries, back to its queue, to the dead letters; and opening."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tasks.delivery import Standing
from tasks.entries import DeadLetterEntry
from tasks.reading import DeadLetterReason
from tasks.result import Attempt
from tests.committer_contract import AN_HOUR_MS, FINGERPRINT, KEYS, OTHER_RUN, RUN, claim, jobs, reaped, retry, words
from tests.integration.bench import NOW, Ledgers, RedisBench, entries, state
from tests.jobs import MODEL, attempt
from worker.exchange import Bury, Claim, Commit, Exchange, ExchangeReply, Known, Open, Return
from worker.keys import PRIORITIES

WEEK = 604_800


def waiting(client: redis.Redis) -> list[tuple[bytes, float]]:
    """Return the records of the retries with their due times."""
    found: Any = client.zrange(KEYS.waiting, 0, -1, withscores=True)
    return list(found)


def make_due(client: redis.Redis) -> None:
    """Let the time of all retries have come."""
    for record, _ in waiting(client):
        client.zadd(KEYS.waiting, {record: 0})


COMMITS: dict[str, Callable[[Claim], Commit]] = {
    "retry": lambda one: retry(one, AN_HOUR_MS),
    "return": lambda one: Return(one.tag),
    "bury": lambda one: Bury(one.tag, "not_json"),
}


@pytest.mark.leaves("waiting")
@pytest.mark.parametrize("kind", COMMITS)
class TestEach:
    def test_a_repeat_after_a_lost_reply_changes_nothing(self, bench: RedisBench, kind: str) -> None:
        """It finds no claim, and says so; a retry knows by its attempt that it was done."""
        bench.push(*jobs("a", "b"))
        commits = [COMMITS[kind](one) for one in claim(bench).claims]
        assert words(bench, *commits) == (1, 1)
        before = state(bench.client)
        assert words(bench, *commits) == ((1, 1) if kind == "retry" else (0, 0))
        assert state(bench.client) == before

    def test_a_claim_that_is_gone_moves_nothing(self, bench: RedisBench, kind: str) -> None:
        """Nor does a claim of another run, under the same tag."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        bench.enter(OTHER_RUN)
        before = state(bench.client)
        assert words(bench, COMMITS[kind](one), incarnation=OTHER_RUN) == (0,)
        assert state(bench.client) == before
        reaped(bench)
        before = state(bench.client)
        assert words(bench, COMMITS[kind](one)) == (0,)
        assert state(bench.client) == before

    def test_the_bytes_stay_as_they_came(self, bench: RedisBench, kind: str) -> None:
        """Line feeds, zero bytes and what is no UTF-8 included, from whichever list."""
        raw = b"\n\x00\xff\n\r\n" + bytes(range(256))
        queue = KEYS.jobs(MODEL) + PRIORITIES[3]
        bench.push(raw, queue=queue)
        (one,) = claim(bench).claims
        words(bench, COMMITS[kind](one))
        if kind == "bury":
            assert bench.buried() == [(queue, "not_json", raw)]
            return
        if kind == "retry":
            make_due(bench.client)
        (again,) = claim(bench, 2).claims
        assert (again.queue, again.raw) == (queue, raw)
        words(bench, Bury(again.tag, "not_json"))


@pytest.mark.leaves("waiting")
class TestRetries:
    def test_it_waits_for_its_delay_by_redis_clock(self, bench: RedisBench) -> None:
        """Not by the host's."""
        bench.push(*jobs("a"))
        (one,) = claim(bench).claims
        earliest = claim(bench, 2).now_ms
        words(bench, retry(one, 1500))
        latest = claim(bench, 3).now_ms
        ((_, due),) = waiting(bench.client)
        assert earliest + 1500 <= due <= latest + 1500

    def test_its_attempt_is_kept_as_long_as_a_marker(self, bench: RedisBench) -> None:
        """And each further one renews that."""
        bench.push(*jobs("a"))
        words(bench, retry(claim(bench).claims[0], 0))
        bench.client.expire(KEYS.attempts("a"), 10)
        words(bench, retry(claim(bench, 2).claims[0], AN_HOUR_MS))
        assert WEEK - 5 <= bench.client.ttl(KEYS.attempts("a")) <= WEEK
        kept = [Attempt.model_validate_json(item) for item in bench.client.lrange(KEYS.attempts("a"), 0, -1)]
        assert kept == [attempt(), attempt()]

    def test_two_equal_jobs_wait_as_two(self, bench: RedisBench) -> None:
        """Nothing is lost by being the same as another."""
        bench.push(*jobs("a", "a"))
        words(bench, *(retry(one, AN_HOUR_MS) for one in claim(bench).claims))
        assert bench.client.zcard(KEYS.waiting) == 2


class TestDeadLetters:
    def test_one_says_all_that_the_contract_wants(self, bench: RedisBench) -> None:
        """Where it was, why, its bytes, who took it and when."""
        bench.push(b"\xff")
        words(bench, Bury(claim(bench).claims[0].tag, "not_json"))
        (fields,) = entries(bench.client, KEYS.dead_letters)
        raw = fields.pop(b"raw")
        text = {name.decode(): value.decode() for name, value in fields.items()}
        entry = DeadLetterEntry.model_validate({**text, "raw": raw, "reason": DeadLetterReason(text["reason"])})
        assert (entry.queue, entry.raw, entry.worker_id, entry.at) == (KEYS.jobs(MODEL), b"\xff", "triton-01", NOW)

    def test_they_stay_until_an_operator_trims_them(self, bench: RedisBench) -> None:
        """Each with a reason of its own."""
        bench.push(b"1", b"2")
        one, two = claim(bench).claims
        words(bench, Bury(one.tag, "not_an_object"), Bury(two.tag, "bad_envelope"))
        assert [reason for _, reason, _ in bench.buried()] == ["not_an_object", "bad_envelope"]
        assert bench.client.ttl(KEYS.dead_letters) == -1


@pytest.mark.leaves("claims:*", "waiting")
class TestOpening:
    def test_it_writes_the_job_id_into_the_claim(self, bench: RedisBench) -> None:
        """And nothing else; whoever ends this run then knows whose ledger the attempt belongs to."""
        bench.push(b"x")
        (one,) = claim(bench).claims
        asked = Exchange(opens=(Open(one.tag, "a", FINGERPRINT, 0, 0, MODEL),))
        (known,) = bench.exchange(asked).opened
        assert isinstance(known, Known)
        assert known.holds == ""  # It has expired.
        (record,) = bench.client.hvals(KEYS.claims(RUN))
        assert record == f"{KEYS.jobs(MODEL)}\na\n{one.claimed_ms}\n\nx".encode()
        before = state(bench.client)
        bench.exchange(asked)
        assert state(bench.client) == before
        reaped(bench)
        assert bench.client.llen(KEYS.attempts("a")) == 1
        assert not list(bench.client.scan_iter(KEYS.attempts("#*")))

    def test_it_leaves_the_bytes_as_they_came(self, bench: RedisBench) -> None:
        """Line feeds and zero bytes included."""
        raw = b"\n\x00\xff\n\r\n" + bytes(range(256))
        bench.push(raw)
        (one,) = claim(bench).claims
        bench.exchange(Exchange(opens=(Open(one.tag, "a", FINGERPRINT, None, None, MODEL),)))
        words(bench, Return(one.tag))
        assert bench.queued() == [raw]

    def test_expiry_is_judged_as_for_bare_jobs(self, bench: RedisBench, redis_url: str, ledgers: Ledgers) -> None:
        """By Redis' clock: after expires_at, or longer in the queue than the configuration allows."""
        bench.push(b"x")
        claimed = claim(bench)
        tag, now_ms = claimed.claims[0].tag, claimed.now_ms
        bounded, unbounded = ledgers(redis_url, max_queue_ms=60_000), ledgers(redis_url)
        opens = (
            Open(tag, "a", FINGERPRINT, now_ms - 1, None, MODEL),
            Open(tag, "a", FINGERPRINT, now_ms + AN_HOUR_MS, None, MODEL),
            Open(tag, "a", FINGERPRINT, None, now_ms - 61_000, MODEL),
            Open(tag, "a", FINGERPRINT, None, now_ms - 30_000, MODEL),
            Open(tag, "a", FINGERPRINT, None, None, MODEL),
        )
        assert _expired(bounded.exchange(Exchange(opens=opens), NOW)) == [True, False, True, False, False]
        assert _expired(unbounded.exchange(Exchange(opens=opens), NOW)) == [True, False, False, False, False]


def _expired(reply: ExchangeReply) -> list[bool]:
    return [isinstance(known, Known) and known.standing is Standing.EXPIRED for known in reply.opened]
