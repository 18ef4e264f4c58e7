"""A primary dies under a running worker: the Sentinel promotes its replica, and worker, gateway and Celery find it by themselves."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.acceptance.fleet import KEYS, Fleet
from tests.acceptance.gateway import codes, push_jobs, wait_for_results
from tests.acceptance.pinging import wait_until_pinged
from tests.guarded import ADMIN, guards, password
from tests.integration.command import objects
from tests.integration.command import run as command
from tests.sentinels import SERVICE, Watched, watched_service
from tests.waiting import wait_until
from worker.connections import redis_client


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Watched]:
    """Two servers with the users of their roles: replication and Sentinel have one each."""
    follows = {"masteruser": "speedinfer-replica", "masterauth": password("replica"), "repl-diskless-sync-delay": "0"}
    asks = [
        f"sentinel auth-user {SERVICE} speedinfer-sentinel",
        f"sentinel auth-pass {SERVICE} {password('sentinel')}",
    ]
    with watched_service(guards(tmp_path) | follows, asks) as watched:
        yield watched


def test_jobs_go_on_after_the_primary_died(service: Watched, tmp_path: Path, triton_url: str) -> None:
    """What was queued, what ran and what is sent later is settled once each, and remote control answers again."""
    job_ids = [f"j-{n}" for n in range(20)]
    url = f"redis+sentinel://speedinfer-worker@{service.places}"
    client: Any = redis_client(f"redis+sentinel://:{ADMIN}@{service.places}")
    primary = redis.Redis.from_url(service.primary.url, password=ADMIN)
    with Fleet(tmp_path, triton_url, url) as fleet:
        fleet.clients[url] = client
        worker = fleet.start(redis_password=password("worker"))
        push_jobs(client, *job_ids, prompt="sleep=0.3 through a failover")
        wait_until(lambda: client.xlen(KEYS.settlements) >= 4, description="some jobs are settled")
        # What a replica lacks is lost with the primary, so nothing is written between the look at it and the end.
        worker.signal(signal.SIGSTOP)
        service.wait_until_in_step(primary)
        service.primary.kill()
        worker.signal(signal.SIGCONT)
        service.wait_until_replica_leads(client)
        push_jobs(client, "later")

        results = wait_for_results(client, *job_ids, "later")
        as_operator = {"redis_url": url.replace("worker", "operator"), "redis_password": password("operator")}
        asked = fleet.write(fleet.configuration(**as_operator))
        wait_until_pinged(asked)
        (status,) = objects(command("status", "--json", "--config", str(asked)))
        assert worker.stop() == 0
    primary.close()

    assert codes(results.values()) == [None] * 21
    assert [each["worker_id"] for each in status["workers"]] == ["triton-01"]


def test_no_primary_is_said_and_waited_for(service: Watched) -> None:
    """A command ends with 3, and says whom it asked for."""
    url = f"redis+sentinel://{service.places.replace(SERVICE, 'another')}"
    status = command("status", "--redis-url", url)
    assert status.exit_code == 3, status.output
    assert f"Redis at {url} has no primary that a Sentinel knows" in status.stderr
