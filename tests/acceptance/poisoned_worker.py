"""A worker that some jobs kill, as a fault in a C library would: run as ``python -m tests.acceptance.poisoned_worker CONFIG``.

A prompt with ``kill-worker`` in it ends the process like kill -9 once it has run for a moment beside its neighbours; bytes with
``kill-reader`` in them do so as soon as they are read.
"""

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402 - after the patching
import signal  # noqa: E402 - after the patching
import sys  # noqa: E402 - after the patching
from pathlib import Path  # noqa: E402 - after the patching
from typing import Any  # noqa: E402 - after the patching

import gevent  # noqa: E402 - after the patching

from tasks.delivery import Delivery  # noqa: E402 - after the patching
from worker import reception  # noqa: E402 - after the patching
from worker.app import run_worker  # noqa: E402 - after the patching
from worker.cli.targets import worker_settings  # noqa: E402 - after the patching
from worker.runtime import Runtime  # noqa: E402 - after the patching

KILL_WORKER = b"kill-worker"
KILL_READER = b"kill-reader"


def poison() -> None:
    """Have the worker's code die of what is marked."""
    runtime_class: Any = Runtime
    reading: Any = reception
    perform, read_envelope = runtime_class.perform, reading.read_envelope

    def performed(runtime: Runtime, delivery: Delivery) -> None:
        if KILL_WORKER in delivery.raw:
            gevent.sleep(0.05)
            _die()
        perform(runtime, delivery)

    def read(raw: bytes, max_job_bytes: int) -> Any:
        if KILL_READER in raw:
            _die()
        return read_envelope(raw, max_job_bytes)

    runtime_class.perform = performed
    reading.read_envelope = read


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    poison()
    sys.exit(run_worker(worker_settings(Path(sys.argv[1]))))
