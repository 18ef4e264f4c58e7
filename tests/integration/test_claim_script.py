"""The claim script on a real Redis: what is taken, in which order, and what it can read of a job."""

import json
from typing import Any

import pytest
import redis
from celery import Celery
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tasks import rfc3339
from tasks.delivery import Standing
from tasks.reading import NotAJob, read_job
from tests.committer_contract import (
    AN_HOUR_MS,
    KEYS,
    LONG_AGO,
    OTHER_MODEL,
    RUN,
    claim,
    ids,
    jobs,
    retry,
    settle,
    standings,
    words,
)
from tests.garbage import GARBAGE, WRONG_JOBS
from tests.integration.bench import NOW, HeldUp, Ledgers, RedisBench, enter, ledger_on
from tests.jobs import LIMITS, MAX_JOB_BYTES, MODEL, attempt, job_json, job_with
from worker.exchange import Claimed, ClaimRequest, Exchange, Return
from worker.keys import PRIORITIES
from worker.redis_link import RedisUnavailable

pytestmark = pytest.mark.leaves("claims:*", "waiting")
WITHOUT_TRACE = [Phase.generate, Phase.shrink]


def asked(bench: RedisBench, request: ClaimRequest) -> Claimed:
    """Claim."""
    reply = bench.exchange(Exchange(claim=request)).claimed
    assert reply is not None
    return reply


class TestOrder:
    def test_priorities_are_read_in_kombus_order(self, bench: RedisBench) -> None:
        """The queue itself first, then 3, 6 and 9; within each, first in is first claimed."""
        for priority in reversed(PRIORITIES):
            bench.push(*jobs(f"first{priority[-1:]}", f"second{priority[-1:]}"), queue=KEYS.jobs(MODEL) + priority)
        assert ids(claim(bench).claims) == [
            f"{which}{step}" for step in ("", "3", "6", "9") for which in ("first", "second")
        ]

    def test_stock_producers_and_lpush_share_a_queue(self, bench: RedisBench, redis_url: str) -> None:
        """A message of each priority lands where it is looked for, beside bare jobs."""
        app = Celery("producer", broker=redis_url, set_as_current=False)
        bench.push(*jobs("bare"))
        with app.connection_for_write() as connection:
            for priority in (9, 5, 0, 3, 6):
                app.send_task(
                    "speedinfer.generate",
                    args=[{"job_id": f"p{priority}"}],
                    queue=KEYS.jobs(MODEL),
                    priority=priority,
                    connection=connection,
                )
        app.close()
        claims = claim(bench).claims
        order = ["bare" if one.job_id else _task_argument(one.raw)["job_id"] for one in claims]
        assert order == ["bare", "p0", "p5", "p3", "p6", "p9"]
        bench.client.delete(*(key for key in bench.client.keys("_kombu*")))

    def test_priorities_are_within_a_model(self, bench: RedisBench) -> None:
        """Models take turns, whatever the priorities of their jobs."""
        bench.push(*jobs("a1", "a2"))
        bench.push(*jobs("b1", "b2"), queue=KEYS.jobs(OTHER_MODEL) + PRIORITIES[3])
        assert ids(asked(bench, ClaimRequest(1, 3, (MODEL, OTHER_MODEL))).claims) == ["a1", "b1", "a2"]

    def test_a_returned_job_is_first_of_its_own_list(self, bench: RedisBench) -> None:
        """A job of low priority does not gain by being given back."""
        bench.push(*jobs("low1", "low2"), queue=KEYS.jobs(MODEL) + PRIORITIES[3])
        (one,) = claim(bench, 1, 1).claims
        bench.push(*jobs("high"))
        words(bench, Return(one.tag))
        assert ids(claim(bench, 2).claims) == ["high", "low1", "low2"]

    def test_many_are_claimed_by_one_call(self, bench: RedisBench) -> None:
        """As many as there are slots in the largest pool, in order."""
        wanted = [f"j-{n}" for n in range(1000)]
        bench.push(*jobs(*wanted))
        found = claim(bench, 1, 600).claims
        assert ids(found) == wanted[:600]
        assert found[-1].tag == "1.600"
        assert ids(claim(bench, 1, 600).claims) == wanted[:600]

    def test_many_models_are_claimed_from_by_one_call(self, bench: RedisBench) -> None:
        """One job of each, though there are many lists to look into."""
        models = tuple(f"acme/m-{n}" for n in range(500))
        for model in models:
            bench.push(job_json(job_id=model.replace("/", "-")), queue=KEYS.jobs(model))
        reply = asked(bench, ClaimRequest(1, 1000, models))
        assert len(reply.claims) == 500
        assert reply.empty == set(models)

    def test_nothing_wanted_is_nothing_taken(self, bench: RedisBench) -> None:
        """Also when nothing is asked for at all."""
        bench.push(*jobs("a"))
        assert claim(bench, 1, 0).claims == ()
        assert asked(bench, ClaimRequest(2, 5, ())).claims == ()
        assert bench.queued() == jobs("a")


