"""Redis is away for a while: what Triton has done meanwhile is settled afterwards, once, and nothing is run again."""

import time
from collections.abc import Callable, Iterator

import pytest
import redis

from tests.acceptance.delivery import begun_at, settled_at, wait_until_busy
from tests.acceptance.fleet import Client, Fleet, WorkerProcess
from tests.acceptance.gateway import codes, push_jobs, result_of, wait_for_results
from tests.acceptance.pool import claim_calls
from tests.clean import leftovers
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

RUNNING = [f"running-{n}" for n in range(4)]
WAITING = [f"waiting-{n}" for n in range(4)]
BACK_WITHIN_SECONDS = 3.0
"""As docs/troubleshooting.md has it; by what Redis and the worker have noted, since this test may be late as well."""


@pytest.fixture
def client(durable_valkey: ValkeyServer) -> Iterator[Client]:
    """A client of the test's own Valkey; nothing without an end may be left there."""
    with redis.Redis.from_url(durable_valkey.url, socket_timeout=10) as connected:
        yield connected
        assert leftovers(connected) == []


@pytest.fixture
def worker(
    tmp_path_factory: pytest.TempPathFactory,
    client: Client,  # noqa: ARG001 - it looks at what is left when the worker has ended
    durable_valkey: ValkeyServer,
    triton: TritonServer,
) -> Iterator[WorkerProcess]:
    """A worker of that Valkey with four slots."""
    with Fleet(tmp_path_factory.mktemp("fleet"), triton.url, durable_valkey.url) as fleet:
        yield fleet.start()


@pytest.fixture
def busy(client: Client, worker: WorkerProcess, witness: Witness) -> WorkerProcess:
    """The worker with four jobs running, and as many waiting behind them."""
    push_jobs(client, *RUNNING, prompt="sleep=0.7 running")
    push_jobs(client, *WAITING, prompt="waiting")
    wait_until_busy(witness, len(RUNNING))
    return worker


def all_is_done_once(client: Client, worker: WorkerProcess, witness: Witness) -> bool:
    """Whether each job was run once and settled once, by the same process, without a retry."""
    results = wait_for_results(client, *RUNNING, *WAITING)
    assert codes(results.values()) == [None] * len(results)
    assert {len(result.attempts) for result in results.values()} == {1}
    assert witness.count() == len(results)
    assert worker.process.poll() is None
    assert worker.claims() == {}
    return True


def consumes_soon(client: Client) -> bool:
    """Whether a job pushed now is begun soon."""
    push_jobs(client, "afterwards")
    pushed = time.time()
    result = result_of(client, "afterwards")
    assert codes([result]) == [None]
    return begun_at(result) - pushed < BACK_WITHIN_SECONDS


def test_results_of_running_inferences_are_settled_after_a_restart_of_redis(
    durable_valkey: ValkeyServer, client: Client, busy: WorkerProcess, witness: Witness
) -> None:
    """Redis is killed while inferences run and comes back after they have ended: their results were kept in hand."""
    durable_valkey.kill()
    wait_until(
        lambda: all(served.finished_at for served in witness.served()), description="Triton has answered all of them"
    )
    busy.wait_for_event("redis.became_unavailable")
    durable_valkey.restart()

    back = time.time()
    wait_for_results(client, *RUNNING)
    settled = settled_at(client)
    assert max(settled[name] for name in RUNNING) - back < BACK_WITHIN_SECONDS
    assert all_is_done_once(client, busy, witness)
    assert consumes_soon(client)
    assert busy.wait_until_state("ready")["pid"] == str(busy.pid)


def _cut(client: Client) -> None:
    client.client_kill_filter(_type="normal", skipme=True)
    client.client_kill_filter(_type="pubsub", skipme=True)


def _cut_calls(client: Client) -> None:
    client.client_kill_filter(_type="normal", skipme=True)


def _forget_scripts(client: Client) -> None:
    client.script_flush()


@pytest.mark.parametrize(
    "disturb", [_cut, _cut_calls, _forget_scripts], ids=["CLIENT KILL", "CLIENT KILL TYPE normal", "SCRIPT FLUSH"]
)
def test_neither_lost_connections_nor_lost_scripts_change_anything(
    client: Client, busy: WorkerProcess, witness: Witness, disturb: Callable[[Client], None]
) -> None:
    """Disturbed again and again while jobs run: each is run once and settled once, and consuming goes on."""
    while witness.count() < len(RUNNING) + len(WAITING):
        disturb(client)
        time.sleep(0.02)  # As often as this; the loop waits for the witness.
    disturb(client)

    assert all_is_done_once(client, busy, witness)
    # Right after a sweep, so that the next one is too late to find by chance what the worker was not told of.
    asked = claim_calls(client)
    wait_until(lambda: claim_calls(client) > asked, description="the worker has swept its queues")
    disturb(client)
    time.sleep(1.0)  # The worker rests by now, and is told of the next push only if it has noticed.
    assert consumes_soon(client)
    assert not busy.events("worker.lost_a_part")


def test_a_frozen_redis_is_waited_for(
    durable_valkey: ValkeyServer, client: Client, busy: WorkerProcess, witness: Witness
) -> None:
    """Redis answers nothing for three seconds, with all connections open: the same holds."""
    durable_valkey.freeze()
    frozen = time.monotonic()
    wait_until(lambda: time.monotonic() - frozen > 3, description="three seconds have passed", interval=0.1)
    durable_valkey.thaw()

    assert all_is_done_once(client, busy, witness)
    assert consumes_soon(client)


def test_a_redis_that_is_full_is_waited_for(client: Client, busy: WorkerProcess, witness: Witness) -> None:
    """A server that refuses writes for want of memory gets the settlements when it takes writes again."""
    client.config_set("maxmemory", 1)
    wait_until(
        lambda: all(served.finished_at for served in witness.served()), description="Triton has answered all of them"
    )
    busy.wait_for_event("redis.became_unavailable")
    client.config_set("maxmemory", 0)

    assert all_is_done_once(client, busy, witness)
    assert consumes_soon(client)


def test_remote_control_and_the_doorbell_come_back_after_a_restart(
    durable_valkey: ValkeyServer, client: Client, worker: WorkerProcess
) -> None:
    """After an outage a push is again noticed at once, not at the next sweep, time after time."""
    for _ in range(2):
        durable_valkey.restart()
        wait_until(lambda: worker.health().get("state") == "ready", description="the worker is back")
        worker.wait_for_beats(2)
    took = []
    for n in range(5):
        pushed = time.monotonic()
        push_jobs(client, f"quick-{n}")
        result_of(client, f"quick-{n}")
        took.append(time.monotonic() - pushed)

    assert sorted(took)[2] < 0.5
