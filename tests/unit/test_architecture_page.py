"""docs/architecture.md knows every module."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def there(package: str) -> set[str]:
    """The modules of a package, and the packages in it with a slash."""
    modules = {path.stem for path in (ROOT / package).glob("*.py") if path.stem != "__init__"}
    return modules | {f"{path.parent.name}/" for path in (ROOT / package).glob("*/__init__.py")}


def on_the_page(package: str) -> list[str]:
    """What the first column of the package's table names."""
    table = PAGE.partition(f"\n| module of `{package}` | concern |\n|---|---|\n")[2].partition("\n\n")[0]
    return [name for row in table.splitlines() for name in re.findall(r"`([\w/]+)`", row.split("|")[1])]


@pytest.mark.parametrize("package", ["settings", "tasks", "worker"])
def test_every_module_is_in_the_table(package: str) -> None:
    """Each once, or by the package that it is in; and nothing that is not there."""
    named = on_the_page(package)
    assert len(named) == len(set(named))
    assert sorted(named) == sorted(there(package))
