"""The limit, as a side: the process of the direct loop (benchmarks/direct_loop.py)."""

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from typing import Self

from benchmarks.figures import Window
from benchmarks.gauges import ProcessUse
from benchmarks.plan import ROOT, Workload


class DirectLoopEnded(Exception):
    """The direct loop's process gives no answer."""


class DirectLoop(AbstractContextManager["DirectLoop"]):
    """The direct loop's process."""

    def __init__(self, triton_url: str, workload: Workload) -> None:
        """Keep what it is to ask; nothing is started yet."""
        numbers = (str(workload.in_flight), str(workload.prompt_bytes))
        arguments = (triton_url.removeprefix("http://"), workload.model, *numbers)
        self._command = (sys.executable, "-m", "benchmarks.direct_loop", *arguments)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def once_ms(self) -> float:
        """Return the milliseconds of one inference alone."""
        return float(self._ask(do="once")["milliseconds"])

    def window(self, warm_seconds: float, seconds: float) -> Window:
        """Ask for ``seconds`` with all its greenlets, after ``warm_seconds`` of the same."""
        answer = self._ask(do="run", warm=warm_seconds, seconds=seconds)
        pid = self._process.pid if self._process else 0
        return Window(int(answer["jobs"]), answer["seconds"], answer["cpu_seconds"], ProcessUse.of(pid).rss_bytes)

    def _ask(self, **command: object) -> dict[str, float]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise DirectLoopEnded("the direct loop was not started")
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise DirectLoopEnded("the direct loop ended; its own words are above")
        answer: dict[str, float] = json.loads(line)
        return answer
