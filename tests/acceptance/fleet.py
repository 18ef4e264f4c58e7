"""Real worker processes, started as an operator starts them, with their logs in files."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import redis

from tests.jobs import MODEL
from tests.waiting import wait_until
from worker.keys import Keys
from worker.sandbox.places import log_tail

ROOT: Final = Path(__file__).parents[2]
BIN: Final = ROOT / ".venv" / "bin"
KEYS: Final = Keys("speedinfer")

Client: TypeAlias = Any
"""A client of redis-py. Its types cannot say that it waits and answers in bytes, so each look would need a cast."""

SEED: Final[Mapping[str, Any]] = {
    "worker_id": "triton-01",
    "worker_type": "nvidia-gpu",
    "runtime": "triton",
    "runtime_endpoint": "http://triton:8000",
    "supported_models": ["acme/model-1"],
    "runtime_config": {
        "model_name": "text_generation",
        "input_name": "text_input",
        "max_tokens_input_name": "max_tokens",
        "output_name": "text_output",
        "prompt_tokens_output_name": "prompt_tokens",
        "completion_tokens_output_name": "completion_tokens",
    },
}
"""The configuration that existing installations have."""

FASTER: Final[Mapping[str, Any]] = {
    "heartbeat_seconds": 0.2,
    "concurrency": 4,
    "drain_seconds": 10,
    "retry": {"base_seconds": 0.01, "max_seconds": 0.05},
    "circuit": {
        "consecutive_failures": 1_000_000,
        "failure_rate": 1.0,
        "window": 1_000,
        "minimum_calls": 1_000,
        "open_seconds": 0.3,
        "max_open_seconds": 1,
    },
}
"""What keeps tests short; none of it changes what is promised. Circuits open only for what opens one at once."""

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
"""A drain, which takes its whole time where Redis is away, and the last commit's five seconds; and a machine that stalls."""


def models(**behind: str | Mapping[str, Any]) -> dict[str, Any]:
    """Configuration of several public names ``acme/NAME``: each the name of a Triton model, or fields that differ."""
    fields = {f"acme/{name}": {"model_name": it} if isinstance(it, str) else dict(it) for name, it in behind.items()}
    return {"supported_models": [*fields], "models": fields}


@dataclass(slots=True)
class WorkerProcess:
    """One worker process; ``config`` is what it was started with."""

    config: Mapping[str, Any]
    process: subprocess.Popen[bytes]
    log: Path
    client: Client

    @property
    def worker_id(self) -> str:
        """The worker's name."""
        return str(self.config["worker_id"])

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    def health(self) -> dict[str, str]:
        """The health key as text, empty if there is none."""
        fields: dict[bytes, bytes] = self.client.hgetall(KEYS.worker(self.worker_id))
        return {name.decode(): value.decode() for name, value in fields.items()}

    def model(self, model: str = MODEL) -> dict[str, Any]:
        """State and reason of one model by the health key, empty if there is no health key."""
        standings: dict[str, dict[str, Any]] = json.loads(self.health().get("models", "{}"))
        return {name: value for name, value in standings.get(model, {}).items() if name in {"state", "reason"}}

    def wait_until_state(self, *states: str, timeout: float = 30.0) -> dict[str, str]:
        """Return the health key once it shows one of these states, written by this very process."""

        def reached() -> dict[str, str]:
            assert self.process.poll() is None, f"the worker ended with {self.process.returncode}: {log_tail(self.log)}"
            health = self.health()
            return health if health.get("pid") == str(self.pid) and health["state"] in states else {}

        try:
            return wait_until(reached, description=f"{self.worker_id} is {' or '.join(states)}", timeout=timeout)
        except AssertionError as late:
            late.add_note(f"health: {self.health()}; log of {self.pid}: {log_tail(self.log)}")
            raise

    def wait_for_beats(self, beats: int = 1) -> None:
        """Return when the health key was written so many times more."""
        for _ in range(beats):
            before = self.health().get("heartbeat_at")
            wait_until(partial(self._has_beaten_since, before), description="the next heartbeat")

    def _has_beaten_since(self, beat: str | None) -> bool:
        return self.health().get("heartbeat_at", beat) != beat

    def claims(self) -> dict[bytes, bytes]:
        """Everything that runs of this worker_id hold, tag to record."""
        found: dict[bytes, bytes] = {}
        for key in self.client.scan_iter(f"{KEYS.prefix}claims:{self.worker_id}:*"):
            found |= self.client.hgetall(key)
        return found

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The log lines so far that are events, or those with these names."""
        # A line is written in one call, but it may be read half way.
        lines = self.log.read_text(errors="replace").split("\n")[:-1]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in events if not names or event["event"] in names]

    def wait_for_event(self, name: str, count: int = 1) -> dict[str, Any]:
        """Return the log line with this name, once there are ``count``: the last of them."""
        description = f"the log of {self.worker_id} has {count} x {name}"
        return wait_until(lambda: self.events(name)[count - 1 :], description=description)[-1]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self, timeout: float = _STOP_SECONDS) -> int:
        """Return the exit code once the process has ended."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.worker_id} did not end within {timeout:g} s: {log_tail(self.log)}") from None

    def stop(self) -> int:
        """Ask the process to end, and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End the process as kill -9 does."""
        self.process.kill()
        self.process.wait()


