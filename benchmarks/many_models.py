"""``python -m benchmarks.many_models``: what hundreds of public names cost one worker, at its start and while nothing is to be done.

It shows how often Triton is asked, and how soon the worker notices that a model has gone. Triton is the real one; its models are
ensembles of one step, which cost no process each.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import gevent.pool
import redis
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import ensembles
from benchmarks.gauges import ProcessUse, RedisUse
from benchmarks.stage import valkey
from benchmarks.waiting import Stuck
from settings.load import settings_from
from worker.connections import redis_client
from worker.fleet import read_worker
from worker.keys import Keys
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.worker_process import WorkerProcess
from worker.triton.adapter import TritonInference
from worker.triton.http import HttpClients

KEYS: Final = Keys("speedinfer")
WORKER: Final = "many"
START_SECONDS: Final = 5.0
"""What a worker with 500 public names may take until it takes jobs of all of them."""

_CALM_SECONDS: Final = 2.0
_LOOKS_AT_ONCE: Final = 4
_LONGEST_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """Public names, each with the Triton model behind it."""

    title: str
    behind: Mapping[str, str]

    def configuration(self, redis_url: str, triton_url: str) -> dict[str, Any]:
        """Return a worker's configuration."""
        return {
            "worker_id": WORKER,
            "runtime_endpoint": triton_url,
            "redis_url": redis_url,
            "supported_models": list(self.behind),
            "runtime_config": {"model_name": next(iter(self.behind.values()))},
            "models": {name: {"model_name": model} for name, model in self.behind.items()},
        }


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured of a case; seconds, percent of a core, and requests. Of what was not tried, None."""

    start_seconds: float
    start_requests: int
    watch_requests: int
    idle_percent: float
    idle_round_trips: float
    megabytes: float
    gone_seconds: float | None = None
    back_seconds: float | None = None


ROWS: Final[Mapping[str, str]] = {
    "start_seconds": "start until jobs of all are taken, s",
    "start_requests": "requests to Triton for it",
    "watch_requests": "requests to Triton of one watch, every 5 s",
    "idle_percent": "idle, % of a core",
    "idle_round_trips": "idle, round trips to Redis a second",
    "megabytes": "memory, MB",
    "gone_seconds": "unloaded model noticed after, s",
    "back_seconds": "loaded model taken up after, s",
}


def cases(models: int) -> tuple[Case, ...]:
    """Return one name, many names of as many models, and many names of one model."""
    names = ensembles.names(models)
    return (
        Case("1 name", {"acme/one": names[0]}),
        Case(f"{models} names, {models} models", {f"acme/{name}": name for name in names}),
        Case(f"{models} names, 1 model", {f"acme/{name}": names[0] for name in names}),
    )


def measure(case: Case, triton_url: str, idle_seconds: float) -> Found:
    """Return what a worker with these names takes."""
    start_requests, watch_requests = requests_of(case, triton_url)
    with valkey("everysec") as server:
        client = redis_client(server.url)
        began = time.monotonic()
        with WorkerProcess(case.configuration(server.url, triton_url)) as worker:
            start_seconds = time.monotonic() - began
            time.sleep(_CALM_SECONDS)
            pid = worker.pid or 0
            process, use, since = ProcessUse.of(pid), RedisUse.of(client), time.monotonic()
            time.sleep(idle_seconds)
            used, seconds, after = RedisUse.of(client).since(use, asked=1), time.monotonic() - since, ProcessUse.of(pid)
            gone = noticed(client, case, triton_url) if len(set(case.behind.values())) > 1 else (None, None)
        client.close()
    return Found(
        start_seconds=start_seconds,
        start_requests=start_requests,
        watch_requests=watch_requests,
        idle_percent=100 * (after.cpu_seconds - process.cpu_seconds) / seconds,
        idle_round_trips=used.round_trips / seconds,
        megabytes=after.rss_bytes / 1e6,
        gone_seconds=gone[0],
        back_seconds=gone[1],
    )


def requests_of(case: Case, triton_url: str) -> tuple[int, int]:
    """Return how many requests it takes to look at every name once, as a worker does, and to watch all of them once."""
    with counted_exchanges() as asked:
        adapter = TritonInference.of(settings_from(case.configuration("redis://127.0.0.1:6379/0", triton_url)))

        def look(name: str) -> None:
            if not (adapter.model_ready(name) and adapter.look(name).passed):
                raise Stuck(f"{name} does not fit")

        gevent.pool.Pool(_LOOKS_AT_ONCE).map(look, case.behind)
        start = len(asked)
        adapter.changed()
        asked.clear()
        gevent.pool.Pool(_LOOKS_AT_ONCE).map(look, sorted(adapter.changed()))
        adapter.close()
    return start, len(asked)


@contextmanager
def counted_exchanges() -> Iterator[list[str]]:
    """Give the list of paths that are asked for meanwhile."""
    paths: list[str] = []
    exchange = HttpClients.exchange

    def counted(self: HttpClients, request: Any, limits: Any) -> Any:
        paths.append(request.path)
        return exchange(self, request, limits)

    HttpClients.exchange = counted  # type: ignore[method-assign]  # it is put back
    try:
        yield paths
    finally:
        HttpClients.exchange = exchange  # type: ignore[method-assign]  # as it was


def noticed(client: redis.Redis, case: Case, triton_url: str) -> tuple[float, float]:
    """Return how long it takes until a model that is unloaded is paused, and one that is loaded again is ready; no job is sent."""
    public, model = list(case.behind.items())[len(case.behind) // 2]
    times = []
    for verb, state in (("unload", "paused"), ("load", "ready")):
        with urlopen(HttpRequest(f"{triton_url}/v2/repository/models/{model}/{verb}", data=b"{}")):  # noqa: S310 - our own Triton
            began = time.monotonic()
        wait_for_state(client, public, state)
        times.append(time.monotonic() - began)
    return times[0], times[1]


def wait_for_state(client: redis.Redis, public: str, state: str) -> None:
    """Return when the worker's health shows a model in a state."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while read_worker(client, KEYS, WORKER).models.get(public, {}).get("state") != state:
        if time.monotonic() > deadline:
            raise Stuck(f"{public} is not {state} after {_LONGEST_SECONDS:g} s")
        time.sleep(0.02)


