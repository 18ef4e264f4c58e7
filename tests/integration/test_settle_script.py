"""The settlement script on a real Redis: what is written, what is dropped, and that it happens once."""

from typing import Any

from tests.committer_contract import AN_HOUR_MS, KEYS, OTHER_RUN, RUN, claim, jobs, reaped, retry, settle, words
from tests.integration.bench import RedisBench, entries, state
from tests.jobs import MODEL
from worker.exchange import Settle

DAY, WEEK = 86_400, 604_800


def test_entry_result_and_marker_are_written_and_the_claim_is_dropped(bench: RedisBench) -> None:
    """As the contract has them, in one step; the marker names the entry."""
    bench.push(*jobs("a"))
    (one,) = claim(bench).claims
    result = '{"version":1,"text":"é\\u0000😀"}'
    assert words(bench, Settle(one.tag, "a", MODEL, "failed", "f" * 32, result)) == (1,)
    client = bench.client
    stream: Any = client.xrange(KEYS.settlements)
    ((stream_id, fields),) = stream
    assert fields == {
        b"job_id": b"a",
        b"status": b"failed",
        b"model": MODEL.encode(),
        b"result": result.encode(),
    }
    assert client.get(KEYS.result("a")) == result.encode()
    assert client.hgetall(KEYS.settled("a")) == {
        b"fingerprint": b"f" * 32,
        b"status": b"failed",
        b"stream_id": stream_id,
        b"claim": b"triton-01:a/1.1",
    }
    assert not client.exists(KEYS.claims(RUN))


def test_what_is_kept_is_kept_as_long_as_configured(bench: RedisBench) -> None:
    """The result a day, the marker a week; the settlement queue until its readers trim it."""
    bench.push(*jobs("a"))
    words(bench, settle(claim(bench).claims[0]))
    assert DAY - 5 <= bench.client.ttl(KEYS.result("a")) <= DAY
    assert WEEK - 5 <= bench.client.ttl(KEYS.settled("a")) <= WEEK
    assert bench.client.ttl(KEYS.settlements) == -1


def test_a_repeat_after_a_lost_reply_changes_nothing(bench: RedisBench) -> None:
    """And hears the same."""
    bench.push(*jobs("a", "b"))
    commits = [settle(one) for one in claim(bench).claims]
    first = words(bench, *commits)
    before = state(bench.client)
    assert words(bench, *commits) == first == (1, 1)
    assert state(bench.client) == before


def test_a_second_settlement_changes_nothing(bench: RedisBench) -> None:
    """But that its claim is gone: by the same run or another, with another result."""
    bench.push(*jobs("a", "a"))
    (first,) = claim(bench, wanted=1).claims
    (second,) = claim(bench, incarnation=OTHER_RUN).claims
    words(bench, settle(first))
    before = state(bench.client)
    other = Settle(second.tag, "a", MODEL, "failed", "e" * 32, '{"other":1}')
    assert words(bench, other, incarnation=OTHER_RUN) == (0,)
    after = state(bench.client)
    assert after.items() <= before.items()
    assert set(before) - set(after) == {KEYS.claims(OTHER_RUN).encode(), KEYS.claimants.encode()}
    assert words(bench, other, incarnation=OTHER_RUN) == (-1,)


def test_a_claim_that_is_gone_settles_nothing(bench: RedisBench) -> None:
    """Its job is somebody else's now."""
    bench.push(*jobs("a"))
    (one,) = claim(bench).claims
    reaped(bench)
    before = state(bench.client)
    assert words(bench, settle(one)) == (-1,)
    assert state(bench.client) == before


def test_attempts_of_a_settled_job_are_dropped(bench: RedisBench) -> None:
    """They are in its result; its id may not be tried again."""
    bench.push(*jobs("a", "b"))
    a, b = claim(bench).claims
    words(bench, retry(a, 0), retry(b, AN_HOUR_MS))
    words(bench, settle(claim(bench, 2).claims[0]))
    assert not bench.client.exists(KEYS.attempts("a"))
    assert bench.client.exists(KEYS.attempts("b"))
    bench.client.delete(KEYS.waiting)


def test_settlements_stand_in_the_order_of_their_commits(bench: RedisBench) -> None:
    """Hundreds of them in one call, each with its own result."""
    names = [f"j-{n}" for n in range(300)]
    bench.push(*jobs(*names))
    claims = claim(bench, wanted=300).claims
    commits = [Settle(one.tag, one.job_id or "", MODEL, "succeeded", "f", f'{{"n":"{one.job_id}"}}') for one in claims]
    assert words(bench, *commits) == (1,) * 300
    found = entries(bench.client, KEYS.settlements)
    assert [fields[b"result"].decode() for fields in found] == [f'{{"n":"{name}"}}' for name in names]


def test_a_result_may_be_large(bench: RedisBench) -> None:
    """As large as the configuration lets answers be."""
    bench.push(*jobs("a"))
    (one,) = claim(bench).claims
    result = "x" * (16 * 1024 * 1024)
    assert words(bench, Settle(one.tag, "a", MODEL, "succeeded", "f", result)) == (1,)
    assert bench.client.strlen(KEYS.result("a")) == len(result)
