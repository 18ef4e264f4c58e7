"""A run of a batch: send and collect, in turns, until every line is written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from worker.batch.collecting import Collector
from worker.batch.counts import Counts
from worker.batch.progress import Progress
from worker.batch.sending import Sender

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.25
_PAUSE_WHILE_MOVING: Final = 0.02
"""Seconds; so that an answer is worth its question while results come in, but only few at a time."""

_SYNC_SECONDS: Final = 5.0
_LIFE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run, and its time."""

    sender: Sender
    collector: Collector
    progress: Progress
    now: Callable[[], float]
    sleep: Callable[[float], None]

    def to_the_end(self) -> Counts:
        """Return what became of the lines, once all are written. May be ended anywhere, by anything, and run again."""
        pause = _FIRST_PAUSE
        sync_at, life_at = (self.now() + after for after in (_SYNC_SECONDS, _LIFE_SECONDS))
        while not self.sender.exhausted or len(self.progress.window):
            began = self.now()
            sent = self.sender.send_some()
            written, of = self.collector.collect()
            took = self.now() - began
            if self.now() >= sync_at:
                self.progress.outputs.sync()
                sync_at = self.now() + _SYNC_SECONDS
            if self.now() >= life_at:
                self.sender.show_life(self.collector.post.now_ms())
                life_at = self.now() + _LIFE_SECONDS
            if written:
                pause = _FIRST_PAUSE
                if written * 4 < of:
                    self.sleep(_PAUSE_WHILE_MOVING)
            elif not sent:
                # A large window takes time to ask about; most of the time is for others.
                self.sleep(max(pause, took))
                pause = min(pause * 1.5, _LONGEST_PAUSE)
        self.progress.outputs.sync()
        return self.progress.counts
