"""``python -m benchmarks.adaptive``: workers of one pool before a Triton with a small queue, with adaptive concurrency and without.

The model runs four inferences at once, a tenth of a second each, and lets eight more wait (benchmarks/models/four_at_once): 40 a
second is what it can do. The pool may run far more, as where nobody knows what the model takes.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Annotated, Any, Final

import redis
import typer

from benchmarks.stage import triton_with, valkey
from tasks.result import GenerateResult
from worker.connections import redis_client
from worker.keys import Keys
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.worker_process import WorkerProcess

KEYS: Final = Keys("speedinfer")
MODEL: Final = "four_at_once"
POOL: Final = "gpu"
BEST_PER_SECOND: Final = 40.0

_QUEUED: Final = 2000
_CHUNK: Final = 200


@dataclass(frozen=True, slots=True)
class Round:
    """What one side did: jobs settled in so many seconds, jobs that met a full queue, and the inferences' milliseconds."""

    adaptive: bool
    seconds: float
    jobs: int
    turned_away: int
    before: int
    level: int | None
    inference_ms: Sequence[int]

    @property
    def jobs_per_second(self) -> float:
        """Return the throughput."""
        return self.jobs / self.seconds


def main(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="How long each side is measured.")] = 20.0,
    warm: Annotated[float, typer.Option(min=0, help="How long each side runs before that.")] = 10.0,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the pool.")] = 2,
    most: Annotated[int, typer.Option(min=1, help="max_concurrency of the pool.")] = 64,
) -> None:
    """Show what adaptive concurrency does for throughput and full queues; exit 1 if it does not make either better."""
    with triton_with([MODEL]) as triton:
        rounds = [_round(triton, workers, most, warm, seconds, adaptive=adaptive) for adaptive in (False, True)]
    for line in lines(rounds):
        typer.echo(line)
    without, with_it = rounds
    if with_it.jobs_per_second < without.jobs_per_second or with_it.turned_away > without.turned_away:
        raise typer.Exit(1)


def lines(rounds: Sequence[Round]) -> Iterator[str]:
    """Yield the report."""
    yield f"{'adaptive':<10}{'jobs/s':>8}{'of 40':>8}{'full-queue answers':>21}{'while warming':>15}{'p50 ms':>8}{'p95 ms':>8}{'level':>7}"
    for each in rounds:
        ms = each.inference_ms or [0]
        p95 = quantiles(ms, n=20, method="inclusive")[-1] if len(ms) > 1 else ms[0]
        yield (
            f"{'on' if each.adaptive else 'off':<10}{each.jobs_per_second:>8.1f}{each.jobs_per_second / BEST_PER_SECOND:>8.0%}"
            f"{each.turned_away:>21}{each.before:>15}{median(ms):>8.0f}{p95:>8.0f}{each.level or '-':>7}"
        )


def _round(triton: TritonServer, workers: int, most: int, warm: float, seconds: float, *, adaptive: bool) -> Round:
    with ExitStack() as stack:
        server = stack.enter_context(valkey("everysec"))
        client = redis_client(server.url)
        stack.callback(client.close)
        names = [f"worker-{n}" for n in range(workers)]
        for name in names:
            stack.enter_context(_worker(name, server.url, triton.url, most, adaptive=adaptive))
        before_warm = _turned_away(client, names)
        queue = _Queue(client)
        queue.keep_filled(warm)
        begun, before, away = time.monotonic(), client.xlen(KEYS.settlements), _turned_away(client, names)
        queue.keep_filled(seconds)
        passed, jobs = time.monotonic() - begun, client.xlen(KEYS.settlements) - before
        turned_away = _turned_away(client, names) - away
        entries: Any = client.xrevrange(KEYS.settlements, count=max(1, jobs))
        results = [GenerateResult.model_validate_json(fields[b"result"]) for _, fields in entries]
        level: Any = client.hget(KEYS.pool(POOL), "level")
        client.delete(KEYS.jobs(MODEL))  # What is left is nobody's concern, and need not be drained.
    inference_ms = [result.timings.inference_ms or 0 for result in results]
    return Round(adaptive, passed, jobs, turned_away, away - before_warm, int(level) if level else None, inference_ms)


@dataclass(slots=True)
class _Queue:
    client: redis.Redis
    pushed: int = 0

    def keep_filled(self, seconds: float) -> None:
        """Let so many seconds pass in which jobs are always there."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            while self.client.llen(KEYS.jobs(MODEL)) < _QUEUED:
                self.client.lpush(KEYS.jobs(MODEL), *(_job(f"j-{self.pushed + n}") for n in range(_CHUNK)))
                self.pushed += _CHUNK
            time.sleep(min(0.2, left))


def _turned_away(client: redis.Redis, names: Sequence[str]) -> int:
    """Return how many jobs have gone back uncharged since the start: nothing but full queues makes them, here."""
    totals: list[Any] = [client.hget(KEYS.worker(name), "returned_total") for name in names]
    return sum(int(total or 0) for total in totals)


def _worker(name: str, redis_url: str, triton_url: str, most: int, *, adaptive: bool) -> WorkerProcess:
    return WorkerProcess(
        {
            "worker_id": name,
            "runtime_endpoint": triton_url,
            "redis_url": redis_url,
            "supported_models": [MODEL],
            "gpu_pool": {"name": POOL, "max_concurrency": most, "adaptive": adaptive},
            "heartbeat_seconds": 0.2,
            "drain_seconds": 2,
            "runtime_config": {"model_name": MODEL},
        }
    )


def _job(name: str) -> str:
    return json.dumps({"job_id": name, "model": MODEL, "prompt": "Hello", "max_tokens": 32})


if __name__ == "__main__":
    typer.run(main)
