"""Where Triton is, and what every request to it carries."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import gevent.ssl

from settings.schema import Settings

_DEFAULT_PORTS = {"http": 80, "https": 443}


class UnusableCertificates(Exception):
    """A file of ``runtime_tls`` is not what it should be; the words name field and file."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificates of an https endpoint; without ``ca_file`` Triton's is checked by the system's authorities."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return a context whose sockets wait as gevent's do, in a patched process or not.

        Raises:
            UnusableCertificates: a file cannot be read, or holds nothing that TLS can use.
        """
        # Not create_default_context: without monkey patching it makes sockets that block the hub.
        context = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_file is None:
            context.load_default_certs()
        else:
            with _named("ca_file", self.ca_file):
                context.load_verify_locations(cafile=self.ca_file)
        if self.cert_file is not None:
            with _named("cert_file", self.cert_file, self.key_file):
                # Without a password here, OpenSSL would ask for one on the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
        return context


@contextmanager
def _named(field_name: str, *files: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        names = " and ".join(str(file) for file in files if file is not None)
        raise UnusableCertificates(f"runtime_tls.{field_name}: {names}: {error.strerror or 'no PEM of it'}") from error


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Triton, or what stands before it; ``headers`` may hold secrets, so it is not shown."""

    host: str
    port: int
    base_path: str = ""
    tls: Tls | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the endpoint that is configured."""
        url = urlsplit(settings.runtime_endpoint)
        tls = settings.runtime_tls
        return cls(
            host=url.hostname or "",
            port=url.port or _DEFAULT_PORTS[url.scheme],
            base_path=url.path,
            tls=Tls(tls.ca_file, tls.cert_file, tls.key_file, tls.verify) if url.scheme == "https" else None,
            headers=tuple((name, value.get_secret_value()) for name, value in settings.runtime_headers.items()),
        )

    @property
    def host_header(self) -> str:
        """Return the host as HTTP names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"
