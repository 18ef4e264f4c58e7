"""The real servers that tests run against, and the promise every test has to keep in Redis."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import settings

from tests.clean import leftovers
from tests.waiting import wait_until
from tests.witness import WITNESS_VARIABLE, Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

MODELS = Path(__file__).parent / "models"


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of these fixtures, and give examples the time that a busy machine takes for them."""
    settings.register_profile("patient", settings(), deadline=None)
    settings.load_profile("patient")
    # Thousands of small tests make garbage that is not worth looking for: a sixth of the unit tests' time.
    gc.set_threshold(100_000, 50, 50)
    # A shell starts what runs in its background with SIGINT ignored, and every process that a test starts would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers",
        "leaves(*patterns): this test rightly leaves these keys in Redis without a TTL, such as 'claims:*' "
        "(after the namespace) or '/_kombu.binding.*' (the whole key)",
    )


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """The session's Valkey; not to be killed or frozen, since every test shares it (see ``durable_valkey``)."""
    # DEBUG lets a test look at what only a server's own command shows.
    with ValkeyServer(settings={"enable-debug-command": "local"}) as server:
        yield server


@pytest.fixture
def valkey(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client of the session's Valkey, which is empty at the start of the test."""
    refuse_in_unit_tests(request)
    server: ValkeyServer = request.getfixturevalue("valkey_server")
    client = redis.Redis.from_url(server.url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def redis_url(valkey: redis.Redis, valkey_server: ValkeyServer) -> str:  # noqa: ARG001 - asked for so that it is empty
    """The address of the session's Valkey."""
    return valkey_server.url


@pytest.fixture
def durable_valkey(request: pytest.FixtureRequest) -> Iterator[ValkeyServer]:
    """A Valkey of the test's own, to kill, freeze and restart: it loses nothing that it confirmed."""
    refuse_in_unit_tests(request)
    with ValkeyServer(append_only=True, fsync="always", settings={"enable-debug-command": "local"}) as server:
        yield server


@pytest.fixture(scope="session")
def witness_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models write down what reached them."""
    return tmp_path_factory.mktemp("witness") / "requests.jsonl"


@pytest.fixture(scope="session")
def triton_server(witness_file: Path) -> Iterator[TritonServer]:
    """The session's Triton with every model of ``tests/models`` loaded."""
    with TritonServer(
        MODELS, control="explicit", models=["*"], metrics=True, environment={WITNESS_VARIABLE: str(witness_file)}
    ) as server:
        yield server


@pytest.fixture
def triton(request: pytest.FixtureRequest) -> Iterator[TritonServer]:
    """The session's Triton, alive; a test may load and unload models, but has to leave them loaded."""
    refuse_in_unit_tests(request)
    server: TritonServer = request.getfixturevalue("triton_server")
    yield server
    if not server.is_running():
        server.restart()
        pytest.fail("the test ended the Triton that every test shares; it needs one of its own")


@pytest.fixture
def triton_url(triton: TritonServer) -> str:
    """The HTTP endpoint of the session's Triton."""
    return triton.url


@pytest.fixture
def witness(triton: TritonServer, witness_file: Path) -> Witness:  # noqa: ARG001 - the one who writes
    """What the session's Triton was really asked since the start of the test."""
    seen = Witness(witness_file)
    seen.clear()
    return seen


@pytest.fixture(autouse=True)
def assert_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that uses the session's Valkey: no claim is left, and no key that nothing will ever remove.

    Workers that outlive the test may be about to settle what they have just answered; what was left behind stays.
    """
    if "valkey" not in request.fixturenames:
        yield
        return
    client: redis.Redis = request.getfixturevalue("valkey")
    yield
    marker = request.node.get_closest_marker("leaves")
    allowed = () if marker is None else marker.args
    try:
        wait_until(lambda: not leftovers(client, allowed), description="all is ended", timeout=5)
    except AssertionError:
        left = leftovers(client, allowed)
        pytest.fail(f"the test left keys in Redis that nothing will ever remove: {left}")


def refuse_in_unit_tests(request: pytest.FixtureRequest) -> None:
    """Fail a unit test that wants a server: unit tests are those that need none."""
    if "unit" in Path(request.node.path).relative_to(MODELS.parent).parts:
        pytest.fail("a unit test must not start a server; put it under tests/integration")
