"""``python -m benchmarks.one_job_marks``: the worker's command, which notes when a bell is heard, and when Redis and Triton are asked and answer.

The notes are lines ``nanoseconds name`` in the file that ``BENCH_MARKS`` names, by the monotonic clock, which all processes of a
machine share. They are kept until the worker is idle, so that writing them takes no job's time.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import gevent

from worker import lua
from worker.cli import main
from worker.redis_link import RedisLink
from worker.scripts import Argument, Scripts
from worker.triton.adapter import TritonInference

BELL: Final = "bell"
CLAIM, SETTLE, INFER = "claim_from_queues", "settle_if_claimed", "infer"
_WRITTEN_EVERY_SECONDS: Final = 1.0
_NAMES: Final = {
    hashlib.sha1(lua.load(name).encode(), usedforsecurity=False).hexdigest(): name for name in (CLAIM, SETTLE)
}

_marks: list[tuple[int, str]] = []


def _mark(name: str) -> None:
    _marks.append((time.monotonic_ns(), name))


def _between_marks(name_of: Callable[..., str], method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def marked(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self, *args)
        _mark(f"{name}>")
        try:
            return method(self, *args, **kwargs)
        finally:
            _mark(f"{name}<")

    return marked


def _first_script(_: Scripts, commands: Sequence[Sequence[Argument]]) -> str:
    return _NAMES.get(str(commands[0][1]), "other")


def note() -> None:
    """Note from now on."""
    scripts: Any = Scripts
    link: Any = RedisLink
    inference: Any = TritonInference
    read = link.read

    @wraps(read)
    def heard(self: RedisLink, timeout: float | None = None) -> Any:
        message = read(self, timeout)
        _mark(BELL)
        return message

    link.read = heard
    scripts.run = _between_marks(_first_script, scripts.run)
    inference.infer = _between_marks(lambda *_: INFER, inference.infer)


def write(path: Path) -> None:
    """Write down what was noted, now and then, until killed."""
    while True:
        gevent.sleep(_WRITTEN_EVERY_SECONDS)
        noted, _marks[:] = list(_marks), []
        with path.open("a") as file:
            file.writelines(f"{at} {name}\n" for at, name in noted)


if __name__ == "__main__":
    note()
    gevent.spawn(write, Path(os.environ["BENCH_MARKS"]))
    main()
