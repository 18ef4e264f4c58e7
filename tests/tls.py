"""Redis over TLS: an end of it before any server, and a server that speaks it itself."""

import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import trustme

from worker.sandbox.places import LOOPBACK, free_port
from worker.sandbox.valkey_server import ValkeyServer

SYSTEM_SERVER: Final = shutil.which("redis-server")
"""A server that is built with TLS, as Debian's is; the embedded one is not. None where there is none."""

UNKNOWN_RIGHTS: Final = ("+client|setinfo",)
"""What Redis 7.2 brought, in words of ``users.acl``."""

_CHUNK: Final = 1 << 16


class Certificates:
    """Those of a private authority, as files: its own, a server's for 127.0.0.1 and a client's."""

    def __init__(self, directory: Path) -> None:
        self._authority = trustme.CA()
        self.ca_file = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca_file)
        self.server_cert, self.server_key = self._issued(directory, LOOPBACK)
        self.cert_file, self.key_file = self._issued(directory, "speedinfer-worker")

    def _issued(self, directory: Path, name: str) -> tuple[Path, Path]:
        files = directory / f"{name}.pem", directory / f"{name}.key"
        issued = self._authority.issue_cert(name)
        issued.cert_chain_pems[0].write_to_path(files[0])
        issued.private_key_pem.write_to_path(files[1])
        return files

    def of_client(self) -> dict[str, str]:
        """What ``redis_tls`` holds for a client that shows who it is."""
        return {"ca_file": str(self.ca_file), "cert_file": str(self.cert_file), "key_file": str(self.key_file)}


class TlsServer(ValkeyServer):
    """The system's server with a TLS port that asks for a client's certificate, beside the plain one of the tests."""

    name = "redis"

    def __init__(self, certificates: Certificates, **settings: str) -> None:
        self.tls_port = free_port()
        tls = {
            "tls-port": str(self.tls_port),
            "tls-cert-file": str(certificates.server_cert),
            "tls-key-file": str(certificates.server_key),
            "tls-ca-cert-file": str(certificates.ca_file),
            "tls-auth-clients": "yes",
        }
        super().__init__(settings={**settings, **tls})

    @staticmethod
    def unknown_rights() -> Sequence[str]:
        """What it is too old to know of ``users.acl``."""
        said = subprocess.run([str(SYSTEM_SERVER), "--version"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"v=(\d+)\.(\d+)", said)
        assert version, said
        return UNKNOWN_RIGHTS if (int(version[1]), int(version[2])) < (7, 2) else ()

    def _command(self) -> Sequence[str]:
        return (str(SYSTEM_SERVER), *super()._command()[1:])


class TlsEnd:
    """A context manager: a port that speaks TLS, asks for a client's certificate, and passes on to a plain server."""

    def __init__(self, certificates: Certificates, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.server_cert, certificates.server_key)
        self._context.load_verify_locations(certificates.ca_file)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._target = (LOOPBACK, port)
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def tls_port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]  # any function of this class
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                raw, _ = self._listener.accept()
                self._start(self._join, raw)

    def _join(self, raw: socket.socket) -> None:
        self._ends.append(raw)
        with suppress(OSError):  # Refused certificates, and ends that close.
            client = self._context.wrap_socket(raw, server_side=True)
            server = socket.create_connection(self._target)
            self._ends += (client, server)
            self._start(self._pump, server, client)
            self._pump(client, server)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
