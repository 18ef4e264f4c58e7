"""docs/troubleshooting.md: what it says that people see is still printed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tasks.errors import ErrorCode
from tests.unit.test_architecture import ROOT, modules

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def texts(path: Path) -> Iterator[str]:
    """The texts of a module but for docstrings; of one with figures in it, what stands between them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.value


PRINTED = "\n".join(text for path in modules("settings", "tasks", "worker") for text in texts(path))
PRINTED += (ROOT / "Makefile").read_text(encoding="utf-8")


def first_cells(head: str) -> list[str]:
    """The first cell of each row of the tables with this head."""
    tables = re.findall(rf"^\| {head} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [row.split(" | ")[0].removeprefix("| ") for table in tables for row in table.splitlines()]


def test_what_is_seen_is_still_printed() -> None:
    """Each part of it, between names and figures, stands in one text of the code."""
    words = [words for cell in first_cells("what you see") for words in re.findall(r"`([^`]+)`", cell)]
    assert len(words) > 50
    parts = [part.strip(" ;,:") for each in words for part in each.split("…")]
    missing = [part for part in parts if part and part not in PRINTED]
    assert missing == []


def test_every_complaint_of_the_log_is_on_the_page() -> None:
    """What is logged as a warning or worse, and no event that is not logged at all."""
    logged, complaints = set[str](), set[str]()
    for path in modules("worker"):
        source = path.read_text(encoding="utf-8")
        logged |= set(re.findall(r'"([a-z_]+\.[a-z_]+)"', source))
        complaints |= set(re.findall(r'log\.(?:warning|error|critical|exception)\(\s*"([a-z_]+\.[a-z_]+)"', source))
    named = {event for cell in first_cells("event") for event in re.findall(r"`([^`]+)`", cell)}
    assert complaints - named == set()
    assert named - logged == set()


def test_every_code_is_on_the_page() -> None:
    """Each that a result may have."""
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells("code")))) == sorted(ErrorCode)
