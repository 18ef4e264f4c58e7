"""Redis is away in every way it can be: inferences under way are settled when it is back, once, and nobody is declared dead."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import redis

from tests.acceptance.delivery import (
    LEASE,
    attempt_codes,
    begun_at,
    declared_dead,
    nothing_is_left,
    settled_at,
    wait_until_busy,
)
from tests.acceptance.fleet import Fleet, WorkerProcess, run
from tests.acceptance.gateway import push_jobs, wait_for_results
from tests.acceptance.proxy import Proxy
from tests.integration.unhappy_servers import full, replica, unable_to_save
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

RESUMES_WITHIN_SECONDS: Final = 3.0
FILLING: Final = 9000
LONGEST_LOAD_SECONDS: Final = 400.0
"""How long a load would take that is not hurried: it is certainly seen, and lasts as long as the test wants."""


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """A Valkey of this module's own, which loses nothing that it confirmed."""
    with ValkeyServer(append_only=True, fsync="always", settings={"enable-debug-command": "local"}) as server:
        yield server


@pytest.fixture(scope="module")
def workers(
    tmp_path_factory: pytest.TempPathFactory, server: ValkeyServer, triton_server: TritonServer
) -> Iterator[list[WorkerProcess]]:
    """Two workers with two slots each, which have to outlive all outages."""
    with Fleet(tmp_path_factory.mktemp("fleet"), triton_server.url, server.url) as fleet:
        yield [fleet.start(worker_id=name, concurrency=2, lease_seconds=LEASE) for name in ("first", "second")]


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[redis.Redis]:
    """A client of that Valkey."""
    with redis.Redis.from_url(server.url, socket_timeout=60) as connected:
        yield connected


def _restart(client: redis.Redis, server: ValkeyServer, seconds: float) -> None:
    client.shutdown()
    time.sleep(seconds)  # Here and below: the outage itself, which nothing but time ends.
    server.restart()


def _kill(_: redis.Redis, server: ValkeyServer, seconds: float) -> None:
    server.kill()
    time.sleep(seconds)
    server.restart()


def _freeze(_: redis.Redis, server: ValkeyServer, seconds: float) -> None:
    server.freeze()
    time.sleep(seconds)
    server.thaw()


def _again_and_again(disturb: Callable[[], object], seconds: float, pause: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        disturb()
        time.sleep(pause)


def _kill_clients(client: redis.Redis, _: ValkeyServer, seconds: float) -> None:
    def disturb() -> None:
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)

    _again_and_again(disturb, seconds, 0.02)


def _flush_scripts(client: redis.Redis, _: ValkeyServer, seconds: float) -> None:
    # So often that a script is forgotten between its loading and its use.
    _again_and_again(lambda: client.script_flush("SYNC"), seconds, 0.0)


def _load(client: redis.Redis, server: ValkeyServer, seconds: float) -> None:
    client.config_set("loading-process-events-interval-bytes", 1024)
    with client.pipeline(transaction=False) as together:
        for n in range(FILLING):
            together.set(f"filling:{n}", "x" * 200, ex=3600)
        together.execute()
    client.config_set("key-load-delay", round(LONGEST_LOAD_SECONDS * 1e6 / FILLING))

    def reload() -> None:
        with redis.Redis.from_url(server.url, socket_timeout=600) as other:
            other.execute_command("DEBUG", "RELOAD")

    thread = threading.Thread(target=reload)
    thread.start()
    wait_until(lambda: _refuses(client, "LOADING"), description="the server is loading", interval=0.001)
    time.sleep(seconds)
    client.config_set("key-load-delay", 0)
    thread.join()


def _replica(client: redis.Redis, server: ValkeyServer, seconds: float) -> None:
    with replica(client, server):
        assert _refuses(client, "READONLY")
        time.sleep(seconds)


def _full(client: redis.Redis, server: ValkeyServer, seconds: float) -> None:
    with full(client, server):
        assert _refuses(client, "OUTOFMEMORY")
        time.sleep(seconds)


def _unable_to_save(client: redis.Redis, server: ValkeyServer, seconds: float) -> None:
    (server.directory / "dump.rdb").unlink(missing_ok=True)  # Of a reload before.
    with unable_to_save(client, server):
        wait_until(lambda: _refuses(client, "MISCONF"), description="saving has failed")
        time.sleep(seconds)


def _refuses(client: redis.Redis, word: str) -> bool:
    try:
        client.set("filling:0", "x", ex=60)
    except redis.RedisError as error:
        return word in f"{type(error).__name__} {error}".upper()
    return False


