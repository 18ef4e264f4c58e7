"""docs/batch.md and the example say what the code does."""

import json
import re
from pathlib import Path

from tests.unit.test_batch_requests import make
from worker.batch.assembly import JOURNAL_SUFFIX
from worker.batch.bad_line import INVALID_LINE
from worker.batch.collecting import RESULT_EXPIRED, RESULT_UNREADABLE
from worker.batch.sending import OUTCOME_UNKNOWN
from worker.batch.table import COLUMNS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/batch.md").read_text()


def test_every_line_that_is_shown_is_a_job() -> None:
    """On the page, and in the file that it names; a chat by a template."""
    lines = re.findall(r"^```json line\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines += (ROOT / "examples/prompts.jsonl").read_text().splitlines()
    assert len(lines) == 8
    for line in lines:
        content = json.loads(line)
        body = content.get("body", content)
        if "messages" in body:
            body["model"] = "acme/chat"
        assert make(content, model="acme/model-1").job.prompt


def test_the_codes_are_those_of_the_code() -> None:
    """Each that is not a worker's."""
    table = PAGE.partition("| code of a line | when |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [
        INVALID_LINE,
        RESULT_EXPIRED,
        RESULT_UNREADABLE,
        OUTCOME_UNKNOWN,
    ]


def test_every_column_of_a_table_is_named() -> None:
    """Whoever has a table finds out how to name its columns."""
    paragraph = PAGE.partition("The columns may be ")[2].partition("\n\n")[0]
    assert set(COLUMNS) <= set(re.findall(r"`(\w+)`", paragraph))


def test_the_journals_name_is_said() -> None:
    """Since it has to be kept."""
    assert f"`<output>{JOURNAL_SUFFIX}`" in PAGE


def test_every_heading_that_is_linked_to_exists() -> None:
    """Here, and on the page of the contract."""
    contract = (ROOT / "docs/wire-contract.md").read_text()
    for page, anchor in re.findall(r"\]\((wire-contract\.md)?#([\w-]+)\)", PAGE):
        headings = re.findall(r"^#+ (.*)$", contract if page else PAGE, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, anchor
