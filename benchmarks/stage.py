"""Sets up a measurement: the servers, and the sides beside each other on them; and carries it out, in turns."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

from benchmarks.figures import AddedTime, Idle, Rounds, Window
from benchmarks.gauges import ProcessUse, RedisUse
from benchmarks.load import Loaded, next_settlement_ms
from benchmarks.plan import MODEL_REPOSITORIES, Pace, Workload, turns
from benchmarks.sides import DIRECT, OURS, STOCK, DirectLoop, QueueSide, ours, stock
from worker.connections import redis_client
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import Fsync, ValkeyServer

Say = Callable[[str], None]

_STOCK_DATABASE: Final = {1: "1", 4: "2"}
_CALM_SECONDS: Final = 1.0


def triton_with(models: Sequence[str]) -> TritonServer:
    """Return a Triton with these models, not started."""
    return TritonServer(MODEL_REPOSITORIES, control="explicit", models=sorted(set(models)))


def valkey(fsync: Fsync) -> ValkeyServer:
    """Return a Valkey that writes its log as a careful installation does, not started; its log is never rewritten meanwhile."""
    return ValkeyServer(append_only=True, fsync=fsync, settings={"auto-aof-rewrite-percentage": "0"})


def measure_load(triton_url: str, workload: Workload, pace: Pace, fsync: Fsync, say: Say) -> Rounds:
    """Return the windows of all sides under load, taken in turns."""
    seconds = pace.window_seconds(workload)
    windows: dict[str, list[Window]] = {}
    with valkey(fsync) as server, _sides(server.url, triton_url, workload) as (direct, queues):
        loaded = {side.name: Loaded(side) for side in queues}
        names = (OURS, DIRECT, *STOCK.values())
        for number in range(pace.rounds):
            for name in turns(names, number):
                if name == DIRECT:
                    window = direct.window(pace.warm_seconds, seconds)
                else:
                    most = min(workload.most_per_second, loaded[name].side.most_per_second)
                    jobs = round(most * (pace.warm_seconds + seconds))
                    window = loaded[name].window(jobs, pace.warm_seconds, seconds)
                windows.setdefault(name, []).append(window)
                say(f"{workload.name}, round {number + 1}: {name} {window.jobs_per_second:,.0f} jobs/s")
    return Rounds({name: tuple(windows[name]) for name in names})


def measure_added_time(
    triton_url: str, workload: Workload, pace: Pace, fsyncs: Sequence[Fsync], say: Say
) -> dict[str, dict[str, AddedTime]]:
    """Return what each side adds to single jobs far apart, by fsync and side; the sides and an inference alone take turns."""
    found: dict[str, dict[str, AddedTime]] = {}
    with valkey(fsyncs[0]) as server, _sides(server.url, triton_url, workload) as (direct, queues):
        listeners = {side.name: redis_client(_url_of(side), socket_timeout=40) for side in queues}
        for fsync in fsyncs:
            queues[0].client.config_set("appendfsync", fsync)
            waited: dict[str, list[float]] = {side.name: [] for side in queues}
            inferred = []
            for _ in range(pace.single_jobs):
                for side in queues:
                    waited[side.name].append(next_settlement_ms(side, listeners[side.name], f"single-{uuid.uuid4()}"))
                inferred.append(direct.once_ms())
            found[fsync] = {name: AddedTime.of(times, inferred) for name, times in waited.items()}
            say(
                f"added time, fsync {fsync}: " + ", ".join(f"{name} {a.p50:.1f} ms" for name, a in found[fsync].items())
            )
        for listener in listeners.values():
            listener.close()
    return found


def measure_idle(triton_url: str, workload: Workload, pace: Pace, models: int, say: Say) -> Idle:
    """Return what our worker costs while there is nothing to do."""
    with valkey("everysec") as server:
        side = ours(server.url, triton_url, workload, models=models)
        with side.process:
            time.sleep(_CALM_SECONDS)
            pid = side.process.pid or 0
            process, use, began = ProcessUse.of(pid), RedisUse.of(side.client), time.monotonic()
            time.sleep(pace.idle_seconds)
            used, seconds = RedisUse.of(side.client).since(use, asked=1), time.monotonic() - began
            process_after = ProcessUse.of(pid)
        side.client.close()
    idle = Idle(
        models=models,
        cpu_percent=100 * (process_after.cpu_seconds - process.cpu_seconds) / seconds,
        commands_per_second=used.commands / seconds,
        round_trips_per_second=used.round_trips / seconds,
        rss_bytes=process_after.rss_bytes,
    )
    say(f"idle, {models} models: {idle.cpu_percent:.2f} % of a core, {idle.round_trips_per_second:.1f} round trips/s")
    return idle


@contextmanager
def _sides(redis_url: str, triton_url: str, workload: Workload) -> Iterator[tuple[DirectLoop, tuple[QueueSide, ...]]]:
    """Start all sides, and end them."""
    queues = (
        ours(redis_url, triton_url, workload),
        *(
            stock(_database(redis_url, number), triton_url, workload, multiplier=multiplier)
            for multiplier, number in _STOCK_DATABASE.items()
        ),
    )
    direct = DirectLoop(
        triton_url.removeprefix("http://"),
        workload.model,
        concurrency=workload.in_flight,
        prompt_bytes=workload.prompt_bytes,
    )
    with ExitStack() as stack:
        for side in queues:
            stack.callback(side.client.close)
        together = stack.enter_context(ThreadPoolExecutor(len(queues)))
        # Also those that never started: to stop those does nothing.
        stack.callback(lambda: list(together.map(lambda side: side.process.stop(), queues)))
        list(together.map(lambda side: side.process.start(), queues))
        yield stack.enter_context(direct), queues


def _database(redis_url: str, number: str) -> str:
    return f"{redis_url.rsplit('/', 1)[0]}/{number}"


def _url_of(side: QueueSide) -> str:
    at = side.client.connection_pool.connection_kwargs
    return f"redis://{at['host']}:{at['port']}/{at.get('db', 0)}"
