"""``python -m benchmarks.pool``: which part of the ideal rate several workers of one pool get out of its slots, requests and tokens.

One table a limit. Ideal is what the limit allows: slots by the inferences' own length, a whole minute's requests at the start of
each minute, tokens as they refill. All times are Redis'.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Final

import redis
import typer

from benchmarks.stage import triton_with, valkey
from benchmarks.waiting import wait_until
from tasks import rfc3339
from tasks.result import GenerateResult
from worker.connections import redis_client
from worker.fleet import redis_time_ms
from worker.keys import Keys
from worker.ledger_terms import PoolTerms
from worker.pool import Pool
from worker.redis_link import RedisLink
from worker.sandbox.worker_process import WorkerProcess

KEYS: Final = Keys("speedinfer")
MODEL: Final = "text_generation"
GPU: Final = "gpu"
MINUTE_MS: Final = 60_000

SLOTS: Final = 3
JOB_SECONDS: Final = (0.05, 0.2, 0.5)
REQUESTS: Final = 600
TOKENS_PER_SECOND: Final = 4_000
RESERVED: Final = 500
SPENT: Final = (RESERVED // 2, RESERVED, RESERVED * 2)

_CHUNK: Final = 500
_PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one limit, beside the ideal in the same unit."""

    what: str
    measured: float
    ideal: float
    unit: str

    @property
    def line(self) -> str:
        """Return it for people."""
        return f"{self.what:<44}{self.measured:>10.1f}{self.ideal:>10.1f} {self.unit:<10}{self.measured / self.ideal:>8.1%}"


def main(
    *,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the pool.")] = 8,
    seconds: Annotated[float, typer.Option(min=1, help="Length of each measurement of slots and tokens.")] = 20.0,
    minutes: Annotated[int, typer.Option(min=1, help="Minutes of requests.")] = 2,
) -> None:
    """Show what part of their limits several workers use."""
    typer.echo(f"{workers} workers of one pool")
    typer.echo(f"{'':<44}{'measured':>10}{'ideal':>10}")
    with ExitStack() as stack:
        triton = stack.enter_context(triton_with([MODEL]))
        server = stack.enter_context(valkey("everysec"))
        client = redis_client(server.url)
        stack.callback(client.close)
        for n in range(workers):
            stack.enter_context(_worker(f"worker-{n}", server.url, triton.url))
        bench = _Bench(client, server.url)
        for length in JOB_SECONDS:
            typer.echo(bench.slots(length, seconds).line)
        for spent in SPENT:
            typer.echo(bench.tokens(spent, seconds).line)
        for row in bench.requests(minutes):
            typer.echo(row.line)


