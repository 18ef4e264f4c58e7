"""docs/commands.md says what the commands are."""

from pathlib import Path

from worker.cli.reference import render_reference

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_page_is_what_the_commands_say() -> None:
    """Whoever changes a command writes the page anew: `python -m worker.cli.reference > docs/commands.md`."""
    assert PAGE.read_text(encoding="utf-8") == render_reference()


def test_every_option_is_explained() -> None:
    """No option, argument or command has an empty cell where its meaning belongs."""
    rows = [line for line in render_reference().splitlines() if line.startswith(("| `", "| [`"))]
    assert len(rows) > 50
    assert [row for row in rows if len(row.replace("\\|", "").split("|")[2].strip()) < 5] == []
