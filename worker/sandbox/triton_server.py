"""A real tritonserver on loopback, for the demo and the tests: no container and no GPU."""

import http.client
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NoReturn

from worker.sandbox.embedded_server import EmbeddedServer
from worker.sandbox.places import LOOPBACK, free_port, temporary_directory
from worker.sandbox.triton_installation import TritonInstallation, find_triton

ModelControl = Literal["none", "explicit", "poll"]


class TritonServer(EmbeddedServer):
    """A real Triton with the given model repositories.

    ``models`` (with ``control="explicit"``) names what is loaded at start. ``environment`` is added to what the
    Python models see. ``auto_complete`` lets Triton fill in incomplete model configurations, at the price of a second
    at start. ``exit_on_error`` False keeps a server up whose models fail to load; ``strict_readiness`` False calls it
    ready all the same. ``own_copy`` serves a copy of the repositories that goes with the server, so nothing is written into them.
    ``address`` is where it listens, also for its metrics.
    """

    name = "tritonserver"

    def __init__(  # noqa: PLR0913 - each is an option of the server, given by name
        self,
        model_repository: Path | Sequence[Path],
        *,
        control: ModelControl = "none",
        models: Sequence[str] = (),
        metrics: bool = False,
        auto_complete: bool = False,
        strict_readiness: bool = True,
        exit_on_error: bool = True,
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
        start_timeout_seconds: float = 60.0,
        exit_timeout_seconds: int = 1,
        extra_arguments: Sequence[str] = (),
        own_copy: bool = False,
        address: str = LOOPBACK,
    ) -> None:
        super().__init__(
            port=port, start_timeout_seconds=start_timeout_seconds, stop_grace_seconds=exit_timeout_seconds + 1
        )
        self.server_id = str(uuid.uuid4())
        self.repositories = (model_repository,) if isinstance(model_repository, Path) else tuple(model_repository)
        self._own_copy = own_copy
        self._address = address
        self.metrics_port = free_port() if metrics else None
        self._options = (
            f"--exit-timeout-secs={exit_timeout_seconds}",
            f"--exit-on-error={str(exit_on_error).lower()}",
            f"--strict-readiness={str(strict_readiness).lower()}",
            f"--model-control-mode={control}",
            *(f"--load-model={model}" for model in models),
            *([] if auto_complete else ["--disable-auto-complete-config"]),
            *extra_arguments,
        )
        self._added_environment = dict(environment or {})
        self._shm_prefix = f"speedinfer_{uuid.uuid4().hex[:12]}_"
        self._found: TritonInstallation | None = None

    @property
    def url(self) -> str:
        """The HTTP endpoint, as the worker's configuration takes it."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def metrics_url(self) -> str | None:
        """Where Triton's own metrics are, None unless they were asked for."""
        return None if self.metrics_port is None else f"http://{LOOPBACK}:{self.metrics_port}/metrics"

    def become(self) -> NoReturn:
        """Replace this process by the server, whose log goes where this one's did: for a container, whose end removes its files.

        Raises SandboxUnavailable where it cannot run.
        """
        self._check()
        self._directory = temporary_directory(self.name)
        self._prepare(self._directory)
        command = list(self._command())
        os.execve(command[0], command, dict(self._environment()))  # noqa: S606 - a file of the wheel

    @property
    def _installation(self) -> TritonInstallation:
        self._found = self._found or find_triton()
        return self._found

    def _check(self) -> None:
        self._found = find_triton()

    def _prepare(self, directory: Path) -> None:
        self._installation.make_backend_directory(directory)
        if self._own_copy:
            for n, repository in enumerate(self.repositories):
                shutil.copytree(repository, self._copy_of(n))

    def _copy_of(self, n: int) -> Path:
        return self.directory / f"models-{n}"

    def _served(self) -> Sequence[Path]:
        if self._own_copy:
            return [self._copy_of(n) for n in range(len(self.repositories))]
        return [repository.absolute() for repository in self.repositories]

    def _leavings(self) -> Sequence[str]:
        return (f"/dev/shm/{self._shm_prefix}*",)  # noqa: S108 - where the system keeps shared memory

    def _environment(self) -> Mapping[str, str]:
        return {**self._installation.environment, **self._added_environment}

    def _command(self) -> Sequence[str]:
        return (
            str(self._installation.server),
            *(f"--model-repository={repository}" for repository in self._served()),
            f"--backend-directory={self.directory / 'backends'}",
            f"--id={self.server_id}",
            f"--http-address={self._address}",
            f"--http-port={self.port}",
            "--allow-grpc=false",
            *self._metrics_arguments(),
            "--pinned-memory-pool-byte-size=0",
            # Two servers with one prefix would use each other's shared memory.
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
            "--backend-config=python,shm-default-byte-size=1048576",
            *self._options,
        )

    def _metrics_arguments(self) -> Iterator[str]:
        if self.metrics_port is None:
            yield "--allow-metrics=false"
            return
        yield f"--metrics-address={self._address}"
        yield f"--metrics-port={self.metrics_port}"
        yield "--allow-gpu-metrics=false"

    def _is_ready(self) -> bool:
        # HTTP opens when the models are loaded; the name tells this server from another that got the port first.
        return server_name(self.port) == self.server_id


def server_name(port: int) -> str | None:
    """What the server on this loopback port calls itself in ``GET /v2``, None when there is no such server."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", "/v2")
        name = json.loads(connection.getresponse().read())["name"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    else:
        return name if isinstance(name, str) else None
    finally:
        connection.close()
