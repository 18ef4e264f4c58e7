"""Virtual environments of the other queues: each has one of its own, made by pip when it is first needed and kept in the user's cache.

None of their packages is ever installed where this project is.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_DONE: Final = "complete"
_LONGEST_SECONDS: Final = 600


class NotInstalled(Exception):
    """The packages of an environment could not be had."""


def environment(name: str, requirements: Sequence[str], say: Callable[[str], None]) -> Path:
    """Return the folder of programs of an environment that holds these packages, made if need be.

    Raises:
        NotInstalled: it could not be made.
    """
    folder = cache_folder() / f"{name}-{_digest(requirements)}"
    if not (folder / _DONE).exists():
        say(f"{name}: making a virtual environment in {folder}")
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check", "--no-input"]
        _run([*pip, "install", *requirements])
        (folder / _DONE).touch()
    return folder / "bin"


def cache_folder() -> Path:
    """Return where the environments are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "speedinfer-benchmarks"


def _digest(requirements: Sequence[str]) -> str:
    return hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:12]


def _run(command: Sequence[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not done within {_LONGEST_SECONDS} s") from None
    if ran.returncode != 0:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise NotInstalled(errors[-1])
