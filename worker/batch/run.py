"""A run of a batch: send and collect, in turns, until every line is written."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from worker.batch.collecting import Collector
from worker.batch.counts import Counts
from worker.batch.progress import Progress
from worker.batch.sending import Sender

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.25
_PAUSE_FOR_FEW: Final = 0.02

_SYNC_SECONDS: Final = 5.0
_LIFE_SECONDS: Final = 60.0


def pause_after(last: float, written: int, looked_for: int, took: float) -> float:
    """Return for how many seconds not to look again, after a look that took so long; ``last`` is the pause before it.

    None if a quarter of what was looked for was there, a short one if only few were, and longer ones while there is nothing. A
    large window takes time to ask about, so most of the time is for others.
    """
    if written and written * 4 >= looked_for:
        return 0.0
    if written:
        return max(_PAUSE_FOR_FEW, took)
    return max(_FIRST_PAUSE, took, min(last * 1.5, _LONGEST_PAUSE))


@dataclass(slots=True)
class Run:
    """The parts of a run, and its time."""

    sender: Sender
    collector: Collector
    progress: Progress
    now: Callable[[], float]
    sleep: Callable[[float], None]
    _pause: float = field(default=0.0, init=False)
    _look_at: float = field(init=False)
    _sync_at: float = field(init=False)
    _life_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._look_at = self.now()
        self._sync_at, self._life_at = self._look_at + _SYNC_SECONDS, self._look_at + _LIFE_SECONDS

    def to_the_end(self) -> Counts:
        """Return what became of the lines, once all are written. May be ended anywhere, by anything, and run again."""
        while not self.sender.exhausted or len(self.progress.window):
            sent = self.sender.send_some()
            if self.now() >= self._look_at:
                self._look()
            elif not sent:
                self.sleep(self._look_at - self.now())
            self._keep_house()
        self.progress.outputs.sync()
        return self.progress.counts

    def _look(self) -> None:
        began = self.now()
        written, looked_for = self.collector.collect()
        self._pause = pause_after(self._pause, written, looked_for, self.now() - began)
        self._look_at = self.now() + self._pause

    def _keep_house(self) -> None:
        now = self.now()
        if now >= self._sync_at:
            self.progress.outputs.sync()
            self._sync_at = now + _SYNC_SECONDS
        if now >= self._life_at:
            self.sender.show_life()
            self._life_at = now + _LIFE_SECONDS