@dataclass(slots=True)
class Fleet:
    """A context manager: the workers of one test or module, none of which outlives it.

    ``endpoint`` and ``redis_url`` are those of workers that name no other.
    """

    directory: Path
    endpoint: str
    redis_url: str
    workers: list[WorkerProcess] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)
    """Those that look into a Redis, by the address in a worker's configuration; closed with the fleet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        running = [worker for worker in self.workers if worker.process.poll() is None]
        for worker in running:
            worker.signal(signal.SIGTERM)
        try:
            for worker in running:
                worker.wait()
        finally:
            for worker in running:
                worker.kill()
            for client in self.clients.values():
                client.close()

    def configuration(self, **changes: Any) -> dict[str, Any]:
        """The seed configuration with this fleet's addresses, quicker, and with these fields changed."""
        here = {"runtime_endpoint": self.endpoint, "redis_url": self.redis_url}
        return {**SEED, **here, **FASTER, **changes}

    def write(self, config: Mapping[str, Any]) -> Path:
        """Write a configuration to a file of its own."""
        path = self.directory / f"worker-{len([*self.directory.glob('worker-*.json')])}.json"
        path.write_text(json.dumps(config))
        return path

    def start(
        self,
        *,
        config: Mapping[str, Any] | None = None,
        until: Sequence[str] = ("ready",),
        command: Callable[[Path], Sequence[str]] | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> WorkerProcess:
        """Start a worker and return when its health key shows one of the states ``until``; at once if there are none."""
        config = self.configuration(**changes) if config is None else config
        path = self.write(config)
        started = ["speedinfer", "worker", "--config", str(path)] if command is None else command(path)
        log = path.with_suffix(".log")
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [str(BIN / started[0]), *started[1:], *options],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=_environment(environment),
            )
        worker = WorkerProcess(config, process, log, self.client(str(config["redis_url"])))
        self.workers.append(worker)
        if until:
            worker.wait_until_state(*until, timeout=_START_SECONDS)
        return worker

    def client(self, url: str) -> Client:
        """A client of the fleet's, closed with it."""
        if url not in self.clients:
            self.clients[url] = redis.Redis.from_url(url)
        return self.clients[url]

    def logs(self) -> Iterator[Path]:
        """The logs of all workers."""
        return (worker.log for worker in self.workers)


def run(*command: str, environment: Mapping[str, str] | None = None, timeout: float = 60.0) -> "Ended":
    """Run a command of the virtual environment to its end."""
    ended = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=_environment(environment),
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def _environment(added: Mapping[str, str] | None) -> dict[str, str]:
    """This process' environment without what configures workers, and with what is added."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPEEDINFER_", "CELERY_"))}
    # Celery warns everyone who runs as root, as containers of tests do.
    return {**kept, "C_FORCE_ROOT": "1", "COLUMNS": "200", "TERM": "dumb", **(added or {})}
