"""From Redis to the output: looks for the results of the lines under way, and finds those that will never come."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from worker.batch.following import DeadLetters, Standing, read_result
from worker.batch.jobs import Asked
from worker.batch.post import Post
from worker.batch.progress import Progress
from worker.batch.result_lines import Written, ended, failed

RESULT_EXPIRED: Final = "result_expired"
RESULT_UNREADABLE: Final = "result_unreadable"

THOROUGH_SECONDS: Final = 5.0
"""How often it is asked whether a job has ended though it has no result, and whether it is a dead letter."""

_JOBS_AT_ONCE: Final = 500


@dataclass(slots=True)
class Collector:
    """Looks again and again, more closely every ``THOROUGH_SECONDS``."""

    progress: Progress
    post: Post
    letters: DeadLetters
    now: Callable[[], float]
    _closely_at: float = field(default=float("-inf"), init=False)

    def collect(self) -> tuple[int, int]:
        """Write what has ended; return how many lines that were, of how many that were looked for."""
        closely = self.now() >= self._closely_at
        if closely:
            self._closely_at = self.now() + THOROUGH_SECONDS
        wanted = self.progress.window.wanted()
        before = self.progress.counts.written
        for start in range(0, len(wanted), _JOBS_AT_ONCE):
            self._look(wanted[start : start + _JOBS_AT_ONCE], closely=closely)
        if closely and len(self.progress.window):
            self._bury()
        return self.progress.counts.written - before, len(wanted)

    def _look(self, lines: Sequence[Asked], *, closely: bool) -> None:
        job_ids = [line.job_id for line in lines]
        if closely:
            standings = self.post.standings(job_ids)
        else:
            standings = [Standing(size) for size in self.post.result_sizes(job_ids)]
        self._fetch(
            [
                (line, standing.result_bytes)
                for line, standing in zip(lines, standings, strict=True)
                if standing.result_bytes
            ]
        )
        gone = ((line, standing) for line, standing in zip(lines, standings, strict=True) if standing.has_ended)
        self.progress.end([self._expired(line, standing) for line, standing in gone if not standing.result_bytes])

    def _fetch(self, ready: Sequence[tuple[Asked, int]]) -> None:
        lines = {line.job_id: line for line, _ in ready}
        for group in self.post.results([(line.job_id, size) for line, size in ready]):
            self.progress.end([_result_line(lines[job_id], raw) for job_id, raw in group if raw is not None])

    def _expired(self, line: Asked, standing: Standing) -> Written:
        """Return the line of a job whose result is gone: the settlement queue may still have it."""
        raw = self.post.settlement(standing.stream_id) if standing.stream_id else None
        if raw is not None:
            return _result_line(line, raw)
        return failed(line, RESULT_EXPIRED, f"The job has ended ({standing.status}), and its result is no longer kept.")

    def _bury(self) -> None:
        """End the lines whose jobs became dead letters: nothing will ever be settled for those."""
        for lost in self.post.lost_jobs(self.letters):
            number = lost.job_id.rpartition(":")[2]
            line = self.progress.window.find(int(number)) if number.isdecimal() else None
            if line is not None:
                self.progress.end([failed(line, lost.reason, f"A worker made the job a dead letter: {lost.reason}.")])


def _result_line(line: Asked, raw: bytes) -> Written:
    result = read_result(raw)
    if result is None:
        return failed(line, RESULT_UNREADABLE, "The job's result is not one that this command can read.")
    return ended(line, result)
