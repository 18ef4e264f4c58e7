"""The embedded servers leave no process and no file behind, however the program that runs them ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

PROGRAM = Path(__file__).with_name("sandbox_program.py")
MODELS = Path(__file__).parents[1] / "models"
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Running:
    """A program with both servers: itself, all that runs beneath it, and the files that exist because of it."""

    program: subprocess.Popen[bytes]
    processes: list[psutil.Process]
    files: list[Path]
    forked: int | None


@contextmanager
def running(how: str) -> Iterator[Running]:
    """Start the program, wait until its servers are ready, and end what a failed test left of it."""
    shared_before = set(SHARED_MEMORY.iterdir())
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, str(PROGRAM), how], stdout=subprocess.PIPE, cwd=root) as program:
        assert program.stdout is not None
        ready = json.loads(program.stdout.readline())
        processes = psutil.Process(program.pid).children(recursive=True)
        files = [Path(name) for name in ready["directories"]]
        # The other tests' Triton may be among the shared memory that is new, so only what has our servers' prefix is.
        files += shared_memory_of(processes) & (set(SHARED_MEMORY.iterdir()) - shared_before)
        try:
            yield Running(program, processes, files, ready["forked"])
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            program.kill()


def shared_memory_of(processes: list[psutil.Process]) -> set[Path]:
    """The shared memory regions that the processes have mapped."""
    maps = (mapped.path for process in processes for mapped in process.memory_maps())
    return {Path(path) for path in maps if path.startswith(f"{SHARED_MEMORY}/")}


def names(processes: list[psutil.Process]) -> set[str]:
    """The programs that run, by the start of their names (the system cuts them)."""
    return {process.name()[:12] for process in processes}


def what_is_left(ran: Running) -> list[object]:
    """Processes that still run and files that still exist."""
    processes = [process for process in ran.processes if process.is_running() and process.pid != ran.forked]
    return [*processes, *(file for file in ran.files if file.exists())]


@pytest.mark.parametrize("how", ["plain", "gevent", "short-thread", "fork"])
def test_kill_9_of_the_program_leaves_no_process_and_no_file(how: str) -> None:
    """Servers, model processes, directories and shared memory go within seconds after the program was killed."""
    with running(how) as ran:
        assert {"valkey-serve", "tritonserver", "triton_pytho"} <= names(ran.processes)
        assert len(ran.files) == 3

        ran.program.kill()
        ran.program.wait()

        wait_until(lambda: not what_is_left(ran), description="all that the program started is gone")


@pytest.mark.parametrize("how", ["plain", "gevent"])
def test_ctrl_c_leaves_no_process_and_no_file(how: str) -> None:
    """Ctrl-C ends the program in order: when it is gone, so is everything else."""
    with running(how) as ran:
        ran.program.send_signal(signal.SIGINT)
        ran.program.wait()

        assert what_is_left(ran) == []


def test_a_killed_keeper_takes_its_server_along() -> None:
    """Even the death of the process that cleans up leaves no server running."""
    with ValkeyServer() as server:
        assert server.pid is not None
        process = psutil.Process(server.pid)
        directory = server.directory
        keeper = process.parent()
        assert keeper is not None

        keeper.kill()

        wait_until(lambda: not process.is_running(), description="the server is gone")
        server.stop()
        assert not directory.exists()


def test_model_processes_that_survive_a_crash_of_triton_are_ended_with_it() -> None:
    """A crashed Triton leaves its model processes running; stopping the server ends them."""
    with TritonServer(MODELS, control="explicit", models=["text_generation"]) as server:
        assert server.pid is not None
        process = psutil.Process(server.pid)
        stubs = process.children(recursive=True)
        assert names(stubs) == {"triton_pytho"}
        process.send_signal(signal.SIGSEGV)
        wait_until(lambda: not server.is_running(), description="the server has crashed")

    assert [stub for stub in stubs if stub.is_running()] == []
