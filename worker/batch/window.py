"""The lines under way: sent and not ended, or ended and waiting for their turn to be written. Pure, and bounded."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from worker.batch.jobs import Asked, Line
from worker.batch.result_lines import Written

MOST_HELD: Final = 32 << 20
"""Bytes of results that are held back for the input's order; beyond that, only the line whose turn it is is asked for."""


class Window:
    """At most ``size`` lines between the input and the output; with ``keep_order`` they leave as they came."""

    def __init__(self, size: int, *, keep_order: bool, most_held: int = MOST_HELD) -> None:
        self._size = size
        self._keep_order = keep_order
        self._most_held = most_held
        self._asked: dict[int, Asked] = {}
        self._turns: deque[int] = deque()
        self._held: dict[int, Written] = {}
        self._held_bytes = 0

    @property
    def room(self) -> int:
        """Return how many lines may enter."""
        return self._size - len(self._asked) - len(self._held)

    @property
    def wants_more(self) -> bool:
        """Tell whether there is room worth a round trip: a tenth of the window."""
        return self.room > 0 and self.room * 10 >= self._size

    def __len__(self) -> int:
        return len(self._asked) + len(self._held)

    @property
    def oldest(self) -> int | None:
        """Return the lowest line number that is neither written nor to be written at once, None where there is none."""
        return next(iter(self._turns if self._keep_order else self._asked), None)

    def enter(self, line: Line) -> None:
        """Take a line in; in the order of the input."""
        if isinstance(line, Asked):
            self._asked[line.number] = line
        if self._keep_order:
            self._turns.append(line.number)

    def find(self, number: int) -> Asked | None:
        """Return a line that has a job and has not ended, None where there is no such line."""
        return self._asked.get(number)

    def wanted(self) -> Sequence[Asked]:
        """Return the lines whose results may be asked for, the oldest first."""
        most = 1 if self._held_bytes > self._most_held else None
        return list(islice(self._asked.values(), most))

    def end(self, written: Written) -> list[Written]:
        """Note what is to be written for a line, and return what may be written now."""
        self._asked.pop(written.number, None)
        if not self._keep_order:
            return [written]
        self._held[written.number] = written
        self._held_bytes += len(written.content)
        released = []
        while self._turns and self._turns[0] in self._held:
            released.append(self._held.pop(self._turns.popleft()))
            self._held_bytes -= len(released[-1].content)
        return released
