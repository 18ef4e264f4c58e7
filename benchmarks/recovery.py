"""``python -m benchmarks.recovery``: kills one of two busy workers over and over, and shows how soon its jobs run again.

All times are Redis': the kill is timed by it just before, and each result says when its attempts began.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Annotated, Any, Final

import redis
import typer

from benchmarks.stage import triton_with, valkey
from benchmarks.waiting import Stuck, wait_until
from tasks import rfc3339
from tasks.result import Attempt, AttemptCode, GenerateResult
from worker.connections import redis_client
from worker.fleet import redis_time_ms
from worker.keys import Keys
from worker.sandbox.worker_process import WorkerProcess

KEYS: Final = Keys("speedinfer")
MODEL: Final = "text_generation"
WORKERS: Final = ("first", "second")
DETECTION_SECONDS: Final = 1.5
"""What is allowed on top of the lease."""

_RUNS_SECONDS: Final = 1.2
_BIN_SECONDS: Final = 0.1
_WIDTH: Final = 50


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of the jobs of one kill; seconds from the kill to the first and the last job that ran again."""

    first_seconds: float
    last_seconds: float
    jobs: int
    lost: int


@dataclass(frozen=True, slots=True)
class Recoveries:
    """All kills of a run; ``settlements`` are those in the stream by job_id."""

    kills: tuple[Recovered, ...]
    lease_seconds: float
    settlements: Counter[str]

    @property
    def bound_seconds(self) -> float:
        """Return how soon the first job has to run again."""
        return self.lease_seconds + DETECTION_SECONDS

    @property
    def firsts(self) -> list[float]:
        """Return the seconds from each kill to the first re-run, shortest first."""
        return sorted(kill.first_seconds for kill in self.kills)

    @property
    def p99_seconds(self) -> float:
        """Return what 99 in 100 kills stay below."""
        return quantiles(self.firsts, n=100, method="inclusive")[98] if len(self.firsts) > 1 else self.firsts[0]

    @property
    def all_once(self) -> bool:
        """Tell whether every job was settled, and none twice."""
        return len(self.settlements) == sum(kill.jobs for kill in self.kills) == self.settlements.total()

    def lines(self) -> Iterator[str]:
        """Yield the report: a histogram of the first re-runs, and what it says."""
        bins = Counter(int(seconds / _BIN_SECONDS) for seconds in self.firsts)
        longest = max(bins.values())
        for number in range(min(bins), max(bins) + 1):
            bar = "#" * round(_WIDTH * bins[number] / longest)
            low = number * _BIN_SECONDS
            yield f"{low:6.1f} - {low + _BIN_SECONDS:4.1f} s {bins[number]:5}  {bar}"
        lost = sum(kill.lost for kill in self.kills)
        yield ""
        yield f"kills {len(self.kills)}, lease {self.lease_seconds:g} s, jobs {sum(kill.jobs for kill in self.kills)}"
        yield f"jobs in the hands of a killed worker {lost}, run again by the other"
        yield f"settled once: {'all' if self.all_once else 'NOT ALL'}"
        yield (
            f"kill to first re-run: p50 {median(self.firsts):.2f} s, p99 {self.p99_seconds:.2f} s, "
            f"bound {self.bound_seconds:g} s"
        )
        yield f"kill to last re-run: at most {max(kill.last_seconds for kill in self.kills):.2f} s"


def main(
    *,
    kills: Annotated[int, typer.Option(min=1, help="How often a worker is killed.")] = 50,
    lease: Annotated[float, typer.Option(min=0.5, help="lease_seconds of the workers.")] = 3.0,
    jobs: Annotated[int, typer.Option(min=2, help="Jobs in flight at each kill, half of them in either worker.")] = 20,
    seed: Annotated[int, typer.Option(help="When within a renewal each kill comes.")] = 7,
) -> None:
    """Kill one of two busy workers over and over; exit 1 if the p99 is over the bound or a job was not settled once."""
    found = measure(kills, lease, jobs, random.Random(seed), lambda words: typer.echo(words, err=True))
    for line in found.lines():
        typer.echo(line)
    if found.p99_seconds > found.bound_seconds or not found.all_once:
        raise typer.Exit(1)


def measure(kills: int, lease: float, jobs: int, draw: random.Random, say: Callable[[str], None]) -> Recoveries:
    """Return what became of all kills."""
    with ExitStack() as stack:
        triton = stack.enter_context(triton_with([MODEL]))
        server = stack.enter_context(valkey("everysec"))
        client = redis_client(server.url)
        stack.callback(client.close)
        workers = [_worker(name, server.url, triton.url, lease, jobs) for name in WORKERS]
        for worker in workers:
            stack.enter_context(worker)
        found = []
        for kill in range(kills):
            victim = workers[kill % len(workers)]
            found.append(_killed(client, victim, [f"kill-{kill}-{n}" for n in range(jobs)], draw))
            say(f"kill {kill + 1}: {found[-1].lost} jobs, the first again after {found[-1].first_seconds:.2f} s")
            victim.start()
        entries: Any = client.xrange(KEYS.settlements)
        settled = Counter(fields[b"job_id"].decode() for _, fields in entries)
    return Recoveries(tuple(found), lease, settled)


def _killed(client: redis.Redis, victim: WorkerProcess, names: Sequence[str], draw: random.Random) -> Recovered:
    """Kill a worker that has half of these jobs; return once all are settled."""
    for name in names:
        client.lpush(KEYS.jobs(MODEL), _job(name))
    wait_until(lambda: client.hlen(KEYS.running) == len(names), "all jobs are claimed")
    time.sleep(draw.uniform(0.0, 0.5))  # Renewals come every half second: a kill may fall anywhere between.
    killed_ms = redis_time_ms(client)
    victim.kill()
    wait_until(lambda: all(client.mget(map(KEYS.result, names))), "all jobs are settled")
    results = [GenerateResult.model_validate_json(result) for result in client.mget(map(KEYS.result, names)) if result]
    again = [result.attempts[-1] for result in results if result.attempts[0].code is AttemptCode.WORKER_LOST]
    if not again:
        raise Stuck("the killed worker had no job: it was too slow, or this machine is")
    seconds = sorted((_began_ms(attempt) - killed_ms) / 1000 for attempt in again)
    return Recovered(seconds[0], seconds[-1], len(names), len(again))


def _began_ms(attempt: Attempt) -> int:
    return rfc3339.to_ms(rfc3339.parse(attempt.started_at))


def _worker(name: str, redis_url: str, triton_url: str, lease: float, jobs: int) -> WorkerProcess:
    return WorkerProcess(
        {
            "worker_id": name,
            "runtime_endpoint": triton_url,
            "redis_url": redis_url,
            "supported_models": [MODEL],
            "concurrency": jobs // len(WORKERS),
            "lease_seconds": lease,
            "heartbeat_seconds": 0.5,
            # What a killed worker had started keeps its slots until its timeout; here they are in nobody's way.
            "gpu_pool": {"max_concurrency": 4096},
            "runtime_config": {"model_name": MODEL},
        }
    )


def _job(name: str) -> str:
    return json.dumps({"job_id": name, "model": MODEL, "prompt": f"sleep={_RUNS_SECONDS} work", "max_tokens": 8})


if __name__ == "__main__":
    typer.run(main)
