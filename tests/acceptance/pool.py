"""Several workers of one GPU pool, whose limits a test changes as a newer start does; and what the pool has granted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess
from tests.waiting import wait_until
from tests.witness import Served
from worker.fleet import redis_time_ms
from worker.ledger_terms import PoolTerms
from worker.pool import Pool
from worker.redis_link import RedisLink

GPU: Final = "gpu"
"""The name of the pool."""

LEASE: Final = 0.8
TIMEOUT: Final = 2.5
"""Of the inferences: so long after it was granted, and a lease, a slot that nobody gives back lapses."""

MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class Crew:
    """Workers of the pool ``gpu``; ``in_force`` is the section of their configuration that a test has put in force."""

    fleet: Fleet
    workers: list[WorkerProcess]
    in_force: Mapping[str, Any] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        """A client of their Redis."""
        return self.workers[0].client

    @property
    def lapse_seconds(self) -> float:
        """How long after it was granted a slot lapses that nobody gives back."""
        config = self.workers[0].config
        return float(config["lease_seconds"] + config["runtime_config"]["timeout_seconds"])

    def limits(
        self, max_concurrency: int = 1000, *, requests: int | None = None, tokens: int | None = None, **kept: int
    ) -> None:
        """Put limits in force, as a worker does that starts now; ``kept`` is by what follows ``acme/``.

        Returns when every worker works under them: a test begins with an empty Redis, and with workers that start.
        """
        kept_slots = {f"acme/{name}": slots for name, slots in kept.items()}
        terms = PoolTerms(GPU, max_concurrency, requests, tokens, kept_slots)
        wait_until(self.all_hold_leases, description="every worker holds its lease", timeout=60)
        for worker in self.workers:
            worker.wait_until_state("ready", timeout=60)
        Pool(RedisLink(str(self.workers[0].config["redis_url"])), KEYS, terms, "newest").enter()
        limits = {"max_concurrency": max_concurrency, "requests_per_minute": requests, "tokens_per_minute": tokens}
        self.in_force = {"name": GPU, **limits, "kept_slots": kept_slots}

    def all_hold_leases(self) -> bool:
        """Tell whether every worker holds its lease."""
        return {worker.worker_id for worker in self.workers} <= {
            name.decode() for name in self.client.hkeys(KEYS.leases)
        }

    def replace(self, number: int) -> WorkerProcess:
        """Start a worker in the place of one that has ended, under its name and the limits in force; it is not waited for."""
        config = {**self.workers[number].config, "gpu_pool": self.in_force}
        self.workers[number] = self.fleet.start(config=config, until=())
        return self.workers[number]

    def held(self) -> list[str]:
        """Return the workers that hold a claim, once for each."""
        return [worker.worker_id for worker in self.workers for _ in worker.claims()]


def crew(fleet: Fleet, size: int, **config: Any) -> Crew:
    """Start so many workers of the pool together; each could fill it alone."""
    common: dict[str, Any] = {
        "concurrency": 4,
        "lease_seconds": LEASE,
        "heartbeat_seconds": 0.5,
        "gpu_pool": {"name": GPU},
        "runtime_config": {"model_name": "text_generation", "timeout_seconds": TIMEOUT},
    }
    workers = [fleet.start(worker_id=f"worker-{n}", until=(), **{**common, **config}) for n in range(size)]
    for worker in workers:
        worker.wait_until_state("ready", timeout=60)
    return Crew(fleet, workers)


def names(count: int) -> list[str]:
    """Return so many job_ids."""
    return [f"j-{n}" for n in range(count)]


def slots(client: Client) -> list[str]:
    """Return the slots that are taken now, by the claims that took them."""
    members = client.zrangebyscore(KEYS.pool_slots(GPU), f"({redis_time_ms(client)}", "+inf")
    return [member.decode() for member in members]


def grants(client: Client) -> dict[str, float]:
    """Return the requests that were granted in the last minute, by the claims that took them, with Redis' unix ms."""
    found = client.zrangebyscore(
        KEYS.pool_grants(GPU), f"({redis_time_ms(client) - MINUTE_MS}", "+inf", withscores=True
    )
    return {member.decode(): at_ms for member, at_ms in found}


def wait_until_slots(client: Client, count: int, *, timeout: float = 30.0) -> None:
    """Return when so many slots are taken."""
    wait_until(lambda: len(slots(client)) == count, description=f"{count} slots are taken", timeout=timeout)


def empty_the_bucket(client: Client) -> int:
    """Let no tokens be there; returns when, in Redis' unix ms."""
    now_ms = redis_time_ms(client)
    client.hset(KEYS.pool(GPU), mapping={"tokens_level": 0, "tokens_at_ms": now_ms})
    return now_ms


def commands(client: Client, name: str) -> int:
    """Return how often Redis has done a command, in scripts too."""
    return int(client.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0))


def claim_calls(client: Client) -> int:
    """Return how often workers have asked for jobs: each call asks once which of the models are paused."""
    return commands(client, "smismember")


def most_in_a_window(times: Iterable[float], seconds: float) -> int:
    """Return the largest number of these moments that lie within so many seconds of each other."""
    ordered, most, first = sorted(times), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def at_its_best(served: Sequence[Served], rate: Callable[[Sequence[Served]], float], jobs: int) -> float:
    """Return the best rate of so many in a row, in the order in which they began: a machine that stands still is not the workers' doing."""
    ordered = sorted(served, key=lambda one: one.started_at)
    return max(rate(ordered[n : n + jobs]) for n in range(len(ordered) - jobs + 1))


def seconds_of(served: Sequence[Served]) -> float:
    """Return the time from the first request to the last answer."""
    return max(one.finished_at or 0.0 for one in served) - min(one.started_at for one in served)
