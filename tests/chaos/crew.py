"""The workers of a run: real processes, each with a line of its own to Redis, killed and brought back as the plan says."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis

from tests.acceptance.fleet import ROOT, SEED, models
from tests.chaos.evidence import Exit, Incident
from tests.chaos.line import Line
from tests.chaos.producer import KEYS
from worker.sandbox.kept import KeptProcess

CONCURRENCY: Final = 6
SLOTS: Final = 10
"""What the workers share: fewer than all their greenlets, so that the limit is met."""
TIMEOUT_SECONDS: Final = 5
"""More than the longest inference and a stall of Triton, which would be a failure where none is to be."""
_DRAIN_SECONDS: Final = 1.0
_ENDS_WITHIN_SECONDS: Final = 40.0
_POLL_SECONDS: Final = 0.02
_KILLED: Final = -signal.SIGKILL

_MODELS: Final[dict[str, str | dict[str, Any]]] = {
    "model-1": {"model_name": "text_generation", "timeout_seconds": TIMEOUT_SECONDS},
    "faulty": {"model_name": "faulty", "timeout_seconds": TIMEOUT_SECONDS},
}

SETTINGS: Final[Mapping[str, Any]] = {
    "heartbeat_seconds": 0.5,
    "concurrency": CONCURRENCY,
    "drain_seconds": _DRAIN_SECONDS,
    "retry": {"base_seconds": 0.05, "max_seconds": 0.5},
    "circuit": {"open_seconds": 0.5, "max_open_seconds": 2},
    "gpu_pool": {"max_concurrency": SLOTS},
    "log_format": "json",
    **models(**_MODELS),
}
"""What keeps a run short; none of it changes what is promised."""


@dataclass(slots=True)
class Member:
    """One place in the crew: the worker process that fills it now, and who filled it before."""

    number: int
    line: Line
    directory: Path
    settings: Mapping[str, Any]
    options: list[Sequence[str]]
    """Of each start to come, first the next one's; then a worker is what ``speedinfer worker`` runs."""

    standing: Sequence[str]
    """Options of every start."""

    process: KeptProcess = field(default_factory=lambda: KeptProcess(remove=[]))
    worker_id: str = ""
    starts: int = 0
    exits: list[Exit] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    _log: Path = Path()
    _options_now: Sequence[str] = ()
    _started_ms: float = 0.0
    _meant_to_run: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self, *, fresh_id: bool = True) -> None:
        """Start a worker in this place and return at once."""
        with self._lock:
            self.starts += 1
            if fresh_id or not self.worker_id:
                self.worker_id = f"chaos-{self.number}-{self.starts}"
            path = self.directory / f"worker-{self.number}-{self.starts}.json"
            self._log = path.with_suffix(".log")
            path.write_text(json.dumps({**self.settings, "worker_id": self.worker_id}))
            self._options_now = [*self.standing, *(self.options.pop(0) if self.options else ())]
            self._started_ms = time.time() * 1000
            self.process.start(self._command(path), _environment(), self._log)
            self._meant_to_run = True

    def kill(self) -> None:
        """End the worker as kill -9 does."""
        with self._lock:
            self._meant_to_run = False
            if self.process.pid is not None:
                self.process.stop(0.0)

    def freeze(self) -> None:
        """Stop the process where it stands."""
        self.process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.process.signal(signal.SIGCONT)

    def drain(self) -> None:
        """Ask the worker to end, and note how it did."""
        with self._lock:
            self._meant_to_run = False
            self.process.signal(signal.SIGTERM)
            deadline = time.monotonic() + _ENDS_WITHIN_SECONDS
            while (code := self.process.poll()) is None and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            # One that was still starting held nothing, and may end as any process does.
            expected = 0 if '"worker.started"' in self._log.read_text(errors="replace") else -signal.SIGTERM
            self.exits.append(Exit(self.worker_id, code, expected if code else 0, "drained"))
            self.process.stop(0.0)

    def look(self) -> None:
        """Bring a worker back that ended by itself: at a failpoint it was meant to, else that is a fault."""
        with self._lock:
            code = self.process.poll() if self._meant_to_run else None
            if code is None:
                return
            meant = "--failpoint" in self._options_now
            self.exits.append(Exit(self.worker_id, code, _KILLED if meant else None, " ".join(self._options_now)))
            now_ms = time.time() * 1000
            self.incidents.append(Incident("died", self.worker_id, self._started_ms, now_ms))
            self.start()

    def is_ready(self, client: redis.Redis) -> bool:
        """Tell whether the present process takes jobs of all its models."""
        fields: dict[Any, Any] = client.hgetall(KEYS.worker(self.worker_id))
        return fields.get(b"state") == b"ready" and fields.get(b"pid") == str(self.process.pid).encode()

    def held(self, client: redis.Redis) -> set[str]:
        """Return the job_ids that this worker holds, none while Redis is away."""
        try:
            keys = [*client.scan_iter(f"{KEYS.prefix}claims:{self.worker_id}:*", count=1000)]
            records: list[Any] = [record for key in keys for record in client.hvals(key)]
        except redis.RedisError:
            return set()
        return {record.split(b"\n", 3)[1].decode() for record in records} - {""}

    def close(self) -> None:
        """End what runs, by force."""
        self._meant_to_run = False
        self.process.close()

    def _command(self, config: Path) -> Sequence[str]:
        if not self._options_now:
            return (sys.executable, "-P", "-m", "worker.cli", "worker", "--config", str(config))
        return (sys.executable, "-P", "-m", "tests.chaos.worker_main", str(config), *self._options_now)


def worker_settings(redis_url: str, triton_url: str, lease_seconds: float) -> dict[str, Any]:
    """Return the configuration of a run's workers, but for their ids."""
    addresses = {"redis_url": redis_url, "runtime_endpoint": triton_url}
    return {**SEED, **addresses, **SETTINGS, "lease_seconds": lease_seconds}


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPEEDINFER_", "CELERY_"))}
    return {**kept, "C_FORCE_ROOT": "1", "PYTHONPATH": str(ROOT)}
