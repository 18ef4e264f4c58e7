"""A real worker process of one's own, for the demo and the tests: ``speedinfer worker`` with a configuration."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

from settings.load import settings_from
from worker.connections import redis_client
from worker.fleet import read_worker
from worker.keys import Keys
from worker.sandbox.embedded_server import EmbeddedServer


class WorkerProcess(EmbeddedServer):
    """A worker that runs while it is open; ready when it takes jobs of all its models.

    ``configuration`` is what its configuration file holds (docs/configuration.md). ``environment`` is added to the process'
    own, of which it gets everything but what configures a worker.
    """

    name = "worker"
    ready_poll_seconds = 0.05
    module = "worker.cli"
    """What is run: the command, or a module that runs it in a way of its own."""

    def __init__(
        self,
        configuration: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        start_timeout_seconds: float = 30.0,
    ) -> None:
        self.configuration = dict(configuration)
        self._settings = settings_from(self.configuration)
        self._added_environment = dict(environment or {})
        super().__init__(
            port=None,
            start_timeout_seconds=start_timeout_seconds,
            # It may need its drain time, and then some to put back what still runs.
            stop_grace_seconds=self._settings.drain_seconds + 5.0,
        )

    @property
    def configuration_file(self) -> Path:
        """The worker's configuration, deleted on stop."""
        return self.directory / "worker.json"

    def terminate(self) -> None:
        """Ask the worker to drain and end, and do not wait for it."""
        self._running().signal(signal.SIGTERM)

    def _check(self) -> None:
        """Nothing to look for: what this runs is this very program."""

    def _prepare(self, directory: Path) -> None:
        (directory / "worker.json").write_text(json.dumps(self.configuration, indent=1))

    def _command(self) -> Sequence[str]:
        # -P: a directory named worker where this is started from must not be taken for ours.
        return (sys.executable, "-P", "-m", self.module, "worker", "--config", str(self.configuration_file))

    def _environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPEEDINFER_")}
        return {**inherited, **self._added_environment}

    def _is_ready(self) -> bool:
        client = redis_client(self._settings.redis_url.get_secret_value(), socket_timeout=2.0)
        try:
            health = read_worker(client, Keys(self._settings.namespace), self._settings.worker_id)
        except redis.RedisError:
            return False
        finally:
            client.close()
        return health.state == "ready" and health.fields.get("pid") == str(self.pid)
