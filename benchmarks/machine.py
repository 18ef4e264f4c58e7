"""What the figures were measured on: the machine, and the versions of all that took part."""

import json
import os
import platform
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

import psutil
import redis

_DISTRIBUTIONS: Final = (
    "speedinfer-triton-worker",
    "celery",
    "kombu",
    "gevent",
    "redis",
    "hiredis",
    "pydantic",
    "tritonclient",
    "geventhttpclient",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine at one time."""

    date: str
    cores: int
    cpu: str
    memory_gb: float
    system: str
    load_before: float
    versions: Mapping[str, str]

    @property
    def is_busy(self) -> bool:
        """Tell whether others took more than a quarter of the cores before the run."""
        return self.load_before > self.cores / 4

    @classmethod
    def of(cls, redis_url: str, triton_url: str) -> Self:
        """Look at this machine, and ask the servers for their versions."""
        return cls(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            cores=len(os.sched_getaffinity(0)),
            cpu=_cpu_model(Path("/proc/cpuinfo")),
            memory_gb=psutil.virtual_memory().total / 1e9,
            system=f"{platform.system()} {platform.release()}",
            load_before=os.getloadavg()[0],
            versions={
                "Python": platform.python_version(),
                **{name: version(name) for name in _DISTRIBUTIONS},
                "Valkey": _valkey_version(redis_url),
                "Triton": _triton_version(triton_url),
            },
        )


def _cpu_model(cpuinfo: Path) -> str:
    """Return the processor's name where the system tells it."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _valkey_version(redis_url: str) -> str:
    client = redis.Redis.from_url(redis_url)
    info: Any = client.info("server")
    client.close()
    return str(info.get("valkey_version", info["redis_version"]))


def _triton_version(triton_url: str) -> str:
    with urllib.request.urlopen(f"{triton_url}/v2", timeout=5) as answer:  # noqa: S310 - the embedded server's own http URL
        return str(json.load(answer)["version"])
