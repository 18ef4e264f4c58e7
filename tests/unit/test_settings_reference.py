"""docs/configuration.md says what the settings are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.fields import Section
from settings.load import settings_from
from settings.problems import fields_of_section
from settings.reference import render_reference
from settings.schema import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def sections() -> Iterator[tuple[str, ...]]:
    """Where sections stand in the tree."""
    yield ()
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield (name,)


def test_the_page_is_what_the_types_say() -> None:
    """Whoever changes a field writes the page anew: `python -m settings.reference > docs/configuration.md`."""
    assert PAGE.read_text(encoding="utf-8") == render_reference()


@pytest.mark.parametrize("section", list(sections()), ids=".".join)
def test_every_field_has_a_meaning_and_a_row(section: tuple[str, ...]) -> None:
    """Type, default and meaning are never blank, and a duration or size has its unit."""
    rows = {
        row[0]: row[1:]
        for row in re.findall(r"^\| `([\w.]+)` \|(.*?)\|(.*?)\|(.*?)\|(.*?)\|$", render_reference(), re.MULTILINE)
    }
    for name in fields_of_section(section):
        kind, default, unit, meaning = (cell.strip() for cell in rows[".".join((*section, name))])
        assert kind
        assert default
        assert meaning.endswith(".")
        assert unit or not name.endswith(("_seconds", "_bytes", "_calls", "_attempts", "_per_minute"))


def test_the_examples_of_the_page_load() -> None:
    """What people copy from the page works."""
    examples = re.findall(r"```json\n(.*?)```", render_reference(), re.DOTALL)
    assert [settings_from(json.loads(example)).worker_id for example in examples] == ["triton-01", "triton-01"]