class TestSendingsThatComeLate:
    """A connection is given up, and what was sent over it arrives when its caller has long asked again."""

    def test_they_claim_nothing_once_the_same_call_was_answered(
        self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers
    ) -> None:
        """Also where the answer was that there is nothing: nobody hears what is claimed after it."""
        enter(valkey)
        held_up = HeldUp(ledgers.link(redis_url))
        book = ledger_on(held_up)
        asked = Exchange(claim=ClaimRequest(1, 5, (MODEL,)))
        held_up.gives_up = True
        with pytest.raises(RedisUnavailable):
            book.exchange(asked, NOW)
        held_up.gives_up = False
        answer = book.exchange(asked, NOW).claimed
        assert answer is not None
        assert answer.claims == ()
        valkey.lpush(KEYS.jobs(MODEL), *jobs("a"))
        held_up.let_arrive()
        assert valkey.llen(KEYS.jobs(MODEL)) == 1
        assert not valkey.exists(KEYS.claims(RUN))

    def test_they_claim_nothing_once_the_claims_of_the_same_call_have_ended(
        self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers
    ) -> None:
        """Their tags are free again by then."""
        valkey.lpush(KEYS.jobs(MODEL), *jobs("a", "b"))
        enter(valkey)
        held_up = HeldUp(ledgers.link(redis_url))
        book = ledger_on(held_up)
        asked = Exchange(claim=ClaimRequest(1, 1, (MODEL,)))
        held_up.gives_up = True
        with pytest.raises(RedisUnavailable):
            book.exchange(asked, NOW)
        held_up.gives_up = False
        answer = book.exchange(asked, NOW).claimed
        assert answer is not None
        book.exchange(Exchange((settle(answer.claims[0]),)), NOW)
        held_up.let_arrive()
        assert valkey.llen(KEYS.jobs(MODEL)) == 1
        assert not valkey.exists(KEYS.claims(RUN))

    def test_they_claim_nothing_once_a_repeat_of_the_same_call_was_answered(
        self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers
    ) -> None:
        """Though an earlier sending of it had claimed: the reply to that was lost, and the second sending held up."""
        enter(valkey)
        valkey.lpush(KEYS.jobs(MODEL), *jobs("a", "b"))
        held_up = HeldUp(ledgers.link(redis_url))
        book = ledger_on(held_up)
        asked = Exchange(claim=ClaimRequest(1, 1, (MODEL,)))
        book.exchange(asked, NOW)
        held_up.gives_up = True
        with pytest.raises(RedisUnavailable):
            book.exchange(asked, NOW)
        held_up.gives_up = False
        answer = book.exchange(asked, NOW).claimed
        assert answer is not None
        book.exchange(Exchange((settle(answer.claims[0]),)), NOW)
        held_up.let_arrive()
        assert valkey.llen(KEYS.jobs(MODEL)) == 1
        assert not valkey.exists(KEYS.claims(RUN))


