"""The tritonserver inside the nvidia-pytriton wheel: where its parts are, and whether this machine can run them."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from worker.sandbox.errors import SandboxUnavailable
from worker.sandbox.places import package_directory

MINIMUM_GLIBC = (2, 35)
STUB_CHECK_SECONDS = 20
LOADER_FAILED = 127


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """The server's files, and the environment in which its Python models find this interpreter and its packages."""

    server: Path
    backends: Path
    stub: Path
    environment: Mapping[str, str]

    def make_backend_directory(self, parent: Path) -> Path:
        """Make a backend directory with the stub of this Python version beside the python backend; return its path.

        Symlinks, because the libraries look for their own libraries relative to where they really are.
        """
        python = parent / "backends" / "python"
        python.mkdir(parents=True)
        for file in (*self.backends.joinpath("python").glob("*.*"), self.stub):
            if file.is_file():
                python.joinpath(file.name).symlink_to(file)
        return python.parent


def find_triton() -> TritonInstallation:
    """The embedded server, checked.

    Raises SandboxUnavailable with everything that stands in the way, and its remedy, in one message.
    """
    root = package_directory("pytriton", "nvidia-pytriton") / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    installation = TritonInstallation(
        server=root / "bin" / "tritonserver",
        backends=root / "backends",
        stub=root / "python_backend_stubs" / version / "triton_python_backend_stub",
        environment=environment_of(Path(sys.executable), libpython_directory()),
    )
    problems = list(problems_of(installation))
    if problems:
        raise SandboxUnavailable("the embedded Triton cannot run here: " + "; ".join(problems))
    return installation


def environment_of(python: Path, libpython: Path | None) -> dict[str, str]:
    """The environment for the server: its Python models use the first ``python3`` on PATH, and no PYTHONPATH."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH"}
    }
    environment["PATH"] = os.pathsep.join(filter(None, (str(python.parent), os.environ.get("PATH"))))
    if libpython is not None:
        environment["LD_LIBRARY_PATH"] = str(libpython)
    return environment


def libpython_directory() -> Path | None:
    """The directory of this interpreter's own shared library; None leaves the search to the system."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    candidates = (
        Path(sys.base_prefix, "lib"),
        Path(sys.base_prefix, "lib64"),
        Path(sysconfig.get_config_var("LIBDIR") or "/nonexistent"),
    )
    return next((directory for directory in candidates if directory.joinpath(name).exists()), None)


def problems_of(installation: TritonInstallation) -> Iterator[str]:
    """Say, one phrase each, what keeps the server or its Python models from running."""
    yield from platform_problems(platform.system(), platform.machine(), platform.libc_ver())
    yield from numpy_problems(importlib.metadata.version("numpy"))
    if not Path(sys.executable).with_name("python3").exists():
        yield f"there is no python3 beside {sys.executable}: make the environment anew with 'python3 -m venv'"
    if not installation.server.exists():
        yield f"{installation.server} is missing: install nvidia-pytriton anew"
    if not installation.stub.exists():
        yield f"nvidia-pytriton has no stub for Python {platform.python_version()}: use Python 3.11 or 3.12"
    elif not stub_starts(installation):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        yield (
            f"libpython{version}.so.1.0 is missing: install it ('apt install libpython{version}'), "
            "or use a Python built with --enable-shared"
        )


def platform_problems(system: str, machine: str, libc: tuple[str, str]) -> Iterator[str]:
    """Say what of the operating system does not fit the wheel."""
    if system != "Linux" or machine not in {"x86_64", "aarch64"}:
        yield f"it runs on Linux x86_64 and aarch64, not on {system} {machine}"
    elif libc[0] != "glibc" or version_tuple(libc[1]) < MINIMUM_GLIBC:
        yield f"it needs glibc 2.35 (Debian 12, Ubuntu 22.04 or newer), not {' '.join(libc).strip() or 'another libc'}"


def numpy_problems(version: str) -> Iterator[str]:
    """Say so when this numpy would feed garbage to the models, which is what the stubs make of numpy 2."""
    if version_tuple(version)[0] >= 2:
        yield f"its Python models need numpy 1.26, not {version}: install 'numpy<2' beside it"


def version_tuple(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, (0,) when there is none."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers) or (0,)


def stub_starts(installation: TritonInstallation) -> bool:
    """Whether the model process finds its shared libraries; without them the server waits for it for ever."""
    result = subprocess.run(  # noqa: S603 - a file of the wheel
        [installation.stub],
        env=dict(installation.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=STUB_CHECK_SECONDS,
        check=False,
    )
    return result.returncode != LOADER_FAILED
