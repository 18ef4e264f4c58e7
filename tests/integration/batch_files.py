"""Inputs and outputs of ``speedinfer batch`` in a folder of the test's own."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.testing import Result

from tests.integration.command import run
from tests.openai_lines import Parsed, parsed

MODEL = "acme/model-1"


class BatchFiles:
    """A folder with an input, and what a command made of it."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.source = folder / "in.jsonl"
        self.output = folder / "out.jsonl"
        self.errors = folder / "err.jsonl"
        self.journal = folder / "out.jsonl.journal"

    def write(self, lines: Iterable[Any]) -> None:
        """Write the input: objects as JSON, texts as they are."""
        self.source.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))

    def write_prompts(self, count: int) -> list[str]:
        """Write an input of so many plain lines; return their prompts."""
        prompts = [f"prompt {number}" for number in range(1, count + 1)]
        self.write({"prompt": prompt, "max_tokens": 8} for prompt in prompts)
        return prompts

    def command(self, *options: str, source: Path | None = None) -> list[str]:
        """The command's words."""
        here = ["--redis-url", self.redis_url, "--model", MODEL]
        return ["batch", str(source or self.source), "--output", str(self.output), *here, *options]

    def run(self, *options: str, source: Path | None = None, **environment: str) -> Result:
        """Run the command to its end, in this process."""
        return run(*self.command(*options, source=source), **environment)

    def summary(self, *options: str, exit_code: int = 0, source: Path | None = None) -> Any:
        """Run the command to its end; return its summary."""
        result = self.run(*options, source=source)
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    def results(self) -> list[Parsed]:
        """The output's lines, read by OpenAI's types."""
        return list(self._lines(self.output))

    def failures(self) -> list[Parsed]:
        """The lines of the file for errors."""
        return list(self._lines(self.errors))

    @property
    def texts(self) -> list[str | None]:
        """The texts in the output, in its order."""
        return [line.text for line in self.results()]

    @staticmethod
    def _lines(path: Path) -> Iterator[Parsed]:
        yield from (parsed(line) for line in path.read_bytes().splitlines())
