"""Where an embedded server lives: a free loopback port, a directory of its own, the packages that bring it."""

import importlib.util
import socket
import tempfile
from pathlib import Path

from worker.sandbox.errors import SandboxUnavailable

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A loopback TCP port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def temporary_directory(purpose: str) -> Path:
    """A new private directory, named so that a stray one can be told apart."""
    return Path(tempfile.mkdtemp(prefix=f"speedinfer-{purpose}-"))


def package_directory(module: str, distribution: str) -> Path:
    """The directory of an installed package, found without importing it (some of them need what we do not install).

    Raises SandboxUnavailable when the distribution is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise SandboxUnavailable(
            f"{distribution} is not installed: install this project with its extra 'demo' (Linux, Python 3.11 or 3.12)"
        )
    return Path(spec.submodule_search_locations[0])


def log_tail(log: Path, lines: int = 8) -> str:
    """The last lines of a server's log, joined by ' | '; empty when there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())


SAMPLE_MODELS = Path(__file__).parent / "models"
"""The model repository of the demo: ``smollm2``, a real language model that runs on a CPU."""
