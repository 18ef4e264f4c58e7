"""Acceptance tests run the worker as operators do: real processes, a real Valkey, a real Triton, the witness as judge."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.acceptance.fleet import Fleet
from tests.acceptance.gate import Gate
from tests.conftest import MODELS
from tests.witness import WITNESS_VARIABLE, Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer


@pytest.fixture
def fleet(tmp_path: Path, redis_url: str, triton_url: str) -> Iterator[Fleet]:
    """Workers of one test, on the session's Triton and Valkey."""
    with Fleet(tmp_path, triton_url, redis_url) as workers:
        yield workers


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Holds inferences until the test opens it, or has ended; name it after the fleet whose jobs it holds."""
    held = Gate(tmp_path / "gate")
    yield held
    held.open()


@pytest.fixture(scope="module")
def standing_fleet(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, triton_server: TritonServer
) -> Iterator[Fleet]:
    """Workers of a whole module; Valkey is emptied under them between tests, which they have to bear anyhow.

    Nor do they start on what the module before has left: a paused model would never become ready.
    """
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    with Fleet(tmp_path_factory.mktemp("fleet"), triton_server.url, valkey_server.url) as workers:
        yield workers


@pytest.fixture
def own_witness(tmp_path: Path) -> Witness:
    """What the test's own Triton was really asked."""
    return Witness(tmp_path / "requests.jsonl")


@pytest.fixture
def own_triton(own_witness: Witness) -> Iterator[TritonServer]:
    """A Triton of the test's own, to kill, to freeze and to crash models of."""
    with TritonServer(
        MODELS,
        control="explicit",
        models=["text_generation", "faulty"],
        environment={WITNESS_VARIABLE: str(own_witness.path)},
    ) as server:
        yield server


@pytest.fixture
def own_triton_url(own_triton: TritonServer) -> str:
    """The HTTP endpoint of the test's own Triton."""
    return own_triton.url