@dataclass(slots=True)
class _Bench:
    client: redis.Redis
    url: str
    pushed: int = 0

    def slots(self, length: float, seconds: float) -> Row:
        """Return the rate at which jobs of a length run in the slots."""
        self._limit(max_concurrency=SLOTS)
        ideal = SLOTS / length
        results = self._run(round(ideal * seconds), f"sleep={length} work")
        took = (max(map(_ended_ms, results)) - min(map(_began_ms, results))) / 1000
        return Row(f"{SLOTS} slots, jobs of {length * 1000:g} ms", len(results) / took, ideal, "jobs/s")

    def tokens(self, spent: int, seconds: float) -> Row:
        """Return the rate at which tokens are used by jobs that use so many, whatever they reserve."""
        self._limit(tokens_per_minute=TOKENS_PER_SECOND * 60)
        now_ms = redis_time_ms(self.client)
        self.client.hset(KEYS.pool(GPU), mapping={"tokens_level": 0, "tokens_at_ms": now_ms})
        results = self._run(round(TOKENS_PER_SECOND * seconds / spent), f"sleep=0.2 spends={spent}")
        last_ms = max(map(_began_ms, results))
        used = sum(_tokens(result) for result in results if _began_ms(result) < last_ms)
        what = f"{TOKENS_PER_SECOND} tokens/s, {RESERVED} reserved, {spent} used"
        return Row(what, used / (last_ms - now_ms) * 1000, TOKENS_PER_SECOND, "tokens/s")

    def requests(self, minutes: int) -> Iterator[Row]:
        """Yield how many requests were granted in so many minutes, and the most in any 60 seconds of them."""
        self._limit(requests_per_minute=REQUESTS)
        self._push(REQUESTS * (minutes + 1), "work")
        seen = dict[bytes, float]()

        def is_over() -> bool:
            grants: Any = self.client.zrange(KEYS.pool_grants(GPU), 0, -1, withscores=True)
            seen.update(grants)
            return max(seen.values(), default=0) - min(seen.values(), default=0) >= minutes * MINUTE_MS

        wait_until(is_over, "the minutes are over", seconds=minutes * 60 + _PATIENCE_SECONDS, every=_LOOK_SECONDS)
        begin = min(seen.values())
        granted = sum(at_ms < begin + minutes * MINUTE_MS for at_ms in seen.values())
        yield Row(f"{REQUESTS} requests a minute", granted, minutes * REQUESTS, f"in {minutes} min")
        yield Row("the most of them in any 60 s", most_in_a_minute(sorted(seen.values())), REQUESTS, "")

    def _limit(self, **limits: Any) -> None:
        """Begin anew under these limits, as a worker does that starts now."""
        wait_until(
            lambda: not self.client.exists(KEYS.claimants),
            "all is settled",
            seconds=_PATIENCE_SECONDS,
            every=_LOOK_SECONDS,
        )
        keys = [KEYS.settlements, *map(bytes.decode, self.client.scan_iter(f"{KEYS.pool(GPU)}*", count=1000))]
        self.client.delete(*keys)
        Pool(RedisLink(self.url), KEYS, PoolTerms(GPU, **{"max_concurrency": 1000, **limits}), "newest").enter()

    def _push(self, jobs: int, prompt: str) -> None:
        names = [f"j-{self.pushed + n}" for n in range(jobs)]
        self.pushed += jobs
        for n in range(0, jobs, _CHUNK):
            self.client.lpush(KEYS.jobs(MODEL), *(_job(name, prompt) for name in names[n : n + _CHUNK]))

    def _run(self, jobs: int, prompt: str) -> Sequence[GenerateResult]:
        self._push(jobs, prompt)
        wait_until(
            lambda: self.client.xlen(KEYS.settlements) >= jobs,
            "all jobs are settled",
            seconds=10 * _PATIENCE_SECONDS,
            every=_LOOK_SECONDS,
        )
        entries: Any = self.client.xrange(KEYS.settlements)
        return [GenerateResult.model_validate_json(fields[b"result"]) for _, fields in entries]


def _began_ms(result: GenerateResult) -> int:
    return rfc3339.to_ms(rfc3339.parse(result.attempts[-1].started_at))


def _ended_ms(result: GenerateResult) -> int:
    return _began_ms(result) + (result.timings.inference_ms or 0)


def _tokens(result: GenerateResult) -> int:
    return result.usage.total_tokens if result.usage else 0


def most_in_a_minute(times: Sequence[float]) -> int:
    """Return how many of these ms, in their order, lie within one minute at the most; two a whole minute apart do not."""
    most = first = 0
    for last, at_ms in enumerate(times):
        while at_ms - times[first] >= MINUTE_MS:
            first += 1
        most = max(most, last - first + 1)
    return most


def _worker(name: str, redis_url: str, triton_url: str) -> WorkerProcess:
    return WorkerProcess(
        {
            "worker_id": name,
            "runtime_endpoint": triton_url,
            "redis_url": redis_url,
            "supported_models": [MODEL],
            "concurrency": 16,
            "gpu_pool": {"name": GPU},
            "drain_seconds": 2,
            "runtime_config": {"model_name": MODEL},
        }
    )


def _job(name: str, prompt: str) -> str:
    return json.dumps({"job_id": name, "model": MODEL, "prompt": prompt, "max_tokens": RESERVED})


if __name__ == "__main__":
    typer.run(main)
