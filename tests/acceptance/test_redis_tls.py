"""Redis over TLS, with a user, a password from a file and a client certificate: worker, commands and Celery's own connection."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleet import Fleet
from tests.acceptance.gateway import codes, push_jobs, wait_for_results
from tests.acceptance.pinging import wait_until_pinged
from tests.guarded import Guarded, guarded_valkey, password
from tests.integration.command import objects
from tests.integration.command import run as command
from tests.tls import SYSTEM_SERVER, Certificates, TlsEnd, TlsServer


@dataclass(frozen=True)
class Safe:
    """A Redis that is reached by TLS only, and asks for a user."""

    redis: Guarded
    tls_port: int
    certificates: Certificates

    def configuration(self, directory: Path) -> dict[str, Any]:
        """The fields by which a worker connects to it."""
        secret = directory / "password"
        secret.write_text(f"{password('worker')}\n")
        return {
            "redis_url": f"rediss://speedinfer-worker@127.0.0.1:{self.tls_port}/0",
            "redis_password": f"file:{secret}",
            "redis_tls": self.certificates.of_client(),
        }


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    """One for the module: the system's server, which speaks TLS itself, or else the embedded one behind an end of TLS."""
    directory = tmp_path_factory.mktemp("tls")
    certificates = Certificates(directory)
    with ExitStack() as stack:
        if SYSTEM_SERVER is not None:
            server = TlsServer(certificates)
            guarded = stack.enter_context(guarded_valkey(directory, server, server.unknown_rights()))
            yield Safe(guarded, server.tls_port, certificates)
        else:
            guarded = stack.enter_context(guarded_valkey(directory))
            end = stack.enter_context(TlsEnd(certificates, guarded.server.port))
            yield Safe(guarded, end.tls_port, certificates)


def test_a_worker_and_celery_work_over_tls(safe: Safe, tmp_path: Path, triton_url: str) -> None:
    """Jobs are settled, ``celery inspect`` is answered, and nothing was refused to the worker's user."""
    access = safe.configuration(tmp_path)
    with Fleet(tmp_path, triton_url, access["redis_url"]) as fleet:
        fleet.clients[access["redis_url"]] = safe.redis.admin
        worker = fleet.start(**access)
        push_jobs(safe.redis.client("gateway"), "j-1", "j-2")
        results = wait_for_results(safe.redis.admin, "j-1", "j-2")
        wait_until_pinged(fleet.write(worker.config))
        assert worker.stop() == 0
    assert codes(results.values()) == [None, None]
    assert safe.redis.denied() == []


def test_commands_take_it_from_variables(safe: Safe) -> None:
    """Address, password and certificates; none of it stands in the command's arguments."""
    tls = {f"SPEEDINFER_REDIS_TLS__{name.upper()}": path for name, path in safe.certificates.of_client().items()}
    access = {
        "SPEEDINFER_REDIS_URL": f"rediss://speedinfer-operator@127.0.0.1:{safe.tls_port}/0",
        "PASSWORD": password("operator"),
    }
    (status,) = objects(command("status", "--json", **access, **tls, SPEEDINFER_REDIS_PASSWORD="env:PASSWORD"))
    assert status["settlements"] >= 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"SPEEDINFER_REDIS_TLS__CA_FILE": ""}, "has a certificate that is not trusted"),
        ({"SPEEDINFER_REDIS_TLS__CERT_FILE": "", "SPEEDINFER_REDIS_TLS__KEY_FILE": ""}, "client certificate"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_said(safe: Safe, changed: dict[str, str], words: str) -> None:
    """By the command, with the field that mends it."""
    tls = {f"SPEEDINFER_REDIS_TLS__{name.upper()}": path for name, path in safe.certificates.of_client().items()}
    url = f"rediss://127.0.0.1:{safe.tls_port}/0"
    status = command("status", **{"SPEEDINFER_REDIS_URL": url, **tls, **changed})
    assert status.exit_code == 2, status.output
    assert words in status.stderr
    assert "redis_tls." in status.stderr
