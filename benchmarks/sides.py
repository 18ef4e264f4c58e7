"""The sides of the comparison: ours, a direct loop, and stock Celery; each a real process under the same load."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Self

import redis
from celery import Celery

from benchmarks import stock_celery
from benchmarks.figures import Window
from benchmarks.gauges import ProcessUse
from benchmarks.plan import ROOT, Workload
from worker.connections import redis_client
from worker.keys import Keys
from worker.sandbox.embedded_server import EmbeddedServer
from worker.sandbox.worker_process import WorkerProcess

OURS: Final = "speedinfer"
DIRECT: Final = "direct"
STOCK: Final = {1: "celery x1", 4: "celery x4"}
"""Stock Celery by its prefetch multiplier."""

WORKER_ID: Final = "bench"
_MARKER: Final = "@job_id@"
_BODY: Final = "@body@"


@dataclass(frozen=True, slots=True)
class QueueSide:
    """A worker that takes jobs from a queue in Redis; ``encode`` makes of a job_id what stands in the queue.

    One that ``may_leave_jobs`` does not end the run by jobs it took and does not settle: they are counted.
    """

    name: str
    process: EmbeddedServer
    client: redis.Redis
    queue: str
    settlements: str
    encode: Callable[[str], bytes]
    may_leave_jobs: bool
    most_per_second: int
    """More jobs than it does in a second of any workload."""


class StockWorker(EmbeddedServer):
    """Stock Celery's worker on gevent; ready when it says so."""

    name = "celery"

    def __init__(self, redis_url: str, triton: str, *, concurrency: int, multiplier: int) -> None:
        # Its warm shutdown takes seconds, and nobody needs what it leaves.
        super().__init__(port=None, start_timeout_seconds=60.0, stop_grace_seconds=0.0)
        self._client = redis_client(redis_url)
        self._concurrency = concurrency
        self._added = {
            "STOCK_REDIS_URL": redis_url,
            "STOCK_TRITON": triton,
            "STOCK_CONCURRENCY": str(concurrency),
            "STOCK_PREFETCH": str(multiplier),
            "PYTHONPATH": str(ROOT),
        }

    def _check(self) -> None:
        """Nothing to look for: Celery is what ours is built on."""

    def _command(self) -> Sequence[str]:
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        pool = ("-P", "gevent", "-c", str(self._concurrency))
        return (sys.executable, "-m", "celery", "-A", "benchmarks.stock_celery", "worker", *pool, *quiet)

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._added}

    def _is_ready(self) -> bool:
        return self.pid is not None and bool(self._client.exists(stock_celery.ready_key(self.pid)))


class DirectLoop(AbstractContextManager["DirectLoop"]):
    """The direct loop's process."""

    def __init__(self, triton: str, model: str, *, concurrency: int, prompt_bytes: int) -> None:
        """Keep what it is to ask; nothing is started yet."""
        arguments = (triton, model, str(concurrency), str(prompt_bytes))
        self._command = (sys.executable, "-m", "benchmarks.direct_loop", *arguments)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def once_ms(self) -> float:
        """Return the milliseconds of one inference alone."""
        return float(self._ask(do="once")["milliseconds"])

    def window(self, warm_seconds: float, seconds: float) -> Window:
        """Ask for ``seconds`` with all its greenlets, after ``warm_seconds`` of the same."""
        answer = self._ask(do="run", warm=warm_seconds, seconds=seconds)
        pid = self._process.pid if self._process else 0
        return Window(int(answer["jobs"]), answer["seconds"], answer["cpu_seconds"], ProcessUse.of(pid).rss_bytes)

    def _ask(self, **command: object) -> dict[str, float]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise DirectLoopEnded("the direct loop was not started")
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise DirectLoopEnded("the direct loop ended; its own words are above")
        answer: dict[str, float] = json.loads(line)
        return answer


class DirectLoopEnded(Exception):
    """The direct loop's process gives no answer."""


def ours(redis_url: str, triton_url: str, workload: Workload, *, models: int = 1) -> QueueSide:
    """Return our worker, not started; with more than one model, the others have the same Triton model behind them."""
    keys = Keys("speedinfer")
    names = [workload.model, *(f"{workload.model}-{n}" for n in range(2, models + 1))]
    configuration = {
        "worker_id": WORKER_ID,
        "runtime_endpoint": triton_url,
        "redis_url": redis_url,
        "supported_models": names,
        "gpu_pool": {"max_concurrency": workload.in_flight},
        "runtime_config": {
            "model_name": workload.model,
            "input_name": "text_input",
            "max_tokens_input_name": "max_tokens",
            "output_name": "text_output",
            "prompt_tokens_output_name": "prompt_tokens",
            "completion_tokens_output_name": "completion_tokens",
        },
    }
    template = json.dumps(job(_MARKER, workload))
    return QueueSide(
        OURS,
        WorkerProcess(configuration),
        redis_client(redis_url),
        keys.jobs(workload.model),
        keys.settlements,
        lambda job_id: template.replace(_MARKER, job_id).encode(),
        may_leave_jobs=False,
        most_per_second=9_000,
    )


def stock(redis_url: str, triton_url: str, workload: Workload, *, multiplier: int) -> QueueSide:
    """Return stock Celery's worker, not started."""
    client = redis_client(redis_url)
    return QueueSide(
        STOCK[multiplier],
        StockWorker(
            redis_url, triton_url.removeprefix("http://"), concurrency=workload.in_flight, multiplier=multiplier
        ),
        client,
        stock_celery.QUEUE,
        stock_celery.SETTLEMENTS,
        _published(redis_url, client, workload),
        may_leave_jobs=True,
        most_per_second=2_500,
    )


def job(job_id: str, workload: Workload) -> dict[str, Any]:
    """Return a job of the workload."""
    return {
        "job_id": job_id,
        "model": workload.model,
        "prompt": ("x" * 7 + " ") * (workload.prompt_bytes // 8),
        "max_tokens": 32,
    }


def _published(redis_url: str, client: redis.Redis, workload: Workload) -> Callable[[str], bytes]:
    """Return what makes of a job_id the very message that Celery itself puts in the queue for it."""
    producer = Celery("producer", broker=redis_url, set_as_current=False)
    producer.send_task(stock_celery.TASK, args=[job(_MARKER, workload)], queue=stock_celery.QUEUE, task_id=_MARKER)
    producer.close()
    raw: Any = client.rpop(stock_celery.QUEUE)
    message = json.loads(raw)
    body = base64.b64decode(message["body"]).decode()
    message["body"] = _BODY
    message["properties"]["delivery_tag"] = _MARKER
    envelope = json.dumps(message)

    def encode(job_id: str) -> bytes:
        own_body = base64.b64encode(body.replace(_MARKER, job_id).encode()).decode()
        return envelope.replace(_MARKER, job_id).replace(_BODY, own_body).encode()

    return encode
