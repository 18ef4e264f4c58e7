"""The servers of a run, its crew and its producers: started, mended after the faults, and brought to rest."""

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import redis

from tests.acceptance.fleet import ROOT
from tests.chaos.crew import Member, worker_settings
from tests.chaos.evidence import Incident, Observed, read_journals
from tests.chaos.line import Line
from tests.chaos.options import Options
from tests.chaos.producer import KEYS
from tests.conftest import MODELS
from tests.waiting import wait_until
from tests.witness import WITNESS_VARIABLE, Witness
from worker.connections import redis_client
from worker.sandbox.kept import KeptProcess
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_STEADY_LOOKS: Final = 3
"""How many looks in a row must find nothing to do before a run has come to rest."""


class Servers:
    """A context manager: the Valkey and the Triton of one run or of several, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.witness = Witness(directory / "requests.jsonl")
        self.valkey = ValkeyServer(append_only=True, fsync="always")
        self.triton = TritonServer(
            MODELS,
            control="explicit",
            models=["text_generation", "faulty"],
            environment={WITNESS_VARIABLE: str(self.witness.path)},
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            together = stack.enter_context(ThreadPoolExecutor(2))
            list(together.map(stack.enter_context, (self.valkey, self.triton)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def emptied(self) -> None:
        """Forget the run before."""
        with redis_client(self.valkey.url) as client:
            client.flushall()
        self.witness.clear()


@dataclass
class Stage:
    """One run's processes."""

    options: Options
    servers: Servers
    directory: Path
    crew: list[Member] = field(default_factory=list)

    @property
    def logs(self) -> list[Path]:
        """Return the logs of all workers, oldest first."""
        return sorted(self.directory.glob("worker-*.log"), key=lambda path: path.stat().st_mtime)

    @contextmanager
    def manned(self) -> Iterator[None]:
        """Have a crew that takes jobs, while the context lasts."""
        with ExitStack() as stack:
            for number in range(self.options.workers):
                line = stack.enter_context(Line(self.servers.valkey.url, f"{self.options.seed}/line/{number}"))
                member = Member(
                    number,
                    line,
                    self.directory,
                    worker_settings(line.url, self.servers.triton.url, self.options.lease_seconds),
                    [("--failpoint", one) for one in self.options.failpoints[number :: self.options.workers]],
                    ("--mutation", self.options.mutation) if self.options.mutation else (),
                )
                stack.callback(member.close)
                self.crew.append(member)
                member.start()
            self._wait_until_ready()
            with self._watched():
                yield

    def produce(self, start: float) -> list[KeptProcess]:
        """Start the producers; what they do is timed from ``start``, unix seconds."""
        options, producers = self.options, []
        for part in range(options.producers):
            arguments = (
                self.servers.valkey.url,
                *map(str, (options.seed, options.jobs, options.seconds, json.dumps(options.shares))),
                *map(str, (part, options.producers, start, self.directory / f"journal-{part}.jsonl")),
            )
            process = KeptProcess(remove=[])
            command = (sys.executable, "-P", "-m", "tests.chaos.producer", *arguments)
            log = self.directory / f"producer-{part}.log"
            process.start(command, {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, log)
            producers.append(process)
        return producers

    def mend(self) -> None:
        """Put everything back in order."""
        for member in self.crew:
            member.line.mend()
        for server in (self.servers.valkey, self.servers.triton):
            if not server.is_running():
                server.restart()

    def come_to_rest(self, producers: Sequence[KeptProcess]) -> bool:
        """Return True once producers have ended and nothing is left to do; False if nothing changes for long."""
        client = redis_client(self.servers.valkey.url)
        seen: Any = None
        changed, steady = time.monotonic(), 0
        while time.monotonic() - changed < self.options.patience_seconds:
            producing = sum(producer.poll() is None for producer in producers)
            now = (producing, self._producers_progress(), *self._to_do(client), client.xlen(KEYS.settlements))
            if now != seen:
                seen, changed = now, time.monotonic()
            steady = steady + 1 if not producing and not any(now[2:-1]) else 0
            if steady > _STEADY_LOOKS:
                return True
            time.sleep(_LOOK_SECONDS)
        return False

    def dismiss(self) -> None:
        """Have all workers end, one beside the other."""
        with ThreadPoolExecutor(len(self.crew)) as together:
            list(together.map(lambda member: member.drain(), self.crew))

    def observed(self, incidents: Sequence[Incident], *, came_to_rest: bool) -> Observed:
        """Return what was seen of the processes; ``incidents`` are what was done to them."""
        sends, cancelled = read_journals(sorted(self.directory.glob("journal-*.jsonl")))
        all_incidents = [*incidents, *(one for member in self.crew for one in member.incidents)]
        exits = [one for member in self.crew for one in member.exits]
        unmet = [option for member in self.crew for _, option in member.options]
        return Observed(sends, cancelled, all_incidents, exits, unmet, came_to_rest)

    def _to_do(self, client: redis.Redis) -> tuple[int, ...]:
        queued = sum(client.llen(key) for key in client.scan_iter(f"{KEYS.prefix}jobs:*", count=1000))
        return queued, client.zcard(KEYS.waiting), client.scard(KEYS.claimants), client.hlen(KEYS.running)

    def _producers_progress(self) -> int:
        return sum(journal.stat().st_size for journal in self.directory.glob("journal-*.jsonl"))

    def _wait_until_ready(self) -> None:
        client = redis_client(self.servers.valkey.url)
        for member in self.crew:
            wait_until(
                lambda member=member: member.is_ready(client),  # type: ignore[misc] # a default is no type
                description=f"{member.worker_id} is ready; its log is in {self.directory}",
                timeout=_READY_SECONDS,
                interval=0.05,
            )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Bring workers back that end by themselves."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_SECONDS):
                for member in self.crew:
                    member.look()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
