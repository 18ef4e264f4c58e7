"""Other queues, as sides: each with its own command in an environment of its own (benchmarks/rivals is what they run)."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import redis

from benchmarks.copying import MARKER, Copied
from benchmarks.environments import NotInstalled, environment
from benchmarks.plan import ROOT, Workload
from benchmarks.settling import SETTLEMENTS
from benchmarks.sides import Make, QueueSide, job_json
from worker.connections import redis_client
from worker.sandbox.embedded_server import EmbeddedServer

_PROBE: Final = 999_999_999
"""The number of the job by which a worker shows that it takes jobs."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another queue: what it needs, and the command that runs its worker for so many jobs at once."""

    requirements: tuple[str, ...]
    command: Callable[[int], Sequence[str]]
    is_whole: Callable[[redis.Redis, int], bool] = lambda _client, _concurrency: True
    """Tells whether all of its workers are there."""


_TRITON: Final = "tritonclient[http]==2.73.0"
RIVAL_QUEUES: Final[Mapping[str, Rival]] = {
    "rq": Rival(
        ("rq==3.0.0", "hiredis", _TRITON),
        lambda concurrency: (
            *("rq", "worker-pool", "--num-workers", str(concurrency), "--worker-class", "rq.worker.SimpleWorker"),
            *("--config", "benchmarks.rivals.rq_side", "--logging-level", "WARNING", "--url", "{redis}", "bench"),
        ),
        lambda client, concurrency: int(client.scard("rq:workers")) >= concurrency,
    ),
    "arq": Rival(("arq==0.28.0", "hiredis", _TRITON), lambda _: ("arq", "benchmarks.rivals.arq_side.WorkerSettings")),
    "saq": Rival(
        ("saq[redis,hiredis]==0.26.4", _TRITON), lambda _: ("saq", "benchmarks.rivals.saq_side.settings", "--quiet")
    ),
    "dramatiq": Rival(
        ("dramatiq[redis,gevent]==2.2.1", "hiredis", _TRITON),
        lambda concurrency: (
            *("dramatiq-gevent", "benchmarks.rivals.dramatiq_side"),
            *("--processes", "1", "--threads", str(concurrency)),
        ),
    ),
    "taskiq": Rival(
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", "uvloop", "hiredis", _TRITON),
        lambda concurrency: (
            *("taskiq", "worker", "benchmarks.rivals.taskiq_side:broker", "--workers", "1", "--log-level", "WARNING"),
            *("--max-async-tasks", str(concurrency), "--max-prefetch", str(concurrency)),
            *("--ack-type", "when_executed"),
        ),
    ),
}
"""The other queues by their names, each tuned as its documentation advises for work that waits for a network."""


class RivalWorker(EmbeddedServer):
    """Another queue's worker; ready when it has settled a first job and all of its processes are there."""

    def __init__(
        self, name: str, programs: Path, redis_url: str, client: redis.Redis, variables: Mapping[str, str]
    ) -> None:
        super().__init__(port=None, start_timeout_seconds=120.0, stop_grace_seconds=0.0)
        self.name = name
        self._programs = programs
        self._redis_url = redis_url
        self._client = client
        self._concurrency = int(variables["RIVAL_CONCURRENCY"])
        self._variables = variables
        self.probe: Callable[[], object] = lambda: None
        """Called before each start: enqueues the first job."""

    def _check(self) -> None:
        """Nothing to look for: its environment has been made."""

    def _prepare(self, directory: Path) -> None:  # noqa: ARG002 - the signature of all servers
        self.probe()

    def _command(self) -> Sequence[str]:
        program, *rest = RIVAL_QUEUES[self.name].command(self._concurrency)
        return (str(self._programs / program), *(word.replace("{redis}", self._redis_url) for word in rest))

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._variables}

    def _is_ready(self) -> bool:
        settled = bool(self._client.exists(SETTLEMENTS))
        return settled and RIVAL_QUEUES[self.name].is_whole(self._client, self._concurrency)


def rival(
    worker_redis_url: str, redis_url: str, triton_url: str, workload: Workload, *, name: str, programs: Path
) -> QueueSide:
    """Return another queue's worker, not started."""
    client = redis_client(redis_url, socket_timeout=60.0)
    variables = {
        "RIVAL_REDIS_URL": worker_redis_url,
        "RIVAL_TRITON": triton_url.removeprefix("http://"),
        "RIVAL_CONCURRENCY": str(workload.in_flight),
        "PYTHONPATH": str(ROOT),
    }
    copied = _copied(name, programs, client, workload, {**variables, "RIVAL_REDIS_URL": redis_url})
    process = RivalWorker(name, programs, worker_redis_url, client, variables)
    process.probe = lambda: copied.enqueue(client, [_PROBE])
    return QueueSide(
        name,
        process,
        client,
        None,
        SETTLEMENTS,
        lambda numbers: copied.enqueue(client, numbers),
        may_leave_jobs=True,
        most_per_second=9_000,
    )


def rival_sides(names: Sequence[str], say: Callable[[str], None]) -> dict[str, Make]:
    """Return what makes each of these sides; one whose packages cannot be had is left out, which is said."""
    found: dict[str, Make] = {}
    for name in names:
        try:
            programs = environment(name, RIVAL_QUEUES[name].requirements, say)
        except NotInstalled as error:
            say(f"{name}: left out, for its packages cannot be had ({error})")
        else:
            found[name] = partial(rival, name=name, programs=programs)
    return found


def _copied(name: str, programs: Path, client: redis.Redis, workload: Workload, variables: Mapping[str, str]) -> Copied:
    """Have the library enqueue one job in an empty database, and copy it."""
    client.flushdb()
    module = f"benchmarks.rivals.{name}_side"
    subprocess.run(
        [str(programs / "python"), "-m", module, job_json(MARKER, workload)],
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
    )
    copied = Copied.of(client)
    client.flushdb()
    return copied
