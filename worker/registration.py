"""What a heartbeat has to write: all of it once, then what changed and what keeps it fresh. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Final

BEATS_TO_LIVE: Final = 3
"""A worker that has missed so many heartbeats shows no life."""

_ROUND_SECONDS: Final = 600.0
_MOST_BEATS_A_ROUND: Final = 20
"""Models are declared anew, and their registries rid of the dead, some in each beat: all of them in a round of so many beats."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker says of itself: the fields of its health key, and the public names that it takes jobs of."""

    fields: Mapping[str, str]
    able: frozenset[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one beat writes. ``whole`` replaces what is there; else only ``fields`` that changed are named.

    ``able`` and ``leaving`` are the public names whose registries the worker is to be in and out of, ``declared`` those whose
    declarations are looked at.
    """

    whole: bool
    fields: Mapping[str, str]
    able: tuple[str, ...]
    leaving: tuple[str, ...]
    declared: Mapping[str, str]


class Registration:
    """Knows what Redis has of a worker. After a beat without an answer that is nothing, and the next one writes all of it."""

    def __init__(self, worker_id: str, declarations: Mapping[str, str], beat_seconds: float) -> None:
        """Take the public names with what is declared of each, as JSON."""
        self.worker_id = worker_id
        self.beat_seconds = beat_seconds
        self._declarations = dict(declarations)
        beats = max(1, min(_MOST_BEATS_A_ROUND, int(_ROUND_SECONDS / beat_seconds)))
        self._in_a_beat = ceil(len(self._declarations) / beats)
        self._written: Beat | None = None
        self._next = 0

    @property
    def models(self) -> tuple[str, ...]:
        """Return the public names of the worker's models."""
        return tuple(self._declarations)

    def entry(self, beat: Beat) -> Entry:
        """Return what is to be written now. Until ``wrote`` says that it was, nothing is known of what Redis has."""
        before, self._written = self._written, None
        able = tuple(sorted(beat.able))
        if before is None:
            leaving = tuple(sorted(self._declarations.keys() - beat.able))
            return Entry(True, beat.fields, able, leaving, self._declarations)
        changed = {name: value for name, value in beat.fields.items() if before.fields.get(name) != value}
        return Entry(False, changed, able, tuple(sorted(before.able - beat.able)), self._declared_now())

    def wrote(self, beat: Beat) -> None:
        """Learn that what ``entry`` returned for this beat is written."""
        self._written = beat

    def _declared_now(self) -> dict[str, str]:
        declared = dict(islice(self._declarations.items(), self._next, self._next + self._in_a_beat))
        self._next += self._in_a_beat
        if self._next >= len(self._declarations):
            self._next = 0
        return declared