class TestDueRetries:
    def test_they_come_back_in_the_order_of_their_times(self, bench: RedisBench) -> None:
        """The last one due is next in line; each to the list that it came from."""
        low = KEYS.jobs(MODEL) + PRIORITIES[2]
        bench.push(*jobs("a", "b"))
        bench.push(*jobs("c"), queue=low)
        a, b, c = claim(bench).claims
        for one in (a, b, c):
            words(bench, retry(one, 0))
        asked(bench, ClaimRequest(2, 0, ()))
        assert sorted(bench.queued()) == sorted(jobs("a", "b"))
        assert bench.queued(low) == jobs("c")

    def test_so_many_at_a_time_that_nobody_waits_for_it(self, bench: RedisBench) -> None:
        """The others at once by the next call, which the reply says."""
        bench.push(*jobs(*(f"j-{n}" for n in range(450))))
        words(bench, *(retry(one, 0) for one in claim(bench, 1, 450).claims))
        left = []
        for number in (2, 3, 4):
            reply = asked(bench, ClaimRequest(number, 0, ()))
            left.append(bench.client.zcard(KEYS.waiting))
            assert (reply.next_due_ms is None) == (left[-1] == 0)
            assert reply.next_due_ms is None or reply.next_due_ms <= reply.now_ms
        assert left == [250, 50, 0]

    def test_the_first_due_time_is_told(self, bench: RedisBench) -> None:
        """By Redis' clock, which set it."""
        bench.push(*jobs("a", "b"))
        a, b = claim(bench).claims
        before = _server_ms(bench.client)
        words(bench, retry(a, 2 * AN_HOUR_MS), retry(b, AN_HOUR_MS))
        reply = claim(bench, 2)
        assert reply.next_due_ms is not None
        assert before + AN_HOUR_MS <= reply.next_due_ms <= reply.now_ms + AN_HOUR_MS

    def test_a_repeat_says_what_is_due_too(self, bench: RedisBench) -> None:
        """Else the retry would be waited for until the next sweep."""
        bench.push(*jobs("a", "b"))
        (a,) = claim(bench, 1, 1).claims
        words(bench, retry(a, AN_HOUR_MS))
        first, again = claim(bench, 2, 1), claim(bench, 2, 1)
        assert again.claims == first.claims
        assert again.next_due_ms == first.next_due_ms


class TestEndedHeads:
    LATE = job_json(job_id="late", expires_at=LONG_AGO)
    """Several of it are one job and its doubles: they end too."""

    def test_a_head_is_the_first_job_of_all_lists(self, bench: RedisBench) -> None:
        """Behind a job that has not expired nothing is looked at, in no list."""
        bench.push(*jobs("a"))
        bench.push(self.LATE, queue=KEYS.jobs(MODEL) + PRIORITIES[1])
        assert asked(bench, ClaimRequest(1, 0, (), (MODEL,), 10)).claims == ()

    def test_the_bound_is_of_all_models_together(self, bench: RedisBench) -> None:
        """So that no call holds up the server."""
        for model in (MODEL, OTHER_MODEL):
            bench.push(*[self.LATE] * 3, queue=KEYS.jobs(model))
        assert len(asked(bench, ClaimRequest(1, 0, (), (MODEL, OTHER_MODEL), 4)).claims) == 4

    def test_what_the_script_cannot_read_at_the_head_is_given_to_the_worker(self, bench: RedisBench) -> None:
        """It may be a message whose job has ended; one at a time, since one that has not goes back."""
        bench.push(b"garbage", self.LATE)
        (one,) = asked(bench, ClaimRequest(1, 0, (), (MODEL,), 10)).claims
        assert (one.raw, one.job_id) == (b"garbage", None)

    def test_a_repeat_gives_them_again(self, bench: RedisBench) -> None:
        """They are claims like others."""
        bench.push(self.LATE)
        request = ClaimRequest(1, 0, (), (MODEL,), 10)
        assert asked(bench, request).claims == asked(bench, request).claims != ()

    def test_a_job_that_waited_too_long_has_expired(
        self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers
    ) -> None:
        """By its own enqueued_at, where the configuration bounds that; without one it cannot be said."""
        now_ms = _server_ms(valkey)
        old = job_json(job_id="old", enqueued_at=rfc3339.from_ms(now_ms - 61_000))
        new = job_json(job_id="new", enqueued_at=rfc3339.from_ms(now_ms - 30_000))
        valkey.lpush(KEYS.jobs(MODEL), old, new, *jobs("unknown"))
        bounded = ledgers(redis_url, max_queue_ms=60_000)
        reply = bounded.exchange(Exchange(claim=ClaimRequest(1, 9, (MODEL,))), NOW).claimed
        assert reply is not None
        assert standings(reply.claims) == [
            ("old", Standing.EXPIRED),
            ("new", Standing.TO_RUN),
            ("unknown", Standing.TO_RUN),
        ]


