"""The demo's servers: Valkey, Triton with a small language model, and a worker, on loopback ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import redis

from worker.connections import redis_client
from worker.keys import Keys
from worker.sandbox.embedded_server import EmbeddedServer
from worker.sandbox.places import SAMPLE_MODELS, log_tail
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer
from worker.sandbox.worker_process import WorkerProcess

_NAMESPACE = "speedinfer"
_MODEL = "smollm2-135m"


class Servers:
    """What the demo runs; each is started by whoever enters it."""

    models = (_MODEL,)

    def __init__(self) -> None:
        """Start nothing yet."""
        self._valkey = ValkeyServer(append_only=True)
        # Python keeps compiled modules beside their sources: beside a copy, which goes with the server.
        self._triton = TritonServer(SAMPLE_MODELS, control="explicit", models=["smollm2"], own_copy=True)

    def in_order(self) -> Iterator[tuple[str, EmbeddedServer]]:
        """Yield each server with its name, to be entered before the next one is asked for."""
        yield "Valkey", self._valkey
        yield "Triton with SmolLM2-135M", self._triton
        yield "a worker", self._worker

    @cached_property
    def _worker(self) -> WorkerProcess:
        # A port is known only when its server has started.
        return WorkerProcess(worker_configuration(self.redis_url, self.triton_url))

    @property
    def redis_url(self) -> str:
        """Where Valkey is."""
        return self._valkey.url

    @property
    def triton_url(self) -> str:
        """Where Triton is."""
        return self._triton.url

    @property
    def configuration_file(self) -> Path:
        """The worker's configuration."""
        return self._worker.configuration_file

    @contextmanager
    def connected(self) -> Iterator[tuple[redis.Redis, Keys]]:
        """Give a client of Valkey and the worker's keys."""
        client = redis_client(self.redis_url)
        try:
            yield client, Keys(_NAMESPACE)
        finally:
            client.close()

    def are_running(self) -> bool:
        """Tell whether all of them still run."""
        return all(server.is_running() for server in (self._valkey, self._triton, self._worker))

    def last_words(self) -> str:
        """Return the end of the worker's log as one line."""
        return log_tail(self._worker.log)


def worker_configuration(redis_url: str, triton_url: str) -> dict[str, Any]:
    """Return a whole worker's configuration for the sample model."""
    return {
        "worker_id": "demo",
        "redis_url": redis_url,
        "namespace": _NAMESPACE,
        "runtime_endpoint": triton_url,
        "supported_models": [_MODEL],
        "runtime_config": {
            "model_name": "smollm2",
            "max_tokens_limit": 512,
            "options": {"temperature": "temperature", "top_p": "top_p", "seed": "seed"},
            "finish_reason_output_name": "finish_reason",
        },
        # What the sample model does at once; more would wait within Triton.
        "concurrency": 4,
        "heartbeat_seconds": 1,
        "drain_seconds": 2,
    }
