"""RFC 3339 times: read with any offset, written in UTC with milliseconds and ``Z``."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

PATTERN: Final = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]+))?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)
"""The form of a time, in what Python's and JSON Schema's regular expressions share: date, minute, second, fraction, offset."""

_RFC3339: Final = re.compile(PATTERN)
_LEAP_SECOND: Final = 60


def parse(text: str) -> datetime:
    """Return the time, aware and in UTC; digits below the microsecond are dropped.

    Raises:
        ValueError: ``text`` is no RFC 3339 time.
    """
    found = _RFC3339.fullmatch(text)
    if found is None:
        msg = "is not an RFC 3339 time"
        raise ValueError(msg)
    date, minute, second, fraction, offset = found.groups(default="")
    leap = int(second) == _LEAP_SECOND
    micros = fraction[:6].ljust(6, "0")
    whole = f"{date}T{minute}:{59 if leap else second}.{micros}{'+00:00' if offset in 'Zz' else offset}"
    try:
        moment = datetime.fromisoformat(whole).astimezone(UTC)
        return _after_the_leap(moment) if leap else moment
    except (OverflowError, ValueError):
        # Without its cause: that one quotes the text.
        msg = "is out of range"
        raise ValueError(msg) from None


def _after_the_leap(moment: datetime) -> datetime:
    if (moment.hour, moment.minute) != (23, 59):
        msg = "has a leap second where none can be"
        raise ValueError(msg)
    return moment + timedelta(seconds=1)


def to_ms(moment: datetime) -> int:
    """Return unix milliseconds, rounded down."""
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def from_ms(unix_ms: int) -> str:
    """Return unix milliseconds as text, such as ``2026-11-30T10:00:00.000Z``."""
    seconds, milliseconds = divmod(unix_ms, 1000)
    return f"{_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=16)  # The times of a second's jobs have the second in common.
def _second(unix_seconds: int) -> str:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=unix_seconds)
    return moment.isoformat(timespec="seconds").removesuffix("+00:00")
