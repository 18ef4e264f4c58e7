"""Stock Celery, as sides: its worker on gevent and on prefork (benchmarks/stock_celery.py is what it runs)."""

import base64
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import redis
from celery import Celery

from benchmarks import stock_celery
from benchmarks.copying import MARKER, job_id
from benchmarks.plan import ROOT, Workload
from benchmarks.settling import SETTLEMENTS
from benchmarks.sides import PREFORK, STOCK, Make, QueueSide, job, pusher
from worker.connections import redis_client
from worker.sandbox.embedded_server import EmbeddedServer

_BODY: Final = "@body@"


class StockWorker(EmbeddedServer):
    """Stock Celery's worker; ready when it says so."""

    name = "celery"

    def __init__(self, redis_url: str, triton_url: str, *, pool: str, concurrency: int, multiplier: int) -> None:
        # Its warm shutdown takes seconds, and nobody needs what it leaves.
        super().__init__(port=None, start_timeout_seconds=60.0, stop_grace_seconds=0.0)
        self._client = redis_client(redis_url)
        self._pool = (pool, "-c", str(concurrency))
        self._added = {
            "STOCK_REDIS_URL": redis_url,
            "STOCK_TRITON": triton_url.removeprefix("http://"),
            "STOCK_CONCURRENCY": str(concurrency),
            "STOCK_PREFETCH": str(multiplier),
            "PYTHONPATH": str(ROOT),
        }

    def _check(self) -> None:
        """Nothing to look for: Celery is what ours is built on."""

    def _command(self) -> Sequence[str]:
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        return (sys.executable, "-m", "celery", "-A", "benchmarks.stock_celery", "worker", "-P", *self._pool, *quiet)

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._added}

    def _is_ready(self) -> bool:
        return self.pid is not None and bool(self._client.exists(stock_celery.ready_key(self.pid)))


def stock(
    worker_redis_url: str,
    redis_url: str,
    triton_url: str,
    workload: Workload,
    *,
    name: str,
    pool: str = "gevent",
    multiplier: int,
) -> QueueSide:
    """Return stock Celery's worker, not started."""
    client = redis_client(redis_url)
    return QueueSide(
        name,
        StockWorker(worker_redis_url, triton_url, pool=pool, concurrency=workload.in_flight, multiplier=multiplier),
        client,
        stock_celery.QUEUE,
        SETTLEMENTS,
        pusher(client, stock_celery.QUEUE, _published(redis_url, client, workload)),
        may_leave_jobs=True,
        most_per_second=3_000,
    )


STOCK_SIDES: Final[Mapping[str, Make]] = {
    **{name: partial(stock, name=name, multiplier=multiplier) for multiplier, name in STOCK.items()},
    PREFORK: partial(stock, name=PREFORK, pool="prefork", multiplier=4),
}
"""What makes each of its sides."""


def _published(redis_url: str, client: redis.Redis, workload: Workload) -> Callable[[int], bytes]:
    """Return what makes of a job's number the very message that Celery itself puts in the queue for it."""
    producer = Celery("producer", broker=redis_url, set_as_current=False)
    producer.send_task(stock_celery.TASK, args=[job(MARKER, workload)], queue=stock_celery.QUEUE, task_id=MARKER)
    producer.close()
    raw: Any = client.rpop(stock_celery.QUEUE)
    message = json.loads(raw)
    # In base64 the job's id could not be found.
    body = base64.b64decode(message["body"]).decode()
    message["body"] = _BODY
    message["properties"]["delivery_tag"] = MARKER
    envelope = json.dumps(message)

    def encode(number: int) -> bytes:
        named = job_id(number)
        own_body = base64.b64encode(body.replace(MARKER, named).encode()).decode()
        return envelope.replace(MARKER, named).replace(_BODY, own_body).encode()

    return encode
