"""A batch on real workers, ended by kill -9 again and again: in the end there is one line for each line of the input."""

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance.fleet import BIN, ROOT, Client, Fleet, WorkerProcess, models, run
from tests.acceptance.gateway import entries
from tests.openai_lines import parsed
from tests.waiting import wait_until

KILLS: Final = 3
MOST_MEMORY_KB: Final = 150 * 1024
TEMPLATE: Final = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"

BEHIND: Final[Mapping[str, Any]] = {
    "lease_seconds": 1,
    "concurrency": 32,
    # A killed worker's slots stay taken for as long as its inferences may take; here they are in nobody's way.
    "gpu_pool": {"max_concurrency": 256},
    **models(**{"model-1": {"model_name": "empty", "chat_template": TEMPLATE}}),
}
"""Of the workers, and so of the command: a model that answers at once."""


def line(number: int) -> str:
    """A line of the input: mostly plain, some of OpenAI's, some bad."""
    match number % 50:
        case 7:
            return "{no JSON"
        case 8:
            body: dict[str, Any] = {"messages": [{"role": "user", "content": f"Hello {number}"}], "max_tokens": 4}
            url = "/v1/chat/completions"
        case 9:
            body = {"model": "acme/model-1", "prompt": f"Hello {number}", "max_tokens": 4}
            url = "/v1/completions"
        case _:
            return json.dumps({"prompt": f"Hello {number}", "max_tokens": 4})
    return json.dumps({"custom_id": f"row-{number}", "method": "POST", "url": url, "body": body})


class MemoryWatch:
    """Reads the most memory that a process has had, again and again: what the system tells at its end counts its parent's too."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._most_kb = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def ended(self) -> int:
        """Return it, in KB, once the process has ended."""
        self._thread.join(10)
        assert self._most_kb
        return self._most_kb

    def _watch(self) -> None:
        while (found := self._peak_kb()) is not None:
            self._most_kb = found
            time.sleep(0.02)

    def _peak_kb(self) -> int | None:
        try:
            lines = self._status.read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


@dataclass(frozen=True)
class Files:
    """A batch's files, and the configuration that its command is given."""

    folder: Path
    config: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    watches: dict[int, MemoryWatch] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        """Where result lines go."""
        return self.folder / "out.jsonl"

    @property
    def command(self) -> list[str]:
        """The command's words."""
        words = ["speedinfer", "batch", str(self.folder / "in.jsonl"), "--output", str(self.output)]
        return [*words, "--config", str(self.config)]

    def write(self, count: int) -> None:
        """Write an input of so many lines."""
        with (self.folder / "in.jsonl").open("w") as source:
            source.writelines(f"{line(number)}\n" for number in range(1, count + 1))

    def has_written(self, count: int) -> bool:
        """Whether so many lines are written."""
        if not self.output.exists():
            return False
        with self.output.open("rb") as stream:
            return sum(1 for _ in stream) >= count

    def contents(self) -> tuple[bytes, bytes]:
        """The output, and the journal beside it."""
        return self.output.read_bytes(), self.output.with_name("out.jsonl.journal").read_bytes()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command."""
        program, *words = self.command
        self.started.append(subprocess.Popen([str(BIN / program), *words], cwd=ROOT, stdout=subprocess.DEVNULL))
        self.watches[self.started[-1].pid] = MemoryWatch(self.started[-1].pid)
        return self.started[-1]

    def ended(self, process: subprocess.Popen[bytes], *, kill: bool) -> int:
        """Return the most memory that a command had, in KB, once it has ended."""
        if kill:
            process.kill()
        process.wait()
        return self.watches[process.pid].ended()


@pytest.fixture
def files(fleet: Fleet, tmp_path: Path) -> Iterator[Files]:
    """A folder of the test's own; no command outlives the test."""
    made = Files(tmp_path, fleet.write(fleet.configuration(worker_id="batch", **BEHIND)))
    yield made
    for process in made.started:
        process.kill()


def killed_again_and_again(fleet: Fleet, files: Files, count: int) -> list[int]:
    """Run a batch of so many lines through kills of command and worker; return the memory of each of its commands."""
    memory = []
    worker: WorkerProcess | None = None
    for kill in range(KILLS):
        worker = fleet.start(worker_id=f"triton-{kill}", until=(), **BEHIND)
        process = files.start()
        goal = count * (kill + 1) // (KILLS + 1)
        wait_until(partial(files.has_written, goal), description=f"{goal} lines are written", timeout=count / 50)
        worker.kill()
        memory.append(files.ended(process, kill=True))
    fleet.start(worker_id="the-last", until=(), **BEHIND)
    last = files.start()
    memory.append(files.ended(last, kill=False))
    assert last.returncode == 1  # There are bad lines.
    return memory


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_a_batch_whose_command_and_worker_are_killed_has_one_line_for_each_of_its_input(
    fleet: Fleet, valkey: Client, files: Files, count: int
) -> None:
    """Each line is one that OpenAI's types read, each job is settled once, memory is flat, and a second run changes nothing."""
    files.write(count)

    memory = killed_again_and_again(fleet, files, count)

    numbers = Counter[int]()
    codes = Counter[str | None]()
    with files.output.open("rb") as stream:
        for content in stream:
            said = parsed(content)
            number = int(said.id.rpartition("_")[2])
            numbers[number] += 1
            codes[said.code] += 1
            assert said.custom_id == (f"row-{number}" if number % 50 in (8, 9) else f"line-{number}")
            assert (said.code == "invalid_line") == (number % 50 == 7)
    assert numbers == dict.fromkeys(range(1, count + 1), 1)
    assert codes == {"invalid_line": count // 50, None: count - count // 50}
    settled = Counter(entry["job_id"] for entry in entries(valkey))
    assert len(settled) == count - count // 50
    assert set(settled.values()) == {1}
    assert max(memory) < MOST_MEMORY_KB

    before = files.contents()
    assert run(*files.command).code == 1
    assert files.contents() == before
