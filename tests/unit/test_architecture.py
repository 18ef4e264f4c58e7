"""Rules of the code that neither ruff nor import-linter can state; each broken one is named with file and line."""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker import lua

ROOT = Path(__file__).parents[2]
PACKAGES = ("settings", "tasks", "worker")

# Modules that are longer than MODULE_LINES, with their lines: written down, so that a change of it is seen and only
# ever lowers it.
MODULE_LINES = 250
LONGER_MODULES: dict[str, int] = {}

NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "base", "misc", "types", "constants"}


def is_model_of_triton(path: Path) -> bool:
    """Whether this is a Python model of a Triton model repository: a script that Triton runs, no module of ours."""
    return path.parent.name.isdigit() and path.name == "model.py"


def modules(*folders: str) -> Iterator[Path]:
    """Every Python module beneath these folders, without Triton's Python models."""
    for folder in folders:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if not is_model_of_triton(path))


def name(path: Path) -> str:
    """The path as people say it: from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported anywhere in it, by full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def reads_environment(tree: ast.AST) -> Iterator[int]:
    """The lines in which the environment of the process is read or changed."""
    readers = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr in readers:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for alias in node.names if alias.name in readers)


def may_read_environment(path: Path) -> bool:
    """Whether a process of ours begins here, or (the sandbox) whether it is handed on to servers that are started."""
    return name(path) == "worker/celery.py" or name(path).startswith(("worker/cli/", "worker/sandbox/"))


def ignores_without_reason(path: Path) -> Iterator[int]:
    """The lines in which a check is silenced and nothing says why."""
    silenced = re.compile(
        r"#\s*(?:noqa(?::\s*[A-Z]+[0-9]+(?:,?\s*[A-Z]+[0-9]+)*)?|type:\s*ignore(?:\[[^]]*\])?|pragma: no cover)"
    )
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT and silenced.search(token.string):
                reason = silenced.sub("", token.string)
                if len(re.findall(r"\w{2,}", reason)) < 2:
                    yield token.start[0]


def test_only_entries_read_the_environment() -> None:
    """What a process is given in its environment enters at its start, so every other module can be told it by a caller."""
    found = [
        f"{name(path)}:{line}"
        for path in modules(*PACKAGES)
        if not may_read_environment(path)
        for line in reads_environment(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "from os import environ",
        "import os\nos.environ.get('A')",
    ],
)
def test_reading_the_environment_would_be_noticed(source: str) -> None:
    """Each usual way to read the environment is recognised."""
    assert list(reads_environment(ast.parse(source)))


def test_the_contract_needs_pydantic_alone() -> None:
    """A gateway in Python can take the job and result types without bringing in Celery, Redis or Triton."""
    allowed = {"pydantic", "pydantic_core", "tasks"} | sys.stdlib_module_names
    found = [
        f"{name(path)}: {module}"
        for path in modules("tasks")
        for module in imported(ast.parse(path.read_text()))
        if module.partition(".")[0] not in allowed
    ]
    assert found == []


def test_modules_are_named_after_their_concern() -> None:
    """No module is a drawer for whatever has no place."""
    found = [
        name(path)
        for path in modules(*PACKAGES, "tests")
        if {part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts} & NAMES_THAT_SAY_NOTHING
    ]
    assert found == []


def test_modules_stay_short() -> None:
    """A module that outgrows its limit has two concerns; the few exceptions may shrink and never grow."""
    lengths = {name(path): len(path.read_text().splitlines()) for path in modules(*PACKAGES)}
    longer = {module: lines for module, lines in lengths.items() if lines > MODULE_LINES}
    assert longer == LONGER_MODULES


def test_every_script_is_loaded() -> None:
    """No Lua script lies about unused: each one's name is spelled in the code that loads it, or in a script that includes it."""
    code = "\n".join(path.read_text() for path in modules("worker"))
    scripts = sorted((ROOT / "worker").rglob("*.lua"))
    sources = "\n".join(script.read_text() for script in scripts)
    unused = [
        name(script)
        for script in scripts
        if not re.search(rf"""["']{script.stem}(\.lua)?["']""", code)
        and not re.search(rf"^-- include {script.stem}$", sources, re.MULTILINE)
    ]
    assert unused == []


def test_what_a_script_includes_is_in_it() -> None:
    """Each line that asks for another script is replaced by that script."""
    scripts = sorted((ROOT / "worker" / "lua").glob("*.lua"))
    including = [script.stem for script in scripts if "-- include " in script.read_text()]
    assert including
    for script in including:
        assert "-- include " not in lua.load(script)
        assert len(lua.load(script)) > len((ROOT / "worker" / "lua" / f"{script}.lua").read_text())


def test_every_silenced_check_says_why() -> None:
    """Each `noqa` and `type: ignore` carries its reason on its line."""
    found = [f"{name(path)}:{line}" for path in modules(*PACKAGES, "tests") for line in ignores_without_reason(path)]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("x = 1  # noqa", True),
        ("x = 1  # noqa: E501", True),
        ("x = 1  # noqa: E501, S603", True),
        ("x = 1  # type: ignore[misc]", True),
        ("x = 1  # type: ignore[misc]  # noqa: E501", True),
        ("x = 1  # noqa: S603 - the command is ours", False),
        ("x = 1  # type: ignore[misc]  # kombu has no types here", False),
        ("x = '# noqa'", False),
    ],
)
def test_a_missing_reason_would_be_noticed(tmp_path: Path, line: str, is_found: bool) -> None:
    """A silenced check without a reason is found in each form; one with a reason, or a string, is not."""
    path = tmp_path / "module.py"
    path.write_text(line + "\n")
    assert bool(list(ignores_without_reason(path))) is is_found
