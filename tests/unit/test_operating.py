"""docs/operating.md and the code say the same."""

import re
from pathlib import Path

from worker.explain import Kind

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


def test_every_kind_of_reason_is_on_the_page() -> None:
    """In the order of the code, which is the order of what is said first."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE.partition("| kind |")[2], re.MULTILINE)
    assert [kind for row in rows for kind in re.findall(r"\w+", row)] == [kind.value for kind in Kind]


def test_links_lead_to_pages_that_exist() -> None:
    """Of this folder."""
    linked = set(re.findall(r"\]\(([\w-]+\.md)", PAGE))
    assert linked
    assert all((Path(__file__).parents[2] / "docs" / page).exists() for page in linked)
