"""What a batch's run has done so far, and who is told of it."""

from dataclasses import dataclass, field
from typing import Protocol

from worker.batch.counts import Counts
from worker.batch.line_set import LineSet
from worker.batch.output import Outputs
from worker.batch.result_lines import Written
from worker.batch.window import Window


class Watcher(Protocol):
    """Whoever looks on while a batch runs."""

    def moved(self, counts: Counts) -> None:
        """Hear how many lines are written by now."""
        ...

    def note(self, text: str) -> None:
        """Hear what a person should know."""
        ...


@dataclass(slots=True)
class Progress:
    """The lines under way, written and counted. Every line passes through here, and none twice."""

    window: Window
    outputs: Outputs
    watcher: Watcher
    done: LineSet = field(default_factory=LineSet)
    counts: Counts = field(default_factory=Counts)

    def count(self, written: Written) -> None:
        """Count a line that is in a file already; once, however often it stands there."""
        if self.done.add(written.number):
            self.counts.add(written.outcome)

    def end(self, lines: list[Written]) -> None:
        """Take what is to be written for some lines; write what may be written now, in one go for each file. Raises OSError."""
        released = [each for line in lines for each in self.window.end(line)]
        if released:
            self.outputs.append(released)
            for each in released:
                self.count(each)
            self.watcher.moved(self.counts)
