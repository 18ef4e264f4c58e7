"""What stands on the other side of the queues: a gateway that pushes, and a consumer of settlements that looks."""

import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from celery import Celery
from kombu import pools

from tasks.job import TASK_NAME
from tasks.result import GenerateResult
from tests.acceptance.fleet import KEYS, Client
from tests.jobs import MODEL, job_content, job_json
from tests.waiting import wait_until

QUEUE: Final = KEYS.jobs(MODEL)


def push(client: Client, *raws: bytes, queue: str = QUEUE) -> None:
    """Push these bytes as a gateway does, the first one first."""
    for raw in raws:
        client.lpush(queue, raw)


def push_jobs(client: Client, *job_ids: str, model: str = MODEL, **fields: Any) -> None:
    """Push a job for each id, the first one first."""
    push(client, *(job_json(job_id=job_id, model=model, **fields) for job_id in job_ids), queue=KEYS.jobs(model))


def send_resp(url: str, *words: bytes) -> bytes:
    """Send one command in Redis' own protocol over a bare socket, as any language can; return the reply's first line."""
    address = urlsplit(url)
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)]
    with socket.create_connection((str(address.hostname), int(address.port or 6379)), timeout=5) as connection:
        connection.sendall(b"".join(parts))
        with connection.makefile("rb") as stream:
            return stream.readline().strip()


@contextmanager
def stock_producer(url: str, **options: Any) -> Iterator[Celery]:
    """A producer as the Celery documentation shows it: nothing but a broker."""
    app = Celery("gateway", broker=url, set_as_current=False)
    app.conf.broker_transport_options = options
    try:
        yield app
    finally:
        app.close()
        pools.reset()


def send_task(producer: Celery, job_id: str, *, priority: int | None = None, **fields: Any) -> None:
    """Send a job as a Celery task."""
    job = job_content(job_id=job_id, **fields)
    producer.send_task(TASK_NAME, args=[job], queue=KEYS.jobs(job["model"]), priority=priority)


def entries(client: Client) -> list[dict[str, str]]:
    """All entries of the settlement queue, oldest first."""
    return [
        {name.decode(): value.decode() for name, value in fields.items()}
        for _, fields in client.xrange(KEYS.settlements)
    ]


def settlements(client: Client) -> dict[str, list[GenerateResult]]:
    """The results in the settlement queue by job_id; more than one for a job is a fault."""
    found: dict[str, list[GenerateResult]] = {}
    for entry in entries(client):
        found.setdefault(entry["job_id"], []).append(GenerateResult.model_validate_json(entry["result"]))
    return found


def wait_for_results(client: Client, *job_ids: str, timeout: float = 30.0) -> dict[str, GenerateResult]:
    """Return the results of these jobs once all are settled; each settled exactly once."""

    def missing() -> list[str]:
        found = settlements(client)
        return [job_id for job_id in job_ids if job_id not in found]

    still: list[str] = list(job_ids)

    def all_there() -> bool:
        still[:] = missing()
        return not still

    try:
        wait_until(all_there, description=f"{len(job_ids)} jobs are settled", timeout=timeout, interval=0.02)
    except AssertionError as failure:
        raise AssertionError(f"{failure}; not settled: {still[:20]}") from None
    found = settlements(client)
    twice = {job_id: results for job_id, results in found.items() if len(results) != 1}
    assert not twice, f"settled more than once: {sorted(twice)}"
    return {job_id: found[job_id][0] for job_id in job_ids}


def result_of(client: Client, job_id: str, *, timeout: float = 30.0) -> GenerateResult:
    """Return a job's result once it is settled."""
    return wait_for_results(client, job_id, timeout=timeout)[job_id]


def codes(results: Iterable[GenerateResult]) -> list[str | None]:
    """The code of each result, None for a success."""
    return [result.error.code.value if result.error else None for result in results]


def dead_letters(client: Client) -> list[dict[str, bytes]]:
    """All dead letters, oldest first."""
    return [{name.decode(): value for name, value in fields.items()} for _, fields in client.xrange(KEYS.dead_letters)]


def queued(client: Client, model: str = MODEL) -> list[str]:
    """The job_ids in a model's queue, next in line first."""
    raws: list[bytes] = client.lrange(KEYS.jobs(model), 0, -1)
    return [json.loads(raw)["job_id"] for raw in reversed(raws)]
