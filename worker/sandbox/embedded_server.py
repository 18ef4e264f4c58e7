"""What every embedded server has in common: a port, a log, a life that can be cut short and taken up again."""

import glob
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from worker.sandbox.errors import SandboxError, SandboxStartFailed
from worker.sandbox.kept import KeptProcess
from worker.sandbox.places import free_port, log_tail, temporary_directory

PORT_TRIES = 3


class EmbeddedServer(ABC):
    """A context manager: a server on loopback while it is open; nothing of it is left behind, even after kill -9.

    Everything it writes is in ``directory``. All durations are seconds.
    """

    name: str
    ready_poll_seconds = 0.02

    def __init__(self, *, port: int | None, start_timeout_seconds: float, stop_grace_seconds: float) -> None:
        self.port = port or free_port()
        self._port_is_fixed = port is not None
        self._start_timeout = start_timeout_seconds
        self._stop_grace = stop_grace_seconds
        self._directory: Path | None = None
        self._kept: KeptProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id, None while it is not started."""
        return None if self._kept is None else self._kept.pid

    @property
    def directory(self) -> Path:
        """The server's own directory, deleted on stop."""
        if self._directory is None:
            raise SandboxStartFailed(f"the embedded {self.name} was not started, or was stopped")
        return self._directory

    @property
    def log(self) -> Path:
        """The server's log, deleted with everything else on stop."""
        return self.directory / f"{self.name}.log"

    def start(self) -> None:
        """Start the server and return when it is ready.

        Raises SandboxUnavailable where it cannot run, SandboxStartFailed when it does not get ready.
        """
        if self._kept is None:
            self._check()
            self._directory = temporary_directory(self.name)
            self._kept = KeptProcess(remove=[glob.escape(str(self._directory)), *self._leavings()])
            self._prepare(self._directory)
        try:
            self._start_on_a_port(self._kept)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and everything it started, and delete its files; safe to repeat."""
        kept, self._kept, self._directory = self._kept, None, None
        if kept is not None:
            try:
                kept.stop(self._stop_grace)
            except SandboxError:
                pass  # the keeper is gone, and the server with it; its files are not
            finally:
                kept.close()

    def kill(self) -> None:
        """End the server as kill -9 does, its children too; :meth:`restart` brings it back."""
        self._running().stop(0.0)

    def restart(self) -> None:
        """Start the server again with the same port and files, ending the old one where it still runs."""
        self._running().stop(self._stop_grace)
        self._port_is_fixed = True
        self.start()

    def freeze(self) -> None:
        """Stop the server where it stands: its port accepts connections, nothing answers."""
        self._running().signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._running().signal(signal.SIGCONT)

    def is_running(self) -> bool:
        """Whether the server's process is alive (frozen counts)."""
        return self._kept is not None and self._kept.pid is not None and self._kept.poll() is None

    @abstractmethod
    def _check(self) -> None:
        """Raise SandboxUnavailable where this machine cannot run the server."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The command line for the present port."""

    @abstractmethod
    def _environment(self) -> Mapping[str, str]:
        """The whole environment of the server."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server, and no other that has its port, is ready."""

    def _prepare(self, directory: Path) -> None:  # noqa: B027 - not every server needs anything there
        """Write what the server needs into its directory."""

    def _leavings(self) -> Sequence[str]:
        """Patterns of what the server may leave elsewhere."""
        return ()

    def _running(self) -> KeptProcess:
        if self._kept is None:
            raise SandboxStartFailed(f"the embedded {self.name} was not started, or was stopped")
        return self._kept

    def _start_on_a_port(self, kept: KeptProcess) -> None:
        for tries_left in reversed(range(PORT_TRIES)):
            kept.start(self._command(), self._environment(), self.log)
            try:
                return self._wait_until_ready(kept)
            except SandboxStartFailed as failure:
                # Between choosing a free port and binding it, somebody else may have taken it.
                if self._port_is_fixed or not tries_left or "already in use" not in str(failure):
                    raise
            self.port = free_port()
        return None

    def _wait_until_ready(self, kept: KeptProcess) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not self._is_ready():
            returncode = kept.poll()
            if returncode is not None:
                raise SandboxStartFailed(f"{self.name} ended with {returncode}: {log_tail(self.log)}")
            if time.monotonic() > deadline:
                raise SandboxStartFailed(
                    f"{self.name} was not ready after {self._start_timeout:g} s: {log_tail(self.log)}"
                )
            time.sleep(self.ready_poll_seconds)
