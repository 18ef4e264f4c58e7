"""What became of a batch's lines, added up."""

from collections import Counter
from dataclasses import dataclass, field

from tasks.usage import Usage


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a written line says: the code of its failure, None of a success, and the tokens that it spent."""

    code: str | None
    usage: Usage | None


@dataclass(slots=True)
class Counts:
    """How many lines are written, and what they spent; ``failures`` is by code."""

    succeeded: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count a line that is written."""
        if outcome.code is None:
            self.succeeded += 1
        else:
            self.failures[outcome.code] += 1
        if outcome.usage is not None:
            self.prompt_tokens += outcome.usage.prompt_tokens
            self.completion_tokens += outcome.usage.completion_tokens

    @property
    def failed(self) -> int:
        """Return how many lines failed."""
        return self.failures.total()

    @property
    def written(self) -> int:
        """Return how many lines are written."""
        return self.succeeded + self.failed

    @property
    def total_tokens(self) -> int:
        """Return all tokens that were spent, of prompts and of texts."""
        return self.prompt_tokens + self.completion_tokens