class TestReading:
    def test_what_is_too_large_is_claimed_unread(self, valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> None:
        """The server decodes no megabytes that nobody will run."""
        raw = job_json()
        valkey.lpush(KEYS.jobs(MODEL), raw, raw + b" ")
        reply = (
            ledgers(redis_url, max_job_bytes=len(raw))
            .exchange(Exchange(claim=ClaimRequest(1, 9, (MODEL,))), NOW)
            .claimed
        )
        assert reply is not None
        assert [(one.job_id, one.raw) for one in reply.claims] == [("j-1", raw), (None, raw + b" ")]

    @pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: garbage.name)
    def test_garbage_is_claimed_byte_for_byte(self, bench: RedisBench, garbage: Any) -> None:
        """And holds up nothing behind it."""
        bench.push(garbage.raw, *jobs("good"))
        first, second = claim(bench).claims
        assert first.raw == garbage.raw
        assert first.known.standing is Standing.TO_RUN
        assert second.job_id == "good"

    def test_wrong_jobs_have_their_id(self, bench: RedisBench) -> None:
        """They are settled as others are, with the attempts of that id."""
        for wrong in WRONG_JOBS:
            bench.push(wrong.raw)
        assert ids(claim(bench, 1, 1000).claims) == [wrong.job_id for wrong in WRONG_JOBS]

    def test_attempts_come_oldest_first(self, bench: RedisBench) -> None:
        """As they were made."""
        tries = [attempt().model_copy(update={"inference_ms": n}) for n in range(3)]
        bench.push(*jobs("a"))
        for number, one_try in enumerate(tries, 1):
            words(bench, retry(claim(bench, number).claims[0], 0, one_try))
        assert claim(bench, 9).claims[0].known.attempts == tuple(tries)

    def test_a_job_id_is_what_the_task_will_read(self, bench: RedisBench) -> None:
        """For any JSON: what the script calls a job_id is the task's too, or the bytes are no job at all."""
        numbers = iter(range(1, 10**9))

        @settings(
            max_examples=250,
            deadline=None,
            database=None,
            phases=WITHOUT_TRACE,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(_objects() | st.binary(max_size=30), min_size=1, max_size=10))
        def check(raws: list[bytes]) -> None:
            bench.push(*raws)
            for one in claim(bench, next(numbers), len(raws)).claims:
                if one.job_id is None:
                    continue
                read = read_job(one.raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
                assert isinstance(read, NotAJob) or read.identity.job_id == one.job_id

        check()

    @pytest.mark.parametrize(
        ("raw", "job_id"),
        [
            (job_with(b'"job_id":"last"'), "last"),
            (b'{"job\\u005fid":"j"}', "j"),
            (b'{"job_id":"\\u006a"}', "j"),
            (b' \r\n\t{"job_id":"j"}\n', "j"),
            (b'{"job_id":"j","\\ud83d\\ude00":"\\u0000"}', "j"),
            (b'{"job_id":"j","max_tokens":1e400}', "j"),
            (b'{"job_id":"j\\u0000"}', None),
            (b'{"job_id":"j\\n"}', None),
            (b'{"job_id":"\xc3\xa9"}', None),
            (b'{"job_id":{"a":"j"}}', None),
            (b'{"a":{"job_id":"j"}}', None),
            (b'[{"job_id":"j"}]', None),
            (b'{"job_id":"' + b"j" * 128 + b'"}', "j" * 128),
            (b'{"job_id":"' + b"j" * 129 + b'"}', None),
        ],
    )
    def test_unusual_json(self, bench: RedisBench, raw: bytes, job_id: str | None) -> None:
        """What the script reads of it."""
        bench.push(raw)
        assert claim(bench).claims[0].job_id == job_id


def _objects() -> st.SearchStrategy[bytes]:
    """JSON objects around an id, with what decoders differ about: doubled names, numbers, escapes, depth, other JSONs."""
    texts = st.text(st.sampled_from("j-1._:é\u0000 \n😀\ud83d"), max_size=5)
    scalars = st.one_of(
        texts.map(json.dumps),
        st.sampled_from(
            ['"j-1"', "1", "null", "true", "NaN", "-Infinity", "1e400", "01", "0x10", "1.", "{}", "[]", "'j'"]
        ),
    )
    values = (
        scalars
        | scalars.map(lambda value: f'{{"job_id":{value}}}')
        | st.integers(0, 300).map(lambda n: "[" * n + "]" * n)
    )
    names = st.sampled_from(['"job_id"', '"job\\u005fid"', '"job_id "', '"a"', "job_id"])
    members = st.lists(st.tuples(names, values).map(":".join), min_size=1, max_size=4)
    ends = st.sampled_from(["}", "}\n", "}x", ",}", "", "} {}"])
    return st.tuples(members.map(lambda parts: "{" + ",".join(parts)), ends).map(lambda parts: "".join(parts).encode())


def _task_argument(raw: bytes) -> Any:
    from worker.envelope import Readable, read_envelope

    found = read_envelope(raw, MAX_JOB_BYTES)
    assert isinstance(found, Readable)
    return json.loads(found.raw)


def _server_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return seconds * 1000 + micros // 1000
