"""What Triton really was asked, as its models wrote it down themselves."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WITNESS_VARIABLE = "SPEEDINFER_TEST_WITNESS"


@dataclass(frozen=True, slots=True)
class Served:
    """One request that reached a model; times are seconds of this machine's clock, ``finished_at`` None if unanswered."""

    request_id: str
    model: str
    prompt: str
    prompt_sha256: str
    options: dict[str, Any]
    parameters: dict[str, Any]
    started_at: float
    finished_at: float | None


class Witness:
    """Reads what the models ``text_generation`` and ``faulty`` wrote down; the prompt is its first 200 characters."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def served(self, model: str | None = None) -> list[Served]:
        """Every request in the order of arrival, or those of one model."""
        records: list[Served] = []
        open_records: dict[tuple[str, str], list[int]] = {}
        for note in self._notes():
            key = (note["model"], note["request_id"])
            if note["event"] == "started":
                open_records.setdefault(key, []).append(len(records))
                records.append(_served(note))
            elif open_records.get(key):
                index = open_records[key].pop(0)
                records[index] = _finished(records[index], note["at"])
        return [record for record in records if model in {None, record.model}]

    def count(self, model: str | None = None) -> int:
        """How many requests arrived."""
        return len(self.served(model))

    def prompts(self, model: str | None = None) -> list[str]:
        """The prompts in the order of arrival."""
        return [record.prompt for record in self.served(model)]

    def most_at_once(self) -> int:
        """The largest number of requests that were being served at one moment."""
        changes = [(record.started_at, 1) for record in self.served()]
        changes += [(record.finished_at, -1) for record in self.served() if record.finished_at is not None]
        most = now = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        return most

    def clear(self) -> None:
        """Forget everything; the models append, so this is safe while they run."""
        self.path.write_bytes(b"")

    def _notes(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        # A line is written in one call, but it may be read half way.
        lines = self.path.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]


def _served(note: dict[str, Any]) -> Served:
    return Served(
        request_id=note["request_id"],
        model=note["model"],
        prompt=note["prompt"],
        prompt_sha256=note["prompt_sha256"],
        options=note["options"],
        parameters=note["parameters"],
        started_at=note["at"],
        finished_at=None,
    )


def _finished(record: Served, at: float) -> Served:
    return Served(
        request_id=record.request_id,
        model=record.model,
        prompt=record.prompt,
        prompt_sha256=record.prompt_sha256,
        options=record.options,
        parameters=record.parameters,
        started_at=record.started_at,
        finished_at=at,
    )
