"""RFC 3339 times: every one is read, nothing else is, and ours are written in one form."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import rfc3339

MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - its form
ALMOST_TIMES = st.text(max_size=30) | st.builds(
    "{}-{:02}-{:02}T{:02}:{:02}:{:02}{}{:02}:{:02}".format,
    st.sampled_from(["0000", "0001", "2016", "2026", "9999"]),
    *(st.integers(0, most) for most in (13, 32, 25, 61, 61)),
    st.sampled_from(["Z", "+", "-"]),
    *(st.integers(0, most) for most in (25, 61)),
)
OFFSETS = st.integers(-(24 * 60 - 1), 24 * 60 - 1).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-30T10:00:00Z", "2026-11-30T10:00:00+00:00"),
        ("2026-11-30t10:00:00z", "2026-11-30T10:00:00+00:00"),
        ("2026-11-30T10:00:00.5Z", "2026-11-30T10:00:00.500000+00:00"),
        ("2026-11-30T10:00:00.1234567890123Z", "2026-11-30T10:00:00.123456+00:00"),
        ("2026-11-30T10:00:00.000000999Z", "2026-11-30T10:00:00+00:00"),
        ("2026-11-30T12:00:00+02:00", "2026-11-30T10:00:00+00:00"),
        ("2026-11-30T00:30:00-09:30", "2026-11-30T10:00:00+00:00"),
        ("2026-11-30T10:00:00-00:00", "2026-11-30T10:00:00+00:00"),
        ("2026-12-01T09:59:00+23:59", "2026-11-30T10:00:00+00:00"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
        ("2016-12-31T23:59:60.25Z", "2017-01-01T00:00:00.250000+00:00"),
        ("1990-12-31T15:59:60-08:00", "1991-01-01T00:00:00+00:00"),
    ],
)
def test_every_form_of_the_standard_is_read(text: str, utc: str) -> None:
    """Any offset, any number of digits, either case, a leap second."""
    read = rfc3339.parse(text)
    assert read.isoformat() == utc
    assert read.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "0", "1796032800", "2026-11-30", "10:00:00Z", "2026-11-30T10:00Z", "2026-11-30T10Z"),
        *(
            "2026-11-30T10:00:00",
            "2026-11-30 10:00:00Z",
            "2026-11-30_10:00:00Z",
            "20261130T100000Z",
            "2026-W49-1T10:00:00Z",
        ),
        *("26-11-30T10:00:00Z", "+2026-11-30T10:00:00Z", "12026-11-30T10:00:00Z", "2026-1-30T10:00:00Z"),
        *("2026-00-30T10:00:00Z", "2026-13-30T10:00:00Z", "2026-11-00T10:00:00Z", "2026-11-31T10:00:00Z"),
        *("2025-02-29T10:00:00Z", "1900-02-29T10:00:00Z", "0000-01-01T10:00:00Z"),
        *("2026-11-30T24:00:00Z", "2026-11-30T10:60:00Z", "2026-11-30T10:00:61Z", "2026-11-30T10:00:99Z"),
        *("2026-11-30T10:00:00.Z", "2026-11-30T10:00:00,5Z", "2026-11-30T10:00:00.5", "2026-11-30T10:00:00.-5Z"),
        *(
            "2026-11-30T10:00:00+0200",
            "2026-11-30T10:00:00+02",
            "2026-11-30T10:00:00+24:00",
            "2026-11-30T10:00:00+02:60",
        ),
        *("2026-11-30T10:00:00UTC", "2026-11-30T10:00:00ZZ", "2026-11-30T10:00:00Z+00:00", "2026-11-30T10:00:00 Z"),
        *(" 2026-11-30T10:00:00Z", "2026-11-30T10:00:00Z ", "2026-11-30T10:00:00Z\n", "\n2026-11-30T10:00:00Z"),
        *("٢٠٢٦-11-30T10:00:00Z", "2026-11-30T10:00:00.５Z", "2026-11-30T10:00:00−02:00", "2026-11-30T10:00:00Z\0"),
        *("2026-11-30T10:00:60Z", "2026-11-30T23:58:60Z", "2026-11-30T23:59:60+01:00", "9999-12-31T23:59:60Z"),
        *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"),
    ],
)
def test_nothing_else_is_read(text: str) -> None:
    """One error, which does not repeat the text."""
    with pytest.raises(ValueError, match=r"^(is|has) ") as refused:
        rfc3339.parse(text)
    assert not text or text not in str(refused.value)
    assert refused.value.__cause__ is None


@given(ALMOST_TIMES)
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    """Nothing else is raised."""
    try:
        read = rfc3339.parse(text)
    except ValueError:
        return
    assert read.utcoffset() == timedelta()


@given(MOMENTS, OFFSETS)
def test_a_moment_is_the_same_in_every_offset(moment: datetime, offset: timezone) -> None:
    """Python's own form with microseconds is read to the same moment."""
    assert rfc3339.parse(moment.astimezone(offset).isoformat()) == moment


@given(st.integers(-62_000_000_000_000, 253_000_000_000_000))
def test_what_we_write_is_read_back_to_the_millisecond(unix_ms: int) -> None:
    """In one form: UTC, three digits, Z."""
    text = rfc3339.from_ms(unix_ms)
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", text)
    assert rfc3339.to_ms(rfc3339.parse(text)) == unix_ms


def test_milliseconds_are_rounded_down() -> None:
    """Also before 1970."""
    assert rfc3339.to_ms(rfc3339.parse("1970-01-01T00:00:00.0019Z")) == 1
    assert rfc3339.to_ms(rfc3339.parse("1969-12-31T23:59:59.9981Z")) == -2


def test_what_we_write_is_what_the_contract_shows() -> None:
    """The contract's own example."""
    assert rfc3339.from_ms(1_796_032_800_000) == "2026-11-30T10:00:00.000Z"
