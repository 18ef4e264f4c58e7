"""The parent of one embedded server: runs it, and cleans up after it whatever happens to the program that wanted it.

Run as a script, ``python -I -S keeper.py PARENT_PID PATTERN...``, by :class:`worker.sandbox.kept.KeptProcess`.
It reads one JSON command a line and answers each with one JSON line. When its input ends, or the
program that started it is gone, it ends the server with all its descendants and deletes what the patterns name.
Nothing but the standard library is imported, so that it is there within milliseconds.
"""

import contextlib
import ctypes
import glob
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PARENT_CHECK_SECONDS = 0.5
LAST_GRACE_SECONDS = 1.0
REAP_SECONDS = 5.0


def prctl(option: int, value: int) -> None:
    """Set a process attribute where the system has it; elsewhere the input's end alone tells that the parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with_keeper() -> None:
    """Make the calling process end when the keeper does; the keeper has one thread, so this names its life exactly."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Keeper:
    """One server's process: starts it, signals it, and ends it with everything it started."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], env: dict[str, str], log: str) -> dict[str, Any]:
        """Start the server in a session of its own, its output appended to the log; answers with its pid."""
        self.stop(0.0)
        with Path(log).open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_keeper,  # noqa: PLW1509 - this process has one thread
            )
        return {"pid": self._process.pid}

    def poll(self) -> dict[str, Any]:
        """Answer with the server's exit code, null while it runs."""
        return {"returncode": None if self._process is None else self._process.poll()}

    def signal(self, number: int) -> dict[str, Any]:
        """Send the server a signal, unless it has ended."""
        if self._process is not None:
            self._process.send_signal(number)
        return {}

    def stop(self, grace_seconds: float) -> dict[str, Any]:
        """Ask the server to end, insist after the grace, and end whatever it started; answers with its exit code."""
        process, self._process = self._process, None
        if process is None:
            return {"returncode": None}
        if process.poll() is None and grace_seconds > 0:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_seconds)
        # The group outlives its leader: Triton's model processes survive a crash of the server.
        kill_group(process.pid)
        returncode = process.wait()
        end_descendants()
        return {"returncode": returncode}


def kill_group(leader: int) -> None:
    """End every process of a group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_descendants() -> None:
    """End and reap the orphans that the system handed to this process, whatever group they put themselves in."""
    deadline = time.monotonic() + REAP_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.005)


def children() -> Sequence[int]:
    """The process ids of this process's children; none where the system does not tell."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def remove(patterns: Sequence[str]) -> None:
    """Delete the files and directories that the patterns name."""
    for path in (Path(name) for pattern in patterns for name in glob.glob(pattern)):  # noqa: PTH207 - absolute patterns
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def commands(parent: int) -> Any:
    """Yield the commands as they come, until the input ends or the parent is gone."""
    pending = b""
    while os.getppid() == parent:
        # A fork of the parent may hold the pipe open after the parent died, hence the look at the parent itself.
        readable, _, _ = select.select([0], [], [], PARENT_CHECK_SECONDS)
        if not readable:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        yield from map(json.loads, lines)


def leave(number: int, _: object) -> None:
    """End the keeper the orderly way when it is told to terminate."""
    raise SystemExit(128 + number)


def main(parent: int, patterns: Sequence[str]) -> None:
    """Serve commands until the parent has no more of them or is gone, then leave nothing behind."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    keeper = Keeper()
    try:
        for command in commands(parent):
            try:
                answer = getattr(keeper, command.pop("do"))(**command)
            except OSError as error:
                answer = {"error": str(error)}
            os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        pass
    finally:
        # A second request to end must not cut the cleaning short.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        keeper.stop(LAST_GRACE_SECONDS)
        remove(patterns)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
