"""Pages that name the tests of their promises name tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def existing_tests() -> set[str]:
    """The name of every test, as a function of some test module."""
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", ["guarantees", "pool"])
def test_every_test_that_a_promise_names_exists(page: str) -> None:
    """Each of them."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / f"docs/{page}.md").read_text()))
    assert len(named) > 10
    assert named - existing_tests() == set()
