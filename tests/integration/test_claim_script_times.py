"""The claim script reads times as the task does, to the millisecond: no job is settled as expired that is not."""

import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import count

import redis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tasks import rfc3339
from tasks.delivery import Standing
from tests.committer_contract import KEYS
from tests.integration.bench import NOW, Ledgers
from tests.jobs import MODEL, job_json
from tests.waiting import wait_until
from worker import lua
from worker.exchange import Bury, Claimed, ClaimRequest, Exchange

QUICK = settings(
    max_examples=300,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def moments() -> st.SearchStrategy[str]:
    """Texts in the form of RFC 3339, of which some name no moment."""
    days = st.dates().map(str) | st.sampled_from(
        [
            *("0000-01-01", "0001-01-01", "0004-02-29", "1582-10-10", "1899-12-31", "1900-02-28", "1900-03-01"),
            *("1969-12-31", "1970-01-01", "2000-02-29", "2015-06-30", "2016-12-31", "2024-02-29", "2025-02-29"),
            *("2026-13-01", "2026-00-10", "2026-11-31", "2026-11-00", "2038-01-19", "2100-02-28", "9999-12-31"),
        ]
    )
    times = st.times().map(lambda time: time.strftime("%H:%M:%S")) | st.sampled_from(
        ["23:59:60", "00:00:60", "24:00:00"]
    )
    fractions = st.just("") | st.from_regex(r"\.[0-9]{1,12}", fullmatch=True)
    offsets = st.sampled_from(["Z", "z", "-00:00"]) | st.from_regex(r"[+-][0-2][0-9]:[0-5][0-9]", fullmatch=True)
    texts = st.tuples(days, st.sampled_from("Tt"), times, fractions, offsets).map("".join)
    return texts | st.sampled_from(
        ["2016-12-31T23:59:60.999Z", "2017-01-01T00:59:60+01:00", "2016-12-31T18:29:60.5-05:30"]
    )


def test_any_time_is_the_same_moment(valkey: redis.Redis) -> None:
    """Whatever its offset, fraction, leap second or year; what is no time to the task is its to settle as invalid."""
    found = re.search(r"^local function unix_ms.*?^end$", lua.load("claim_from_queues"), re.DOTALL | re.MULTILINE)
    assert found is not None, "the script's function has another name now"
    all_of_them = (
        found.group()
        + "\nlocal read = {} for n, text in ipairs(ARGV) do"
        + " local ms = unix_ms(text) read[n] = ms and string.format('%.0f', ms) or '' end return read"
    )
    script = valkey.register_script(all_of_them)

    @QUICK
    @given(st.lists(moments(), min_size=1, max_size=20))
    def check(texts: list[str]) -> None:
        for text, read in zip(texts, script(args=texts), strict=True):
            try:
                wanted = rfc3339.to_ms(rfc3339.parse(text))
            except ValueError:
                continue
            assert read == b"%d" % wanted, text

    check()


def test_what_is_no_time_is_none(valkey: redis.Redis) -> None:
    """To the script, too, as far as it looks: a job is not settled for a text that nobody can read."""
    found = re.search(r"^local function unix_ms.*?^end$", lua.load("claim_from_queues"), re.DOTALL | re.MULTILINE)
    assert found is not None
    script = valkey.register_script(found.group() + "\nreturn unix_ms(ARGV[1]) and 1 or 0")
    for text in ("", "now", "2026-11-30", "2026-11-30T10:00:00", "2026-11-30 10:00:00Z", "2026-11-30T10:00Z"):
        assert script(args=[text]) == 0, text
    for text in ("2026-11-30T10:00:00.Z", "2026-11-30T10:00:00+0100", "2026-11-30T10:00:00Zx", "x2026-11-30T10:00:00Z"):
        assert script(args=[text]) == 0, text


def test_a_job_has_expired_only_after_its_time(valkey: redis.Redis, redis_url: str, ledgers: Ledgers) -> None:
    """Of jobs that expire around now, told apart by the clock of the very call that claims them."""
    book, numbers = ledgers(redis_url), count(1)
    takes_ms, edges = 0, 0

    def falls_among_them() -> bool:
        """Let jobs expire around the time at which they are claimed, if that takes as long as the last time."""
        nonlocal takes_ms, edges
        number = next(numbers)
        seconds, micros = valkey.time()
        now_ms = seconds * 1000 + micros // 1000
        texts = [_written(now_ms + takes_ms + shift, shift) for shift in range(-12, 13)]
        valkey.lpush(KEYS.jobs(MODEL), *(job_json(job_id=str(n), expires_at=text) for n, text in enumerate(texts)))
        claimed = book.exchange(Exchange(claim=ClaimRequest(number, 100, (MODEL,))), NOW).claimed
        assert isinstance(claimed, Claimed)
        judged = [rfc3339.to_ms(rfc3339.parse(text)) < claimed.now_ms for text in texts]
        assert [one.known.standing is Standing.EXPIRED for one in claimed.claims] == judged
        edges += any(judged) and not all(judged)
        book.exchange(Exchange(tuple(Bury(one.tag, "not_json") for one in claimed.claims)), NOW)
        takes_ms = claimed.now_ms - now_ms
        return number >= 20 and edges > 0

    wait_until(falls_among_them, description="a call falls among the times of its jobs", interval=0)


def _written(unix_ms: int, hours: int) -> str:
    """The moment as a clock shows it so many hours from UTC."""
    zone = timezone(timedelta(hours=hours, minutes=30 if hours > 0 else -30))
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=unix_ms)
    return moment.astimezone(zone).isoformat(timespec="milliseconds")
