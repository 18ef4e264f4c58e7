"""The level of a pool in Redis: looked at, and moved where nobody else was quicker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from worker.adaptive import Level
from worker.keys import Keys
from worker.level_record import from_fields, to_fields
from worker.scripts import Argument, Link, Scripts

_SCRIPT: Final = "adapt_if_unchanged"


@dataclass(frozen=True, slots=True)
class Stored:
    """A level as Redis has it; ``version`` is '' where nobody has moved it yet."""

    level: Level = field(default_factory=Level)
    version: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """A level to be stored where ``before`` is still the one there; ``version`` is the new one, which no other write has."""

    before: Stored
    level: Level
    version: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found. Where the pool is not adaptive, or not there, nothing else is said.

    ``stands`` tells whether the write that came with it does, ``full`` whether the level was in the way of a job, ``most`` is the
    pool's max_concurrency. ``shortest`` has the ms of each kind of job that was asked about, 0 where not known.
    """

    now_ms: int
    adaptive: bool
    stands: bool = False
    full: bool = False
    most: int = 0
    stored: Stored = field(default_factory=Stored)
    shortest: Mapping[str, float] = field(default_factory=dict)


class LevelStore:
    """The level of one pool, over one connection."""

    def __init__(self, link: Link, keys: Keys, pool: str) -> None:
        """Keep the parts; nothing is asked yet."""
        self._scripts = Scripts(link, [_SCRIPT])
        self._keys = [keys.pool(pool), keys.pool_paces(pool)]
        self._head: tuple[Argument, ...] = (keys.prefix, pool)

    def look(self, write: Write | None, paces: Mapping[str, float | None]) -> Look:
        """Write, where there is something to write, and return what is there now: one round trip.

        ``paces`` are kinds of jobs, each with the shortest ms that was found here, None where none was.

        Raises:
            RedisUnavailable: nothing is known of what was done; the same may be asked again.
        """
        fields = () if write is None else _flat(to_fields(write.before.level, write.level))
        versions = ("", "") if write is None else (write.before.version, write.version)
        known = _flat({kind: "" if ms is None else f"{ms:.6g}" for kind, ms in paces.items()})
        arguments = [*self._head, *versions, len(fields), *fields, *known]
        (reply,) = self._scripts.run([self._scripts.command(_SCRIPT, self._keys, arguments)])
        return _look(reply, list(paces))


def _flat(pairs: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(text for pair in pairs.items() for text in pair)


def _look(reply: Sequence[Any], kinds: Sequence[str]) -> Look:
    now_ms, adaptive, stands, full, most, flat, shortest = reply
    if not adaptive:
        return Look(int(now_ms), adaptive=False)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    known = {kind: _number(ms) for kind, ms in zip(kinds, shortest, strict=True)}
    stored = Stored(from_fields(fields), fields[b"level_version"].decode(errors="replace"))
    return Look(
        int(now_ms), adaptive=True, stands=bool(stands), full=bool(full), most=most, stored=stored, shortest=known
    )


def _number(text: bytes) -> float:
    """Return a time, 0 for what is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0
