"""``python -m benchmarks.cpu_layers``: the worker's command, sampled: where its CPU time goes, layer by layer.

Each millisecond of CPU time the stack is looked at, and counted for the innermost frame that belongs to a layer. The standard library
and gevent's sockets count for whoever calls them. The counts are written to the file that ``BENCH_LAYERS`` names.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from worker.cli import main

LAYERS: Final = (
    ("/worker/triton/", "Triton: requests and answers as tensors, HTTP"),
    ("/geventhttpclient/", "Triton: requests and answers as tensors, HTTP"),
    ("/redis/", "Redis: packing, sending, parsing"),
    ("/worker/redis_link.py", "Redis: packing, sending, parsing"),
    ("/kombu/", "Celery and kombu"),
    ("/celery/", "Celery and kombu"),
    ("/worker/strategy.py", "Celery and kombu"),
    ("/worker/transport.py", "Celery and kombu"),
    ("/worker/crew.py", "Celery and kombu"),
    ("/structlog/", "the log"),
    ("/worker/logs.py", "the log"),
    ("/worker/journals.py", "the log"),
    ("/worker/circuit", "circuits, tallies, metrics"),
    ("/worker/observ", "circuits, tallies, metrics"),
    ("/worker/gate.py", "circuits, tallies, metrics"),
    ("/worker/tally.py", "circuits, tallies, metrics"),
    ("/worker/metrics/", "circuits, tallies, metrics"),
    ("/worker/", "claims and settlements: what is asked of Redis, and what it answered"),
    ("/tasks/", "jobs and results: reading, checking, writing"),
    ("/pydantic", "jobs and results: reading, checking, writing"),
)
HUB: Final = "switching greenlets and waiting"
_SAMPLE_SECONDS: Final = 0.001
_WRITTEN_EVERY: Final = 500


def layer_of(files: Iterator[str]) -> str:
    """Return the layer of a stack: its frames' files, innermost first."""
    for file in files:
        for part, layer in LAYERS:
            if part in file:
                return layer
    return HUB


def _files(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def sample(path: Path) -> None:
    """Count from now on."""
    counts = Counter[str]()

    def look(_: int, frame: FrameType | None) -> None:
        counts[layer_of(_files(frame))] += 1
        if counts.total() % _WRITTEN_EVERY == 0:
            whole = path.with_suffix(".whole")
            whole.write_text(json.dumps(counts))
            whole.replace(path)

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)


if __name__ == "__main__":
    sample(Path(os.environ["BENCH_LAYERS"]))
    main()
