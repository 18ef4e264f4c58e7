"""Sets up a measurement: the servers, and the sides on them; and carries it out, in turns."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import redis

from benchmarks.direct import DirectLoop
from benchmarks.figures import AddedTime, Idle, Rounds, Window
from benchmarks.gauges import ProcessUse, RedisUse
from benchmarks.load import Loaded, next_settlement, started
from benchmarks.ours import ours
from benchmarks.plan import EMPTY, MODEL_REPOSITORIES, Pace, Section, turns
from benchmarks.sides import DIRECT, OURS, Make, QueueSide
from benchmarks.slow_link import SlowLink
from worker.connections import redis_client
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import Fsync, ValkeyServer

Say = Callable[[str], None]

_CALM_SECONDS: Final = 1.0


def triton_with(models: Sequence[str]) -> TritonServer:
    """Return a Triton with these models, not started."""
    return TritonServer(MODEL_REPOSITORIES, control="explicit", models=sorted(set(models)))


def valkey(fsync: Fsync) -> ValkeyServer:
    """Return a Valkey that writes its log as a careful installation does, not started; its log is never rewritten meanwhile."""
    return ValkeyServer(append_only=True, fsync=fsync, settings={"auto-aof-rewrite-percentage": "0"})


@dataclass(frozen=True, slots=True)
class Turn:
    """A side's part in a section: its name in the table, which side it is, and how far away its Redis is."""

    name: str
    side: str
    redis_ms: float


def turns_of(section: Section, sides: Sequence[str]) -> tuple[Turn, ...]:
    """Return who takes part in a section, of the sides there are."""
    away = section.kind.redis_ms
    return tuple(
        Turn(side if len(away) == 1 else f"{side}, {ms:g} ms", side, ms)
        for side in (*section.kind.always_there, *section.kind.others)
        for ms in away
        if side in sides
    )


def measure_load(triton_url: str, section: Section, makers: Mapping[str, Make], pace: Pace, say: Say) -> Rounds:
    """Return the windows of a section's sides under load, taken in turns; each starts for its turn, and has Redis to itself."""
    takes_part = {turn.name: turn for turn in turns_of(section, (DIRECT, *makers))}
    windows: dict[str, list[Window]] = {name: [] for name in takes_part}
    with valkey(section.fsync) as server, ExitStack() as stack:
        direct = stack.enter_context(DirectLoop(triton_url, section.workload))
        links = {ms: _link(stack, server.url, ms) for ms in section.kind.redis_ms}
        for number in range(pace.rounds):
            for name in turns(tuple(takes_part), number):
                turn = takes_part[name]
                if turn.side in section.kind.others and number >= pace.rounds_of_others:
                    continue
                seconds = pace.window_seconds(section, turn.side)
                if turn.side == DIRECT:
                    window = direct.window(pace.warm_seconds, seconds)
                else:
                    make = makers[turn.side]
                    side = make(links[turn.redis_ms], server.url, triton_url, section.workload)
                    window = _loaded_window(side, section, pace.warm_seconds, seconds)
                windows[name].append(window)
                say(f"{section.name}, round {number + 1}: {name} {window.jobs_per_second:,.0f} jobs/s")
    return Rounds({name: tuple(found) for name, found in windows.items()})


def _loaded_window(side: QueueSide, section: Section, warm_seconds: float, seconds: float) -> Window:
    workload = section.workload
    most = min(workload.most_per_second, side.most_per_second)
    # What a side may claim ahead of its slots is queued beyond what it can do in the time.
    jobs = round(most * (warm_seconds + seconds)) + 10 * workload.in_flight
    try:
        with started(side) as loaded:
            return loaded.window(jobs, workload.in_flight, warm_seconds, seconds)
    finally:
        side.client.close()


def _link(stack: ExitStack, redis_url: str, ms: float) -> str:
    return stack.enter_context(SlowLink(redis_url, ms)).url if ms else redis_url


def measure_added_time(
    triton_url: str, makers: Mapping[str, Make], pace: Pace, fsyncs: Sequence[Fsync], say: Say
) -> dict[str, dict[str, AddedTime]]:
    """Return what sides add to single jobs far apart, by fsync and side; the sides and an inference alone take turns."""
    found: dict[str, dict[str, AddedTime]] = {}
    with valkey(fsyncs[0]) as server, _waiting(server, triton_url, makers) as sides:
        direct = sides.direct
        for fsync in fsyncs:
            sides.admin.config_set("appendfsync", fsync)
            waited: dict[str, list[float]] = {name: [] for name in sides.loaded}
            inferred = []
            for _ in range(pace.single_jobs):
                for name, loaded in sides.loaded.items():
                    loaded.given += 1
                    span = next_settlement(loaded.side, sides.listeners[name], loaded.given)
                    waited[name].append(span.milliseconds)
                inferred.append(direct.once_ms())
            found[fsync] = {name: AddedTime.of(times, inferred) for name, times in waited.items()}
            say(
                f"added time, fsync {fsync}: " + ", ".join(f"{name} {a.p50:.1f} ms" for name, a in found[fsync].items())
            )
    return found


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Sides that wait for single jobs, beside each other, each in a database of its own."""

    direct: DirectLoop
    admin: redis.Redis
    loaded: Mapping[str, Loaded]
    listeners: Mapping[str, redis.Redis]


@contextmanager
def _waiting(server: ValkeyServer, triton_url: str, makers: Mapping[str, Make]) -> Iterator[_Waiting]:
    with ExitStack() as stack:
        loaded, listeners = {}, {}
        for number, (name, make) in enumerate(makers.items()):
            url = f"{server.url.rsplit('/', 1)[0]}/{number}"
            side = make(url, url, triton_url, EMPTY)
            stack.callback(side.client.close)
            loaded[name] = stack.enter_context(started(side))
            listeners[name] = redis_client(url, socket_timeout=40)
            stack.callback(listeners[name].close)
        admin = redis_client(server.url)
        stack.callback(admin.close)
        yield _Waiting(stack.enter_context(DirectLoop(triton_url, EMPTY)), admin, loaded, listeners)


def with_models(models: int) -> Make:
    """Return what makes our side with so many models."""
    return partial(ours, models=models)


def measure_idle(triton_url: str, pace: Pace, models: int, say: Say) -> Idle:
    """Return what our worker costs while there is nothing to do."""
    with valkey("everysec") as server:
        side = ours(server.url, server.url, triton_url, EMPTY, models=models)
        with started(side):
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
    say(
        f"idle, {models} model{'s' * (models > 1)}: {idle.cpu_percent:.2f} % of a core, "
        f"{idle.round_trips_per_second:.1f} round trips/s"
    )
    return idle


def ours_by_models(numbers: Sequence[int]) -> dict[str, Make]:
    """Return our side once for each number of models, by what it is called in the table of added time."""
    return {OURS if models == 1 else f"{OURS}, {models} models": with_models(models) for models in numbers}
