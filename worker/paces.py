"""The shortest time that each kind of job has taken: what the times of others are measured by. No I/O.

Jobs of one kind are of one model, with about as many tokens: within a factor of two in the prompt, and in the completion. Texts are
measured by the completion's token, everything else by the call. The shortest time is a median of a few in a row, so that one that
was answered from a cache, or was lucky, is not what all others are held against.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Final

from tasks.usage import Units, Usage

_IN_A_ROW: Final = 5
_FEWEST: Final = 3
_WORTH_TELLING: Final = 0.98
"""Only what is shorter than this share of what is known is news: each job being a little quicker than all before is chance."""

KNOWN_FOR_MS: Final = 30_000.0
"""How long a kind is not asked about again: other workers may have found a shorter time."""

MOST_ASKED: Final = 64
"""So many kinds are told and asked about at once; the others come next."""


def kind_and_pace(model: str, usage: Usage | Units | None, inference_ms: int) -> tuple[str, float]:
    """Return what kind of job an inference was, and its ms by token of the completion, or by call where tokens are not counted."""
    taken_ms = float(max(1, inference_ms))
    if not isinstance(usage, Usage):
        return model, taken_ms
    tokens = max(1, usage.completion_tokens)
    return f"{model} {usage.prompt_tokens.bit_length()} {tokens.bit_length()}", taken_ms / tokens


@dataclass(slots=True)
class Paces:
    """What one worker knows of shortest times; of an ``era``, after which all is forgotten."""

    era: int = 0
    _last: dict[str, deque[float]] = field(default_factory=dict)
    _shortest: dict[str, float] = field(default_factory=dict)
    _asked_ms: dict[str, float] = field(default_factory=dict)
    _touched: set[str] = field(default_factory=set)
    _news: dict[str, float] = field(default_factory=dict)

    def times(self, kind: str, ms: float) -> float:
        """Learn of one more job of a kind, and return how many times the shortest it took; 1 where none is known."""
        last = self._last.setdefault(kind, deque(maxlen=_IN_A_ROW))
        last.append(ms)
        self._touched.add(kind)
        known, lately = self._shortest.get(kind, inf), median(last) if len(last) >= _FEWEST else inf
        if lately < known * _WORTH_TELLING:
            self._shortest[kind] = self._news[kind] = known = lately
        return max(1.0, ms / known)

    def to_tell(self, now_ms: float) -> dict[str, float | None]:
        """Return what others are to be told and asked at a monotonic time: kinds, each with the shortest ms where there is news."""
        asked = [kind for kind in self._touched if now_ms - self._asked_ms.get(kind, -KNOWN_FOR_MS) >= KNOWN_FOR_MS]
        kinds = dict.fromkeys([*self._news, *asked])
        return {f"{self.era} {kind}": self._news.get(kind) for kind in list(kinds)[:MOST_ASKED]}

    def heard(self, told: Mapping[str, float | None], shortest: Mapping[str, float], now_ms: float) -> None:
        """Learn what is known now of what ``to_tell`` gave."""
        for name, ms in told.items():
            era, _, kind = name.partition(" ")
            if int(era) != self.era:
                continue
            self._asked_ms[kind] = now_ms
            self._touched.discard(kind)
            if self._news.get(kind) == ms:
                self._news.pop(kind, None)
            known = shortest.get(name, 0.0)
            if 0.0 < known < self._shortest.get(kind, inf):
                self._shortest[kind] = known

    def begin(self, era: int) -> None:
        """Forget all that was known before an era."""
        if era != self.era:
            self.era = era
            for known in (self._last, self._shortest, self._asked_ms, self._news):
                known.clear()
            self._touched.clear()
