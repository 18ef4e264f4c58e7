"""How a worker shares its own slots among its models, so that a slow one never takes the last from a fast one. Pure.

The pool does the same over all its workers (lua/pool.lua); here it is about the greenlets of this process, where there are fewer
of them than slots in the pool.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

RECENTLY_MS: Final = 60_000.0
"""How long a model that had work has a slot kept for it."""

BORROWED_SHARE: Final = 0.25
"""So much of the slots can always be borrowed, however many models have some kept."""


@dataclass(slots=True)
class Shares:
    """Who had work lately. ``slots`` is how many jobs run at once; ``kept`` is by model, 1 for all others."""

    slots: int = 0
    kept: Mapping[str, int] = field(default_factory=dict)
    _active_ms: dict[str, float] = field(default_factory=dict)

    def had_work(self, model: str, now_ms: float) -> None:
        """Learn that a job of a model was claimed."""
        self._active_ms[model] = now_ms

    def quotas(self, models: Sequence[str], free: int, held: Counter[str], now_ms: float) -> dict[str, int]:
        """Return how many of the ``free`` slots each of these models may take now; ``held`` is what runs, by model."""
        for model, jobs in held.items():
            if jobs:
                self._active_ms[model] = now_ms
        recent = [model for model, at_ms in self._active_ms.items() if now_ms - at_ms < RECENTLY_MS]
        unused = {model: max(0, self.kept.get(model, 1) - held[model]) for model in recent}
        all_unused, most = sum(unused.values()), int(self.slots * (1 - BORROWED_SHARE))
        return {
            model: self._quota(free, min(all_unused - unused.get(model, 0), most), self._own(model, held))
            for model in models
        }

    def _own(self, model: str, held: Counter[str]) -> int:
        return max(0, self.kept.get(model, 1) - held[model])

    @staticmethod
    def _quota(free: int, kept_for_others: int, own: int) -> int:
        return max(min(free, own), free - kept_for_others, 0)
