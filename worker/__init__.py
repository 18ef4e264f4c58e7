"""How jobs are run: Redis, Triton, processes, time and commands. docs/architecture.md is the map of this package."""

from typing import Final

DISTRIBUTION: Final = "speedinfer-triton-worker"
"""What this is installed as; its version is the worker's."""
