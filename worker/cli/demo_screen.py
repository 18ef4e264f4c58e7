"""What the demo shows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from worker.cli.output import console, escaped

if TYPE_CHECKING:
    from tasks.result import GenerateResult
    from tasks.tensor_result import Result

_WIDTH_WITHOUT_TERMINAL = 120

_NEXT = """\
What to try next:
  speedinfer demo --keep                    leave it all running, with commands to play with
  speedinfer check --config worker.json     does your own Triton's model fit a configuration?
  speedinfer worker --config worker.json    run its jobs; docs/configuration.md has every field
"""

_COMMANDS = """\
All of it goes on running until Ctrl-C. In another terminal (the same directory and environment):
  export SPEEDINFER_CONFIG={config}
  speedinfer submit "Why is the sky blue?" --max-tokens 60 --wait
  speedinfer status
  speedinfer settlements --text
  speedinfer settlements --follow --json
  speedinfer check
Valkey is at {redis_url}, Triton at {triton_url}; the worker's log is {log}
"""


class Screen:
    """Writes to stdout: with colour and movement on a terminal, as plain lines elsewhere."""

    def __init__(self) -> None:
        """Look at what stdout is."""
        self._console = console(width_without_terminal=_WIDTH_WITHOUT_TERMINAL)

    def say(self, line: str) -> None:
        """Write one line."""
        self._console.print(line, soft_wrap=True)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Show that something is under way."""
        if not self._console.is_terminal:
            self.say(f"{what} …")
            yield
            return
        with self._console.status(Text(what)):
            yield

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[], None]]:
        """Show a bar; gives what moves it by one job."""
        columns = (TextColumn("jobs settled"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, disable=not self._console.is_terminal) as progress:
            task = progress.add_task("", total=total)
            yield lambda: progress.advance(task)

    def results(self, settled: "Sequence[tuple[str, GenerateResult]]", seconds: float) -> None:
        """Show each prompt with what became of it."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("prompt", ratio=3)
        table.add_column("text", ratio=5)
        for heading in ("prompt\ntokens", "completion\ntokens", "queued\nms", "inference\nms"):
            table.add_column(heading, justify="right", no_wrap=True)
        for prompt, result in settled:
            table.add_row(*map(Text, _row(prompt, result)))
        self._console.print()
        self._console.print(table)
        tokens = sum(result.usage.completion_tokens for _, result in settled if result.usage)
        self.say(f"{len(settled)} jobs settled in {seconds:.1f} s, {tokens} tokens generated.")

    def failure(self, what_is_wrong: str, result: "Result") -> None:
        """Show how a job that is not valid is settled."""
        self.say("")
        self.say(f"A job that {what_is_wrong} is settled without reaching Triton:")
        if result.error is not None:
            self.say(f"  {result.status}, {result.error.code}: {result.error.message}")
        self.say("")

    def whats_next(self) -> None:
        """Say what to do after the demo."""
        self.say(_NEXT)

    def commands(self, config: Path, redis_url: str, triton_url: str) -> None:
        """Say what can be done with what goes on running."""
        log = config.with_name("worker.log")
        self.say(_COMMANDS.format(config=config, redis_url=redis_url, triton_url=triton_url, log=log))


def _row(prompt: str, result: "GenerateResult") -> Iterator[str]:
    yield escaped(prompt)
    yield escaped(" ".join((result.text or (result.error and result.error.code) or "").split()))
    usage, timings = result.usage, result.timings
    yield str(usage.prompt_tokens) if usage else "-"
    yield str(usage.completion_tokens) if usage else "-"
    for milliseconds in (timings.queued_ms, timings.inference_ms):
        yield "-" if milliseconds is None else str(milliseconds)
