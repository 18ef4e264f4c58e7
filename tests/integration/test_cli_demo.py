"""``speedinfer demo``: real prompts get real texts, and nothing is left behind, however it ends."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.integration.command import objects, run
from tests.waiting import wait_until

_MARK = "DEMO_UNDER_TEST"
_MODELS = Path(__file__).parents[2] / "worker" / "sandbox" / "models"


@dataclass(frozen=True)
class Demo:
    """A demo that runs; everything it starts inherits the mark and writes its files below ``directory``."""

    program: subprocess.Popen[str]
    mark: str
    directory: Path

    def says(self, words: str) -> str:
        """Read on to the line with these words, and return it."""
        assert self.program.stdout is not None
        for line in self.program.stdout:
            if words in line:
                return line.strip()
        raise AssertionError(f"the demo ended without saying {words!r}: {self.program.communicate()}")

    def processes(self) -> list[psutil.Process]:
        """Everything that runs because of the demo, itself included."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def assert_nothing_is_left(self, shared_memory: set[str]) -> None:
        """No process and no file stays."""
        wait_until(lambda: not self.processes(), description="every process of the demo has ended", timeout=20)
        wait_until(lambda: not list(self.directory.iterdir()), description="its files are deleted", timeout=10)
        assert not [name for name in shared_memory if Path(name).exists()]


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[Demo]:
    """Start the demo, and end what a failed test leaves of it."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    mark = uuid.uuid4().hex
    env = {**os.environ, _MARK: mark, "TMPDIR": str(directory)}
    command = [sys.executable, "-m", "worker.cli", "demo", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as program:
        running = Demo(program, mark, directory)
        try:
            yield running
        finally:
            for process in running.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def shared_memory_of(processes: list[psutil.Process]) -> set[str]:
    """The shared memory files that the processes have mapped."""
    found = set()
    for process in processes:
        with suppress(psutil.Error):
            found |= {mapped.path for mapped in process.memory_maps() if mapped.path.startswith("/dev/shm/")}
    return found


def worker_state(config: str) -> str:
    """The state that status shows of the one worker; it lapses where a busy machine stalls it for some heartbeats."""
    (status,) = objects(run("status", SPEEDINFER_CONFIG=config))
    (worker,) = status["workers"]
    return str(worker["state"])


def test_the_demo_shows_real_texts_with_their_usage_and_a_coded_error(tmp_path: Path) -> None:
    """Every prompt is settled; the bad job has its code; the user learns what to do next; nothing stays."""
    before = set(_MODELS.rglob("*"))
    with demo(tmp_path) as running:
        output, errors = running.program.communicate(timeout=100)
        assert running.program.returncode == 0, errors
        running.assert_nothing_is_left(set())
    assert "How many days are in a week?" in output
    generated = re.search(r"^12 jobs settled in [\d.]+ s, (\d+) tokens generated\.$", output, re.MULTILINE)
    assert generated is not None
    assert int(generated[1]) >= 100
    assert "failed, invalid_job: " in output
    assert "speedinfer demo --keep" in output
    assert errors == ""
    assert set(_MODELS.rglob("*")) == before


def test_a_demo_that_is_kept_can_be_played_with_until_ctrl_c(tmp_path: Path) -> None:
    """The commands it prints work; Ctrl-C ends it with 130 and without a trace."""
    with demo(tmp_path, "--keep") as running:
        config = running.says("export SPEEDINFER_CONFIG=").partition("=")[2]
        answer = run("submit", "Say hello.", "--max-tokens", "8", "--wait", "--timeout", "60", SPEEDINFER_CONFIG=config)
        (result,) = objects(answer)
        (check,) = objects(run("check", "--strict", SPEEDINFER_CONFIG=config))
        wait_until(lambda: worker_state(config) == "ready", description="the worker is shown as ready")
        shared_memory = shared_memory_of(running.processes())
        running.program.send_signal(signal.SIGINT)
        _, errors = running.program.communicate(timeout=30)
        running.assert_nothing_is_left(shared_memory)
    assert result["usage"]["completion_tokens"] > 0
    assert check["ok"]
    assert shared_memory
    assert running.program.returncode == 130
    assert errors == ""


@pytest.mark.parametrize(
    ("number", "returncode"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_demo_that_is_ended_while_it_starts_leaves_nothing(
    number: signal.Signals, returncode: int, tmp_path: Path
) -> None:
    """Whatever the signal, and even if it cannot be caught."""
    with demo(tmp_path) as running:
        running.says("starting Triton")
        running.program.send_signal(number)
        _, errors = running.program.communicate(timeout=30)
        running.assert_nothing_is_left(set())
    assert running.program.returncode == returncode
    assert errors == ""
