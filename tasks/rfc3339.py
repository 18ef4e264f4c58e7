"""RFC 3339 times: read with any offset, written in UTC with milliseconds and ``Z``."""

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[Tt](?P<minute>\d{2}:\d{2}):(?P<second>\d{2})(?:\.(?P<fraction>\d+))?"
    r"(?P<offset>[Zz]|[+-]\d{2}:\d{2})",
    re.ASCII,
)
_LEAP_SECOND = 60


def parse(text: str) -> datetime:
    """Return the time, aware and in UTC; digits below the microsecond are dropped.

    Raises:
        ValueError: ``text`` is no RFC 3339 time.
    """
    found = _RFC3339.fullmatch(text)
    if found is None:
        msg = "is not an RFC 3339 time"
        raise ValueError(msg)
    second = int(found["second"])
    leap = timedelta(seconds=1) if second == _LEAP_SECOND else timedelta()
    micros = (found["fraction"] or "")[:6].ljust(6, "0")
    offset = "+00:00" if found["offset"] in "Zz" else found["offset"]
    whole = f"{found['date']}T{found['minute']}:{second - leap.seconds:02d}.{micros}{offset}"
    try:
        return datetime.fromisoformat(whole).astimezone(UTC) + leap
    except OverflowError as error:
        msg = "is out of range"
        raise ValueError(msg) from error


def to_ms(moment: datetime) -> int:
    """Return unix milliseconds, rounded down."""
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def from_ms(unix_ms: int) -> str:
    """Return unix milliseconds as text, such as ``2026-11-30T10:00:00.000Z``."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=unix_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
