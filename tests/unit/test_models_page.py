"""docs/models.md shows what loads, names what exists, and knows every preset and look-alike."""

import json
import re
from pathlib import Path

from settings.load import settings_from
from settings.presets import PRESETS
from settings.runtime import RuntimeConfig
from tests.unit.test_guarantees import existing_tests

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text()


def test_every_trap_names_a_test_that_exists() -> None:
    """Each row of the table of traps ends with the test that shows it."""
    rows = [line for line in PAGE.partition("## Traps")[2].partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    for row in rows[1:]:
        assert re.search(r"`test_\w+` \|$", row), row
    assert set(re.findall(r"`(test_\w+)`", PAGE)) - existing_tests() == set()


def test_the_examples_of_the_page_load() -> None:
    """Whole files and single models, as they stand."""
    files = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    models = re.findall(r"```json runtime_config\n(.*?)```", PAGE, re.DOTALL)
    assert len(files) == 2
    assert len(models) == 1
    for file in files:
        assert settings_from(json.loads(file)).supported_models
    for model in models:
        assert RuntimeConfig.model_validate(json.loads(model)).model_name


def test_every_example_file_loads() -> None:
    """Those that the page points to, and any other."""
    examples = sorted((ROOT / "examples").glob("*.json"))
    assert {f"examples/{path.name}" for path in examples} >= set(re.findall(r"\(\.\./(examples/\w+\.json)\)", PAGE))
    for path in examples:
        assert settings_from(json.loads(path.read_text()), hostname="pod-1").worker_id


def test_the_table_knows_every_preset() -> None:
    """A preset that nobody can read of is no use."""
    table = PAGE.partition("## Known models")[2].partition("\n## ")[0]
    assert all(f"| `{name}` |" in table for name in PRESETS)


def test_every_field_that_is_set_by_hand_exists() -> None:
    """The first column of the table of fields."""
    table = PAGE.partition("## By hand")[2].partition("Datatypes and shapes")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named <= set(RuntimeConfig.model_fields)
    assert len(named) > 10
