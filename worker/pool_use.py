"""What is in use of a GPU pool, and what its limits are: as the pool's keys say it, for people."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any, Final

from worker.keys import Keys

_MINUTE_MS: Final = 60_000
_BURST_SHARE: Final = 1 / 6
"""So much of a minute's tokens is there at the most (worker/lua/pool.lua)."""

_CONFIGURED: Final = ("max_concurrency", "requests_per_minute", "tokens_per_minute", "adaptive")


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A pool's use beside its limits; a limit that is None is off, or nobody has said it yet (``set_by`` is empty then).

    ``slots_limit`` is where an adaptive pool stands now, at most ``max_concurrency``. ``requests`` are those granted in the last 60 s,
    ``tokens`` those that could be granted now, less than 0 where more was used than was granted.
    """

    name: str
    slots: int = 0
    slots_limit: int | None = None
    max_concurrency: int | None = None
    requests: int = 0
    requests_limit: int | None = None
    tokens: float | None = None
    tokens_limit: int | None = None
    level: float | None = None
    set_by: str = ""
    in_force: Mapping[str, str] = field(default_factory=dict)

    def differences(self, configured: Mapping[str, str]) -> Iterator[str]:
        """Yield in what a worker is configured otherwise, by the ``pool_…`` fields of its health."""
        for name in _CONFIGURED:
            its, here = configured.get(f"pool_{name}"), self.in_force.get(name)
            if None not in (its, here) and its != here:
                yield f"{name} {its or 'off'} (in force: {here or 'off'}, set by {self.set_by or 'unknown'})"


def pool_use(name: str, fields: Mapping[str, str], slots: int, requests: int, now_ms: int) -> PoolUse:
    """Return a pool's use by the fields of its key, at Redis' unix ms ``now_ms``."""
    level, most = _level(fields, now_ms), _whole(fields.get("max_concurrency"))
    tokens_limit = _whole(fields.get("tokens_per_minute"))
    return PoolUse(
        name=name,
        slots=slots,
        slots_limit=most if level is None or most is None else min(most, max(1, floor(level))),
        max_concurrency=most,
        requests=requests,
        requests_limit=_whole(fields.get("requests_per_minute")),
        tokens=None if tokens_limit is None else _tokens(fields, tokens_limit, now_ms),
        tokens_limit=tokens_limit,
        level=level,
        set_by=fields.get("set_by", ""),
        in_force=fields,
    )


def ask_for_pool(pipe: Any, keys: Keys, name: str, now_ms: int) -> None:
    """Add to a pipeline what ``answered`` takes three replies of."""
    pipe.hgetall(keys.pool(name))
    pipe.zcount(keys.pool_slots(name), f"({now_ms}", "+inf")
    pipe.zcount(keys.pool_grants(name), f"({now_ms - _MINUTE_MS}", "+inf")


def answered(name: str, replies: tuple[Any, Any, Any], now_ms: int) -> PoolUse:
    """Return a pool's use by the three replies to ``ask_for_pool``."""
    raw, slots, requests = replies
    fields = {key.decode(): value.decode(errors="replace") for key, value in raw.items()}
    return pool_use(name, fields, slots, requests, now_ms)


def _level(fields: Mapping[str, str], now_ms: int) -> float | None:
    """Return the level; one that nobody has gone on with for a minute is none (worker/lua/level.lua)."""
    until_ms = _number(fields.get("level_until_ms"))
    return None if until_ms is not None and now_ms >= until_ms else _number(fields.get("level"))


def _tokens(fields: Mapping[str, str], limit: int, now_ms: int) -> float:
    """Return the level of the bucket: it refills all the time, and what was given back may stand above its brim."""
    burst = limit * _BURST_SHARE
    level, at_ms = _number(fields.get("tokens_level")), _number(fields.get("tokens_at_ms"))
    if level is None or at_ms is None:
        return burst
    return level if level >= burst else min(burst, level + (now_ms - at_ms) * limit / _MINUTE_MS)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)
