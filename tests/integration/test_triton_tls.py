"""Triton over https: whom we trust, and how we show who we are."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tasks.errors import JobError, RuntimeTimeout, RuntimeUnavailable
from tests.inferences import HASTY, PATIENT, failure_of, infer, inference_on, of_two_minds, settings_for
from tests.misbehaving_server import MisbehavingServer
from worker.triton.adapter import TritonInference
from worker.triton.endpoint import Endpoint, Tls, UnusableCertificates
from worker.triton.failures import ExchangeFailed, Loss, reason_of
from worker.triton.http import HttpClients, Limits, Request


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """A private certificate authority."""
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> dict[str, Any]:
    """The authority's certificate, and a client's with its key, as ``runtime_tls`` names them."""
    client = authority.issue_cert("speedinfer-worker")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca_file", "cert_file", "key_file")}
    authority.cert_pem.write_to_path(paths["ca_file"])
    client.cert_chain_pems[0].write_to_path(paths["cert_file"])
    client.private_key_pem.write_to_path(paths["key_file"])
    return {name: str(path) for name, path in paths.items()}


def context_for(
    authority: trustme.CA, *, asks_for_a_certificate: bool = False, name: str = "localhost"
) -> ssl.SSLContext:
    """The server's side."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    if asks_for_a_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[MisbehavingServer]:
    """A server with a certificate of the private authority."""
    with MisbehavingServer(tls=context_for(authority)) as running:
        yield running


def test_a_private_authority_is_trusted_where_configured(server: MisbehavingServer, files: dict[str, Any]) -> None:
    """Many jobs run over one connection."""
    with inference_on(server.url, runtime_tls={"ca_file": files["ca_file"]}) as adapter:
        for _ in range(3):
            assert infer(adapter).text == "hi"
        assert server.connections == 2


def test_it_is_not_trusted_otherwise(server: MisbehavingServer) -> None:
    """Nothing is sent to a server that cannot be checked."""
    with inference_on(server.url) as adapter:
        assert reason_of(failure_of(adapter, RuntimeUnavailable)).startswith("certificate not trusted: ")
    assert server.received == []


def test_a_certificate_of_another_name_is_not_trusted(authority: trustme.CA, files: dict[str, Any]) -> None:
    """The host name is checked too."""
    with MisbehavingServer(tls=context_for(authority, name="elsewhere.example")) as server:
        with inference_on(server.url, runtime_tls={"ca_file": files["ca_file"]}) as adapter:
            assert "Hostname mismatch" in reason_of(failure_of(adapter, RuntimeUnavailable))
        assert server.received == []


def test_checking_can_be_turned_off(server: MisbehavingServer) -> None:
    """As an operator's own decision."""
    with inference_on(server.url, runtime_tls={"verify": False}) as adapter:
        assert infer(adapter).text == "hi"


def test_a_client_certificate_is_shown(authority: trustme.CA, files: dict[str, Any]) -> None:
    """To a server that lets in no one without."""
    context = context_for(authority, asks_for_a_certificate=True)
    with MisbehavingServer(tls=context) as server, inference_on(server.url, runtime_tls=files) as adapter:
        assert infer(adapter).text == "hi"


def test_without_one_nothing_was_sent(authority: trustme.CA, files: dict[str, Any]) -> None:
    """The server's refusal comes when we already believe to be connected, and is still no inference that may have run."""
    tls = Tls(ca_file=Path(files["ca_file"]))
    with MisbehavingServer(tls=context_for(authority, asks_for_a_certificate=True)) as server:
        clients = HttpClients(Endpoint("localhost", server.port, tls=tls), concurrency=1)
        with pytest.raises(ExchangeFailed) as caught:
            clients.exchange(Request("/v2/models/text_generation/infer", b"x"), Limits(5.0, 5.0, 1000))
        clients.close()
        assert server.received == []
    assert caught.value.loss is Loss.NEVER_SENT


def test_the_deadline_holds_over_tls(authority: trustme.CA, files: dict[str, Any]) -> None:
    """Its sockets wait as gevent's do, also in a process that nothing has patched."""
    with (
        MisbehavingServer(tls=context_for(authority)) as server,
        inference_on(server.url, runtime_tls={"ca_file": files["ca_file"]}, **of_two_minds(0.5)) as adapter,
    ):
        infer(adapter, model=PATIENT)
        adapter.check(HASTY)
        server.behaviour = lambda peer, _: peer.wait()
        failure_of(adapter, RuntimeTimeout, model=HASTY)


def test_https_to_a_server_without_is_unavailable(files: dict[str, Any]) -> None:
    """And so is the other way round; both within the deadline."""
    with MisbehavingServer() as plain:
        url = plain.url.replace("http:", "https:")
        with inference_on(url, runtime_tls={"ca_file": files["ca_file"]}, connect_timeout_seconds=0.3) as adapter:
            failure_of(adapter, RuntimeUnavailable)


def test_http_to_a_server_with_tls_is_an_error(server: MisbehavingServer) -> None:
    """The check before the first job does not pass, so no job is sent."""
    with inference_on(server.url.replace("https:", "http:")) as adapter, pytest.raises(JobError) as caught:
        infer(adapter)
    assert type(caught.value) is RuntimeUnavailable


@pytest.mark.parametrize("field", ["ca_file", "cert_file"])
def test_a_file_that_is_no_certificate_is_named(files: dict[str, Any], tmp_path: Path, field: str) -> None:
    """At the start, with field and file, before anything is connected."""
    for path in (tmp_path / "absent.pem", tmp_path / "empty.pem"):
        if path.name == "empty.pem":
            path.write_text("")
        settings = settings_for("https://localhost:1", runtime_tls={**files, field: str(path)})
        with pytest.raises(UnusableCertificates, match=rf"runtime_tls\.{field}: {path}"):
            TritonInference.of(settings)


def test_an_encrypted_key_asks_nobody_for_its_password(files: dict[str, Any], tmp_path: Path) -> None:
    """A worker has no terminal: it is refused as a file that cannot be used."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(files["key_file"]).read_bytes(), None)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(UnusableCertificates):
        Tls(cert_file=Path(files["cert_file"]), key_file=encrypted).context()
