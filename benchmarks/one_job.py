"""Where the time of a single job goes: a worker that notes what it does when, and is given one job at a time."""

import bisect
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.load import Span, next_settlement, started
from benchmarks.one_job_marks import BELL, CLAIM, INFER, SETTLE
from benchmarks.ours import configuration, ours
from benchmarks.plan import EMPTY, ROOT
from benchmarks.settling import SETTLEMENTS
from benchmarks.sheets import Sheet, number
from benchmarks.sides import QueueSide, job_json, pusher
from benchmarks.stage import valkey
from benchmarks.waiting import wait_until
from worker.connections import redis_client
from worker.sandbox.embedded_server import EmbeddedServer
from worker.sandbox.valkey_server import Fsync
from worker.sandbox.worker_process import WorkerProcess

STEPS: Final = (
    (BELL, "the push, until the worker has heard the bell"),
    (f"{CLAIM}>", "until it has asked for the claim"),
    (f"{CLAIM}<", "until it has the claim's answer"),
    (f"{INFER}>", "until it has the job's request"),
    (f"{INFER}<", "**the inference**"),
    (f"{SETTLE}>", "until it has asked for the settlement"),
    ("", "until the settlement is read"),
)
"""What the worker notes (benchmarks/one_job_marks.py) and what lies before it; the last is noted by who reads the settlement."""

_LEAST_PLAIN: Final = 0.5
_QUEUE, _READY = "floor", "floor:ready"


@dataclass(frozen=True, slots=True)
class Case:
    """How single jobs are given: how long after the last was settled, and how safely Redis keeps them."""

    words: str
    pause_seconds: float
    fsync: Fsync


CASES: Final = (
    Case("20 ms apart", 0.02, "everysec"),
    Case("back to back", 0.0, "everysec"),
    Case("20 ms apart, fsync always", 0.02, "always"),
)


class NotPlain(Exception):
    """Too few jobs went the plain way: a bell, a claim, an inference, a settlement."""


class MarkedWorker(WorkerProcess):
    """A worker that notes what it does when."""

    module = "benchmarks.one_job_marks"

    def __init__(self, settings: Mapping[str, Any], marks: Path) -> None:
        super().__init__(settings, environment={"BENCH_MARKS": str(marks), "PYTHONPATH": str(ROOT)})


class PopAndAdd(EmbeddedServer):
    """The least that a queue takes (benchmarks/pop_and_add.py), as a process."""

    name = "pop_and_add"

    def __init__(self, redis_url: str) -> None:
        super().__init__(port=None, start_timeout_seconds=30.0, stop_grace_seconds=0.0)
        self._redis_url = redis_url
        self._client = redis_client(redis_url)

    def _check(self) -> None:
        """Nothing to look for."""

    def _command(self) -> Sequence[str]:
        return (sys.executable, "-m", "benchmarks.pop_and_add", self._redis_url, _QUEUE, SETTLEMENTS, _READY)

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def _is_ready(self) -> bool:
        return self._client.get(_READY) == str(self.pid).encode()


def measure(triton_url: str, jobs: int) -> Sheet:
    """Return the median time of each step of single jobs, beside the least that a push, a pop and an entry take."""
    columns = [(_steps(triton_url, case, jobs), _least(case, jobs)) for case in CASES]
    rows = [(words, *(number(steps[n]) for steps, _ in columns)) for n, (_, words) in enumerate(STEPS)]
    rows += [
        ("in all", *(number(sum(steps)) for steps, _ in columns)),
        ("a push, a pop and an entry, and no more", *(number(least) for _, least in columns)),
    ]
    return Sheet(
        f"One job at a time: medians of {jobs} in µs, step by step", ("", *(case.words for case in CASES)), rows
    )


def _steps(triton_url: str, case: Case, jobs: int) -> Sequence[float]:
    with valkey(case.fsync) as server, tempfile.TemporaryDirectory() as directory:
        marks = Path(directory, "marks")
        side = ours(server.url, server.url, triton_url, EMPTY)
        worker = MarkedWorker(configuration(server.url, triton_url, EMPTY), marks)
        spans = _spans(replace(side, process=worker), server.url, case, jobs, marks)
        noted = [(int(at), name) for at, _, name in (line.partition(" ") for line in marks.read_text().splitlines())]
    return steps_of(spans, sorted(noted))


def _spans(side: QueueSide, redis_url: str, case: Case, jobs: int, marks: Path) -> Sequence[Span]:
    with started(side) as loaded, closing(redis_client(redis_url, socket_timeout=40)) as listener:
        spans = []
        for _ in range(jobs):
            loaded.given += 1
            spans.append(next_settlement(side, listener, loaded.given, pause_seconds=case.pause_seconds))
        wait_until(lambda: _has_noted(marks, spans[-1]), "the worker has written its notes")
    side.client.close()
    return spans


def _has_noted(marks: Path, last: Span) -> bool:
    lines = marks.read_text().splitlines() if marks.exists() else []
    return bool(lines) and int(lines[-1].partition(" ")[0]) > last.ended_ns


def steps_of(spans: Sequence[Span], noted: Sequence[tuple[int, str]]) -> Sequence[float]:
    """Return the median microseconds of each step, of the jobs that went the plain way.

    Raises:
        NotPlain: they are fewer than half.
    """
    plain = [found for span in spans if (found := _plain(span, noted)) is not None]
    if len(plain) < _LEAST_PLAIN * len(spans):
        raise NotPlain(f"{len(plain)} of {len(spans)} jobs went the plain way")
    return [median(one) for one in zip(*plain, strict=True)]


def _plain(span: Span, noted: Sequence[tuple[int, str]]) -> Sequence[float] | None:
    """Return the microseconds of a job's steps, None where they were others, or more."""
    within = noted[bisect.bisect(noted, (span.began_ns, "")) : bisect.bisect(noted, (span.ended_ns, ""))]
    wanted = [name for name, _ in STEPS[:-1]]
    found = [(at, name) for at, name in within if name in wanted]
    if [name for _, name in found] != wanted:
        return None
    moments = [span.began_ns, *(at for at, _ in found), span.ended_ns]
    return [(after - before) / 1000 for before, after in pairwise(moments)]


def _least(case: Case, jobs: int) -> float:
    with valkey(case.fsync) as server:
        client = redis_client(server.url)
        push = pusher(client, _QUEUE, lambda number: job_json(str(number), EMPTY).encode())
        side = QueueSide("floor", PopAndAdd(server.url), client, _QUEUE, SETTLEMENTS, push, False, 9_000)
        with started(side), closing(redis_client(server.url, socket_timeout=40)) as listener:
            times = [next_settlement(side, listener, n, pause_seconds=case.pause_seconds) for n in range(jobs)]
        client.close()
    return median(span.milliseconds for span in times) * 1000
