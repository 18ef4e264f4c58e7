"""The demo's Triton alone, in a container: ``python -m worker.sandbox.serve ADDRESS``, and ``--is-ready`` for its health check."""

import sys
import urllib.error
import urllib.request
from typing import Final

from worker.sandbox.errors import SandboxError
from worker.sandbox.places import LOOPBACK, SAMPLE_MODELS
from worker.sandbox.triton_server import TritonServer

_PORT: Final = 8000
_METRICS_PORT: Final = 8002


def main(argument: str) -> int:
    """Become the server, listening at the address; or tell whether the one on this machine is ready."""
    if argument == "--is-ready":
        return 0 if is_ready(_PORT) else 1
    server = TritonServer(
        SAMPLE_MODELS,
        control="explicit",
        models=["smollm2"],
        own_copy=True,
        metrics=True,
        port=_PORT,
        address=argument,
        exit_timeout_seconds=8,
    )
    server.metrics_port = _METRICS_PORT
    try:
        server.become()
    except SandboxError as error:
        sys.stderr.write(f"serve: {error}\n")
        return 1


def is_ready(port: int) -> bool:
    """Tell whether the Triton on this port of loopback has its models loaded."""
    url = f"http://{LOOPBACK}:{port}/v2/health/ready"
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else LOOPBACK))
