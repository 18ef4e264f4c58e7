"""A server process that never outlives this program, not even when the program is killed."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from worker.sandbox import keeper
from worker.sandbox.errors import SandboxError

KEEPER_EXIT_SECONDS = 15.0


class KeptProcess:
    """Runs one server at a time beneath a keeper process.

    The keeper ends the server with all its descendants, and deletes what ``remove`` names (glob patterns of absolute
    paths), on :meth:`close` and equally when this program is gone.
    """

    def __init__(self, remove: Sequence[str]) -> None:
        self._owner = os.getpid()
        self._remove = tuple(remove)
        self._lock = threading.Lock()
        self.pid: int | None = None
        # A session of its own keeps the terminal's Ctrl-C for the program, which then closes this in its own order.
        self._keeper = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", str(Path(keeper.__file__)), str(self._owner), *remove],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        """Start the server, its output appended to the log, and return its process id."""
        answer = self._ask("start", argv=list(argv), env=dict(env), log=str(log))
        self.pid = int(answer["pid"])
        return self.pid

    def poll(self) -> int | None:
        """Return the server's exit code (negative: the signal that ended it), or None while it runs."""
        returncode: int | None = self._ask("poll")["returncode"]
        return returncode

    def signal(self, number: int) -> None:
        """Send the server a signal, unless it has ended."""
        self._ask("signal", number=int(number))

    def stop(self, grace_seconds: float) -> int | None:
        """End the server, by force after the grace, and everything it started; return its exit code."""
        returncode: int | None = self._ask("stop", grace_seconds=grace_seconds)["returncode"]
        self.pid = None
        return returncode

    def close(self) -> None:
        """End what still runs and delete what the server leaves; safe to repeat, and without effect in a fork."""
        if os.getpid() != self._owner or self._keeper.stdin is None or self._keeper.stdout is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.close()
        returncode = self._keeper.wait(KEEPER_EXIT_SECONDS)
        self._keeper.stdout.close()
        if returncode != 0:
            # The keeper was killed; the system ended its server with it, the files are still there.
            keeper.remove(self._remove)

    def _ask(self, do: str, **arguments: object) -> dict[str, Any]:
        if self._keeper.stdin is None or self._keeper.stdout is None:
            raise SandboxError("the keeper of the embedded server has no pipes")
        with self._lock:
            try:
                self._keeper.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
                self._keeper.stdin.flush()
                line = self._keeper.stdout.readline()
            except (OSError, ValueError) as error:
                raise SandboxError("the keeper of the embedded server is gone; start it anew") from error
        if not line:
            raise SandboxError("the keeper of the embedded server is gone; start it anew")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SandboxError(f"the embedded server cannot be started: {answer['error']}")
        return answer
