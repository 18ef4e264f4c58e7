"""Which models of a worker have appeared, vanished or been loaded anew since the last look: one look at all of them."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from tasks.errors import RuntimeUnavailable
from worker.triton.catalog import Catalog, is_in
from worker.triton.server import IndexEntry, ModelPath, Statistics

UNUSED_AT_A_TIME: Final = 2
"""Models that nothing was run on since they were loaded: their statistics do not tell when that was, so a few are described each time."""

LEAST_SECONDS_BETWEEN: Final = 60.0
"""How often a model is taken for loaded anew at the most."""

_log = structlog.get_logger()


class Changes:
    """Compares what Triton says with what it said the last time. It asks for all models at once, and changes nothing."""

    def __init__(self, catalog: Catalog, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet."""
        self._catalog = catalog
        self._monotonic = monotonic
        self._told: dict[str, float] = {}
        self._rows: Mapping[str, frozenset[IndexEntry]] | None = None
        self._statistics: Mapping[str, Statistics] = {}
        self._is_away = False
        self._unused = deque[ModelPath]()

    def since_last_time(self) -> frozenset[ModelPath]:
        """Return the models that are worth a look each. Where Triton has gone away that is all of them, once."""
        try:
            rows = self._catalog.index()
        except RuntimeUnavailable:
            was_away, self._is_away = self._is_away, True
            return frozenset() if was_away else self._catalog.models
        self._is_away = False
        statistics = self._catalog.statistics()
        changed = self._by_index(rows) | self._by_statistics(statistics)
        self._rows, self._statistics = rows, statistics
        return changed | self._of_the_next_unused(statistics)

    def _by_index(self, rows: Mapping[str, frozenset[IndexEntry]] | None) -> frozenset[ModelPath]:
        if rows is None:
            return frozenset()
        changed = {
            name
            for name in {model.name for model in self._catalog.models}
            if self._rows is not None and rows.get(name) != self._rows.get(name)
        }
        for name in sorted(changed):
            _log.info(
                "triton_model.changed", triton_model=name, state=sorted(str(row.state) for row in rows.get(name, ()))
            )
        return frozenset(model for model in self._catalog.models if model.name in changed or not is_in(rows, model))

    def _by_statistics(self, statistics: Mapping[str, Statistics]) -> frozenset[ModelPath]:
        """Return what was loaded anew without a moment in which it was not ready: its statistics went backwards."""
        now = self._monotonic()
        anew = {
            name
            for name, its in statistics.items()
            if name in self._statistics
            and its.is_behind(self._statistics[name])
            # Where several servers stand behind one address their figures come in turns, and go back and forth.
            and now - self._told.get(name, -LEAST_SECONDS_BETWEEN) >= LEAST_SECONDS_BETWEEN
        }
        for name in sorted(anew):
            self._told[name] = now
            _log.info("triton_model.reloaded", triton_model=name)
        return frozenset(model for model in self._catalog.models if model.name in anew)

    def _of_the_next_unused(self, statistics: Mapping[str, Statistics]) -> frozenset[ModelPath]:
        if not self._unused:
            self._unused.extend(sorted(self._catalog.models, key=str))
        its_turn: list[ModelPath] = []
        while self._unused and len(its_turn) < UNUSED_AT_A_TIME:
            model = self._unused.popleft()
            if statistics.get(model.name, Statistics()) == Statistics():
                its_turn.append(model)
        return frozenset(model for model in its_turn if not self._catalog.is_as_described(model))
