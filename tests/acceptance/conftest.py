"""Acceptance tests run the worker as operators do: real processes, a real Valkey, a real Triton, the witness as judge."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.fleet import Fleet
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer


@pytest.fixture
def fleet(tmp_path: Path, redis_url: str, triton_url: str) -> Iterator[Fleet]:
    """Workers of one test, on the session's Triton and Valkey."""
    with Fleet(tmp_path, triton_url, redis_url) as workers:
        yield workers


@pytest.fixture(scope="module")
def standing_fleet(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, triton_server: TritonServer
) -> Iterator[Fleet]:
    """Workers of a whole module; Valkey is emptied under them between tests, which they have to bear anyhow."""
    with Fleet(tmp_path_factory.mktemp("fleet"), triton_server.url, valkey_server.url) as workers:
        yield workers
