"""The level of an adaptive pool as it stands in Redis: fields of the pool's hash, as texts. Pure; docs/adaptive.md lists them."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final

from worker.adaptive import Flight, Level, Reason

NOW: Final = "now"
"""Stands for Redis' time when the script writes (worker/lua/adapt_if_unchanged.lua)."""


def to_fields(before: Level, level: Level) -> dict[str, str]:
    """Return what is to be written of a level that comes after another; what has just happened is timed by Redis itself."""
    return {
        "level": str(level.level),
        "level_reason": level.reason,
        "level_step": str(level.step),
        "level_proven": str(level.proven),
        "level_ceiling": str(level.ceiling),
        "level_failed": str(level.failed),
        "level_retry_ms": str(level.retry_ms),
        "level_changed_ms": str(level.changed_ms) if level.changed_ms == before.changed_ms else NOW,
        "level_lowered_ms": str(level.lowered_ms) if level.lowered_ms == before.lowered_ms else NOW,
        "level_slowness": "" if level.slowness is None else f"{level.slowness:.4f}",
        "level_vain": str(level.vain),
        "level_era": str(level.era),
        "level_flight": " ".join(_flight(level.flight)),
    }


def from_fields(fields: Mapping[bytes, bytes]) -> Level:
    """Return the level; one that begins for what is none, since it finds its place again."""
    texts = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    try:
        return _read(texts)
    except ValueError:
        return Level()


def _read(fields: Mapping[str, str]) -> Level:
    return Level(
        level=max(1, _whole(fields, "level", 1)),
        reason=next((each for each in Reason if each == fields.get("level_reason")), Reason.BEGUN),
        step=max(1, _whole(fields, "level_step", 1)),
        proven=_whole(fields, "level_proven"),
        ceiling=_whole(fields, "level_ceiling"),
        failed=_whole(fields, "level_failed"),
        retry_ms=_whole(fields, "level_retry_ms"),
        changed_ms=_whole(fields, "level_changed_ms"),
        lowered_ms=_whole(fields, "level_lowered_ms"),
        slowness=_finite(fields["level_slowness"]) if fields.get("level_slowness") else None,
        vain=_whole(fields, "level_vain"),
        era=_whole(fields, "level_era"),
        flight=_read_flight(fields.get("level_flight", "")),
    )


def _flight(flight: Flight) -> Iterator[str]:
    yield from (str(flight.answers), str(flight.slow), str(flight.too_slow), f"{flight.logs:.4f}")
    yield "-" if flight.waiting is None else str(flight.waiting)
    yield str(int(flight.full))


def _read_flight(text: str) -> Flight:
    if not text:
        return Flight()
    answers, slow, too_slow, logs, waiting, full = text.split(" ")
    waits = None if waiting == "-" else int(waiting)
    return Flight(int(answers), int(slow), int(too_slow), _finite(logs), waits, full == "1")


def _whole(fields: Mapping[str, str], name: str, default: int = 0) -> int:
    return max(0, int(fields.get(name) or default))


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number