def table(found: Mapping[str, Found]) -> Table:
    """Return the figures, a column a case."""
    made = Table("", *found)
    for field, words in ROWS.items():
        values = [getattr(its, field) for its in found.values()]
        made.add_row(words, *("-" if v is None else str(v) if isinstance(v, int) else f"{v:.2f}" for v in values))
    return made


def problems(found: Sequence[Found], models: int) -> list[str]:
    """Return what is not as it should be."""
    slow = [f"a start took {its.start_seconds:.1f} s" for its in found if its.start_seconds > START_SECONDS]
    many = [f"a start asked Triton {its.start_requests} times" for its in found if its.start_requests > models + 100]
    return slow + many


def main(
    *,
    models: Annotated[int, typer.Option(min=10, help="How many public names.")] = 500,
    idle_seconds: Annotated[float, typer.Option(help="How long to look at an idle worker.")] = 15.0,
    as_json: Annotated[bool, typer.Option("--json", help="Write the figures as JSON.")] = False,
) -> None:
    """Measure a worker with many public names beside one with a single name; exit 1 where a start is slow or asks too much."""
    with tempfile.TemporaryDirectory() as folder:
        repository = ensembles.repository(Path(folder) / "models", models)
        with TritonServer(repository, control="explicit", models=["*"]) as triton:
            found = {case.title: measure(case, triton.url, idle_seconds) for case in cases(models)}
    if as_json:
        typer.echo(json.dumps({title: {name: getattr(its, name) for name in ROWS} for title, its in found.items()}))
    else:
        Console(width=140).print(table(found))
    wrong = problems(list(found.values()), models)
    for line in wrong:
        typer.echo(f"many_models: {line}", err=True)
    if wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
