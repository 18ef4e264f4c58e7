"""From the input to the queues: a line at a time, as many as the window has room for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from worker.batch.bad_line import BadLine
from worker.batch.jobs import JobMaker, Planned, line_of
from worker.batch.journal import Facts, Journal
from worker.batch.lines import Record
from worker.batch.post import Post
from worker.batch.progress import Progress
from worker.batch.result_lines import Written, failed, refused

OUTCOME_UNKNOWN: Final = "outcome_unknown"
"""The code of a line whose job was sent so long ago that Redis may have forgotten how it ended."""

_UNKNOWN: Final = (
    "The job was sent long ago, and how it ended is no longer known: it was not run again. "
    "Send it in a new batch if it is worth that."
)

_LINES_AT_ONCE: Final = 250
_BYTES_AT_ONCE: Final = 4 << 20


@dataclass(slots=True)
class Chunk:
    """Some lines, read: those that have jobs, and the error lines of those that have none."""

    planned: list[Planned] = field(default_factory=list)
    ended: list[Written] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        """Tell whether these are enough for one round trip."""
        return len(self.planned) + len(self.ended) >= _LINES_AT_ONCE or self.size >= _BYTES_AT_ONCE


@dataclass(slots=True)
class Sender:
    """Sends the lines that are not done. ``facts`` is what the journal said at the start of this run.

    ``age_seconds`` is how long before this run the batch was last worked on, 0 for a new one, and ``remembered_seconds`` how long
    Redis knows of a model's job that it has ended.
    """

    records: Iterator[Record]
    maker: JobMaker
    journal: Journal
    facts: Facts
    progress: Progress
    post: Post
    age_seconds: float = 0.0
    remembered_seconds: Callable[[str], float] = lambda _: inf
    exhausted: bool = False
    _is_stale: bool = field(default=False, init=False)
    _mark: int = field(init=False)
    _read: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._mark = self.facts.sent

    def send_some(self) -> bool:
        """Send what there is room for, up to one round trip of it; False if there was nothing to do."""
        chunk = self._read_chunk() if self.progress.window.wants_more else Chunk()
        # The bad lines first: nothing of them has to wait for Redis.
        self.progress.end(chunk.ended)
        if chunk.planned:
            self._send(chunk.planned)
        return bool(chunk.planned or chunk.ended)

    def show_life(self) -> None:
        """Write down that the batch is being worked on."""
        self._write_mark(self.post.now_ms())

    def _write_mark(self, at_ms: int) -> None:
        # A newer time would hide from the next run how old the jobs are that this one has yet to deal with.
        self.journal.will_send(self._mark, self.facts.seen_at_ms if self._has_old_jobs() else at_ms)

    def _has_old_jobs(self) -> bool:
        if not self._is_stale:
            return False
        oldest = self.progress.window.oldest
        has_read_on = self.exhausted or self._read > self.facts.sent
        return not has_read_on or (oldest is not None and oldest <= self.facts.sent)

    def _read_chunk(self) -> Chunk:
        chunk = Chunk()
        window = self.progress.window
        while window.room > 0 and not chunk.is_full:
            record = next(self.records, None)
            if record is None:
                self.exhausted = True
                break
            self._read = record.number
            if record.number not in self.progress.done:
                self._plan(record, chunk)
        return chunk

    def _plan(self, record: Record, chunk: Chunk) -> None:
        window = self.progress.window
        try:
            planned = self.maker.make(record)
        except BadLine as bad:
            line = line_of(self.facts.batch_id, record)
            window.enter(line)
            chunk.ended.append(refused(line, bad))
        else:
            window.enter(planned.line)
            chunk.planned.append(planned)
            chunk.size += planned.size
            self._is_stale = self._is_stale or self._may_be_forgotten(planned)

    def _send(self, planned: list[Planned]) -> None:
        at_ms = self.post.now_ms()
        highest = planned[-1].line.number
        again = self._without_a_trace([each for each in planned if each.line.number <= self.facts.sent])
        first = [each for each in planned if each.line.number > self.facts.sent]
        if highest > self._mark:
            self._mark = highest
            self._write_mark(at_ms)
        if again or first:
            self.post.send([each.job for each in (*again, *first)], token=self.facts.batch_id, at_ms=at_ms)

    def _without_a_trace(self, planned: list[Planned]) -> list[Planned]:
        """Return those that an earlier run may have sent, and that have not ended; what has ended is for the collector."""
        if not planned:
            return []
        standings = self.post.standings([each.line.job_id for each in planned])
        pairs = zip(planned, standings, strict=True)
        traceless = [each for each, standing in pairs if not standing.result_bytes and not standing.has_ended]
        forgotten = [each for each in traceless if self._may_be_forgotten(each)]
        self.progress.end([failed(each.line, OUTCOME_UNKNOWN, _UNKNOWN) for each in forgotten])
        return [each for each in traceless if not self._may_be_forgotten(each)]

    def _may_be_forgotten(self, planned: Planned) -> bool:
        """Tell whether the job, if it was sent before this run, may have ended so long ago that Redis no longer knows."""
        return self.age_seconds > self.remembered_seconds(planned.line.model)
