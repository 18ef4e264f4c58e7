"""The file of result lines: mended after a kill, read back, and only ever added to."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from worker.batch.result_lines import Written, read_back


class NotThisBatch(Exception):
    """The file holds a line that this batch did not write; the message says which one."""


class ResultFile:
    """A context manager: one output file, of which every line is whole but perhaps the last."""

    def __init__(self, path: Path) -> None:
        """Open the file, made if need be. Raises OSError."""
        self._path = path
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        self._unsynced = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clear(self) -> None:
        """Drop all that is in the file."""
        self._file.truncate(0)
        self._file.seek(0)

    def recover(self, batch_id: str) -> Iterator[Written]:
        """Yield each line that is there, then cut off what a kill left of the last one.

        Raises:
            NotThisBatch: a whole line is another's.
        """
        good = 0
        self._file.seek(0)
        with os.fdopen(os.dup(self._file.fileno()), "rb") as reader:
            for number, line in enumerate(reader, start=1):
                # After a crash of the machine a file may end in zeros: a size that was kept, of bytes that were not.
                if not line.endswith(b"\n") or line.startswith(b"\0"):
                    break
                written = read_back(line, batch_id)
                if written is None:
                    raise NotThisBatch(
                        f"{self._path}: line {number} was not written by this batch: put the file back, or name another --output"
                    )
                good += len(line)
                yield written
        self._file.truncate(good)
        self._file.seek(good)

    def append(self, lines: Iterable[Written]) -> None:
        """Write lines at the end. Raises OSError; then a part of them may be there."""
        content = b"".join(line.content for line in lines)
        self._unsynced = self._unsynced or bool(content)
        while content:
            content = content[self._file.write(content) :]

    def sync(self) -> None:
        """Have what was written survive a crash of the machine."""
        if self._unsynced:
            os.fsync(self._file.fileno())
            self._unsynced = False

    def close(self) -> None:
        """Give up the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where lines go: ``errors`` takes those that failed, or else ``results`` takes all."""

    results: ResultFile
    errors: ResultFile | None = None

    def append(self, lines: Sequence[Written]) -> None:
        """Write lines at the ends of their files. Raises OSError."""
        if self.errors is None:
            self.results.append(lines)
            return
        self.results.append(line for line in lines if line.outcome.code is None)
        self.errors.append(line for line in lines if line.outcome.code is not None)

    @property
    def files(self) -> tuple[ResultFile, ...]:
        """Return the files that there are."""
        return (self.results,) if self.errors is None else (self.results, self.errors)

    def clear(self) -> None:
        """Drop all that is in the files."""
        for file in self.files:
            file.clear()

    def recover(self, batch_id: str) -> Iterator[Written]:
        """Yield each line that is in a file, and mend the files. Raises NotThisBatch."""
        for file in self.files:
            yield from file.recover(batch_id)

    def sync(self) -> None:
        """Have what was written survive a crash of the machine."""
        for file in self.files:
            file.sync()