Outage = Callable[[redis.Redis, ValkeyServer, float], None]
OUTAGES: Final[dict[str, Outage]] = {
    "restart": _restart,
    "kill -9": _kill,
    "frozen": _freeze,
    "CLIENT KILL": _kill_clients,
    "SCRIPT FLUSH": _flush_scripts,
    "LOADING": _load,
    "READONLY": _replica,
    "OOM": _full,
    "MISCONF": _unable_to_save,
}
LONG: Final = [("30 s", 30.0), ("5 min", 300.0)]
LASTING: Final = [
    *(pytest.param(outage, 1.0, id=f"{name}, 1 s") for name, outage in OUTAGES.items()),
    pytest.param(_kill, 10.0, id="kill -9, 10 s"),
    *(
        pytest.param(outage, seconds, id=f"{name}, {words}", marks=pytest.mark.long)
        for words, seconds in LONG
        for name, outage in OUTAGES.items()
    ),
]


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("outage", "seconds"), LASTING)
def test_what_ran_is_settled_once_and_consuming_goes_on(
    server: ValkeyServer,
    client: redis.Redis,
    workers: list[WorkerProcess],
    witness: Witness,
    outage: Outage,
    seconds: float,
) -> None:
    """Each job is run once, by the process that had it; a job pushed at Redis' return is settled within three seconds."""
    assert _is_borne(lambda: outage(client, server, seconds), client, workers, witness)


@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(1.0, id="cut connections, 1 s"),
        *(pytest.param(seconds, id=f"cut connections, {words}", marks=pytest.mark.long) for words, seconds in LONG),
    ],
)
def test_a_redis_that_lives_and_that_no_worker_reaches_is_waited_for(
    tmp_path: Path, durable_valkey: ValkeyServer, triton_server: TritonServer, witness: Witness, seconds: float
) -> None:
    """The same holds where all workers are hung up on and refused, and Redis itself goes on, for whoever pushes."""
    with (
        redis.Redis.from_url(durable_valkey.url, socket_timeout=60) as client,
        Proxy(durable_valkey.url) as way,
        Fleet(tmp_path, triton_server.url, way.url) as fleet,
    ):
        fleet.clients[way.url] = client  # What looks at the workers is not cut off with them.
        workers = [fleet.start(worker_id=name, concurrency=2, lease_seconds=LEASE) for name in ("first", "second")]

        def outage() -> None:
            way.refuse()
            way.cut()
            time.sleep(seconds)
            for worker in workers:
                worker.wait_for_event("redis.became_unavailable")
            way.accept()

        assert _is_borne(outage, client, workers, witness)


def _is_borne(outage: Callable[[], None], client: redis.Redis, workers: list[WorkerProcess], witness: Witness) -> bool:
    running = [f"running-{time.monotonic_ns()}-{n}" for n in range(4)]
    waiting = [name.replace("running", "waiting") for name in running]
    after = running[0].replace("running", "after")
    push_jobs(client, *running, prompt="sleep=0.4 running")
    push_jobs(client, *waiting, prompt="sleep=0.1 waiting")
    wait_until_busy(witness, 4)

    outage()
    push_jobs(client, after, prompt="after")
    back = time.time()
    results = wait_for_results(client, after, *running, *waiting)

    # By the times that Redis and the workers have noted: Triton and this test may be late as well.
    settled = settled_at(client)
    assert max(settled[name] for name in running) - back < RESUMES_WITHIN_SECONDS
    assert begun_at(results[after]) - back < RESUMES_WITHIN_SECONDS
    assert {name: attempt_codes(result) for name, result in results.items()} == {name: [None] for name in results}
    assert witness.count() == len(results)
    assert declared_dead(workers) == []
    for worker in workers:
        assert not worker.events("lease.was_lost", "worker.lost_a_part")
        assert worker.wait_until_state("ready")
    return nothing_is_left(client)


def test_a_worker_that_cannot_consume_is_reported_by_the_health_check(
    server: ValkeyServer, client: redis.Redis, workers: list[WorkerProcess]
) -> None:
    """`status`, alone and with `--this-worker`, fails while Redis takes no writes (1) or is not there (3), and is content afterwards."""
    worker = workers[0]
    config = worker.log.with_suffix(".json")

    def status() -> int:
        return run("speedinfer", "status", "--this-worker", "--config", str(config)).code

    wait_until(lambda: status() == 0, description="the health check passes")
    client.config_set("maxmemory", 1)
    wait_until(lambda: status() == 1, description="the health check fails")
    shown = run("speedinfer", "status", "--redis-url", server.url)
    assert (shown.code, "lost" in shown.out, "takes no writes" in shown.out) == (1, True, True)
    client.config_set("maxmemory", 0)
    wait_until(lambda: status() == 0, description="the health check passes")
    assert run("speedinfer", "status", "--redis-url", server.url).code == 0

    server.kill()
    assert status() == 3
    server.restart()
    wait_until(lambda: status() == 0, description="the health check passes")
