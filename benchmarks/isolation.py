"""``python -m benchmarks.isolation``: how long jobs of a quick model take alone, and beside a slow model's backlog of 10,000 jobs.

One worker serves both models on one Triton, in turns: in one window the slow model is paused, in the next it takes all that it may
have. From the push to the settlement, by Redis' clock.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from statistics import median, quantiles
from typing import Annotated, Any, Final

import redis
import typer

from benchmarks.stage import triton_with, valkey
from benchmarks.waiting import Stuck, wait_until
from worker.connections import redis_client
from worker.keys import Keys
from worker.sandbox.worker_process import WorkerProcess

KEYS: Final = Keys("speedinfer")
QUICK: Final = "text_generation"
SLOW: Final = "half_second"
BACKLOG: Final = 10_000

_CLOSE_ENOUGH_RATIO: Final = 1.1
_CLOSE_ENOUGH_MS: Final = 5.0
_WARM_JOBS: Final = 20
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """Milliseconds of each quick job, alone and beside the slow model; ``slow_running`` is how many slow ones ran meanwhile."""

    at_once: int
    alone: Sequence[float]
    beside: Sequence[float]
    slow_running: int

    @property
    def is_kept(self) -> bool:
        """Tell whether the 95th percentile is within a tenth, or five milliseconds, of what it is alone."""
        alone, beside = _p95(self.alone), _p95(self.beside)
        return beside <= alone * _CLOSE_ENOUGH_RATIO or beside <= alone + _CLOSE_ENOUGH_MS

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield f"{self.at_once} quick job(s) at a time, {self.slow_running} slow ones beside them"
        for name, times in (("alone", self.alone), ("beside", self.beside)):
            yield f"  {name:<7} p50 {median(times):6.1f} ms   p95 {_p95(times):6.1f} ms   ({len(times)} jobs)"
        alone, beside = _p95(self.alone), _p95(self.beside)
        yield f"  p95 beside / alone {beside / alone:.2f}, {beside - alone:+.1f} ms: {'kept' if self.is_kept else 'NOT KEPT'}"


def main(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Windows of each kind, in turns.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a window.")] = 4.0,
    slots: Annotated[int, typer.Option(min=2, help="max_concurrency of the pool.")] = 32,
    most: Annotated[
        int, typer.Option(min=1, help="Quick jobs at a time, with as many slots kept; measured after one.")
    ] = 4,
) -> None:
    """Show what a slow model's backlog does to a quick one in the same worker; exit 1 if its 95th percentile suffers."""
    found = [measure(at_once, slots, rounds, seconds) for at_once in sorted({1, most})]
    for one in found:
        for line in one.lines():
            typer.echo(line)
    if not all(one.is_kept for one in found):
        raise typer.Exit(1)


def measure(at_once: int, slots: int, rounds: int, seconds: float) -> Isolation:
    """Return what quick jobs took, so many at a time."""
    with ExitStack() as stack:
        triton = stack.enter_context(triton_with([QUICK, SLOW]))
        server = stack.enter_context(valkey("everysec"))
        client = redis_client(server.url, socket_timeout=_PATIENCE_SECONDS)
        stack.callback(client.close)
        stack.enter_context(_worker(server.url, triton.url, slots, at_once))
        stream = _Stream(client)
        stream.run(at_once, jobs=_WARM_JOBS)
        client.lpush(KEYS.jobs(SLOW), *(_job(f"slow-{n}", SLOW) for n in range(BACKLOG)))
        alone, beside, running = list[float](), list[float](), 0
        for _ in range(rounds):
            client.sadd(KEYS.paused, SLOW)
            wait_until(lambda: client.hlen(KEYS.running) == 0, "no slow job runs", seconds=_PATIENCE_SECONDS)
            alone += stream.run(at_once, seconds=seconds)
            client.srem(KEYS.paused, SLOW)
            wait_until(
                lambda: client.hlen(KEYS.running) >= slots - at_once,
                "slow jobs take all that they may have",
                seconds=_PATIENCE_SECONDS,
            )
            running = client.hlen(KEYS.running)
            beside += stream.run(at_once, seconds=seconds)
        client.delete(KEYS.jobs(SLOW))  # What is left is nobody's concern, and need not be drained.
    return Isolation(at_once, alone, beside, running)


@dataclass(slots=True)
class _Stream:
    """Keeps quick jobs under way, and takes their times."""

    client: redis.Redis
    last: str = "$"
    numbers: Iterator[int] | None = None

    def run(self, at_once: int, *, seconds: float = _PATIENCE_SECONDS, jobs: int | None = None) -> list[float]:
        """Return the milliseconds of each quick job: as many as are done in these seconds, or so many."""
        self.last = self._end()
        pushed = dict[str, float]()
        for _ in range(at_once):
            self._push(pushed)
        times, ends = list[float](), time.monotonic() + seconds
        while pushed:
            for entry_id, job_id in self._settled():
                if job_id in pushed:
                    times.append(int(entry_id.partition("-")[0]) - pushed.pop(job_id))
                    if time.monotonic() < ends and (jobs is None or len(times) < jobs):
                        self._push(pushed)
        return times

    def _push(self, pushed: dict[str, float]) -> None:
        self.numbers = self.numbers or count()
        name = f"quick-{next(self.numbers)}"
        pipe = self.client.pipeline(transaction=True)
        pipe.time()
        pipe.lpush(KEYS.jobs(QUICK), _job(name, QUICK))
        (at_seconds, at_micros), _ = pipe.execute()
        # Entries of the stream are named by whole milliseconds.
        pushed[name] = at_seconds * 1000 + at_micros // 1000

    def _end(self) -> str:
        entries: Any = self.client.xrevrange(KEYS.settlements, count=1)
        return str(entries[0][0].decode()) if entries else "0"

    def _settled(self) -> Iterator[tuple[str, str]]:
        reply: Any = self.client.xread({KEYS.settlements: self.last}, block=round(_PATIENCE_SECONDS * 500))
        if not reply:
            raise Stuck("nothing was settled for a while")
        ((_, entries),) = reply
        for entry_id, fields in entries:
            self.last = entry_id.decode()
            yield self.last, fields[b"job_id"].decode()


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]


def _worker(redis_url: str, triton_url: str, slots: int, kept: int) -> WorkerProcess:
    return WorkerProcess(
        {
            "worker_id": "only",
            "runtime_endpoint": triton_url,
            "redis_url": redis_url,
            "supported_models": [QUICK, SLOW],
            "gpu_pool": {"max_concurrency": slots, "kept_slots": {QUICK: kept}},
            "drain_seconds": 2,
            "runtime_config": {"model_name": QUICK},
            "models": {SLOW: {"model_name": SLOW}},
        }
    )


def _job(name: str, model: str) -> str:
    return json.dumps({"job_id": name, "model": model, "prompt": "Hello", "max_tokens": 32})


if __name__ == "__main__":
    typer.run(main)
