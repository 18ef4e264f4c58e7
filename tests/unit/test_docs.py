"""Whatever page: its links lead somewhere, its commands exist, its configurations load, and it is found from the first page."""

import json
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from settings.load import settings_from
from worker.cli.commands import program

ROOT: Final = Path(__file__).parents[2]
INDEX: Final = ROOT / "docs" / "index.md"
PAGES: Final = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
}
COMMAND: Final = typer.main.get_command(program())
NAMES: Final = "|".join(COMMAND.commands)  # type: ignore[attr-defined]  # a group of commands, which typer's types do not say

MINIMAL: Final = {
    "worker_id": "triton-01",
    "runtime_endpoint": "http://triton:8000",
    "supported_models": ["acme/model-1"],
    "runtime_config": {"model_name": "text_generation"},
}


def anchors(page: str) -> set[str]:
    """What may stand after # in a link to the page, as GitHub makes it of headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    plain = [re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain}


def links(page: str) -> Iterator[tuple[Path, str]]:
    """The files that a page links to, each with its anchor or ''."""
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield ((ROOT / page).parent / path).resolve() if path else ROOT / page, anchor


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """To a file or directory of this repository, and to a heading of it where one is named."""
    for path, anchor in links(page):
        assert path.exists(), f"{page} links to {path}"
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{page} links to #{anchor} of {path.name}"


def test_every_page_is_found_from_the_index() -> None:
    """By itself, not only by way of others."""
    linked = {path for path, _ in links("docs/index.md")}
    missing = [page for page in PAGES if page.startswith("docs/") and ROOT / page not in {*linked, INDEX}]
    assert missing == []


def alternatives(arguments: list[str]) -> Iterator[list[str]]:
    """What ``pause|resume`` and the like stand for, one after the other."""
    choices = [word.split("|") if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word) else [word] for word in arguments]
    yield from map(list, product(*choices))


def spelled(code: str) -> Iterator[list[str]]:
    """The arguments of every ``speedinfer …`` in a piece of code, up to what the shell takes for itself."""
    for found in re.findall(rf"(?<![\w./\"'-])speedinfer ((?:{NAMES})\b[^\n]*)", code):
        said = re.split(r"\s{3,}| +(?:\||&&|<|>|#)(?: |$)|;(?= |$)|…", found + " ")[0]
        if "[OPTIONS]" not in said:
            yield from alternatives(shlex.split(said))


def command_lines(page: str) -> Iterator[tuple[list[str], bool]]:
    """Every command that the page spells, and whether it stands in a block: then it is whole."""
    blocks = r"^ *```[^\n]*\n.*?^ *```|^(?: {4,}[^\n]*\n)+"
    for block in re.findall(blocks, page, re.DOTALL | re.MULTILINE):
        for arguments in spelled(block.replace("\\\n", " ")):
            yield arguments, True
    for code in re.findall(r"`([^`\n]+)`", re.sub(blocks, "", page, flags=re.DOTALL | re.MULTILINE)):
        for arguments in spelled(code):
            yield arguments, False


def refusal(arguments: list[str], *, whole: bool) -> str | None:
    """What the command says against such arguments, None for nothing; of what is not whole, only what it does not know."""
    command: Any = COMMAND
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if arguments and hasattr(command, "commands") and not arguments[0].startswith("-"):
        return f"no command {arguments[0]}"
    if not whole:
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
        options = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]
        return next((f"no option {option}" for option in options if option not in known), None)
    try:
        command.make_context(command.name, arguments)
    except typer.TyperException as error:
        return error.format_message()
    return None


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_real(page: str) -> None:
    """Each takes the options and values that it is shown with; one in a block can be run as it stands."""
    for arguments, whole in command_lines(PAGES[page]):
        assert refusal(arguments, whole=whole) is None, f"{page}: speedinfer {shlex.join(arguments)}"


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("`speedinfer status --wach`", True),
        ("`speedinfer models pause|resumee NAME`", True),
        ("```sh\nspeedinfer models pause acme/model-1\n```\n", True),
        ("```sh\nspeedinfer status --every never\n```\n", True),
        ("```sh\nspeedinfer status --watch --every 5   # until Ctrl-C\n```\n", False),
        ("```sh\nspeedinfer submit - -m acme/model-1 < prompt.txt | jq --raw\n```\n", False),
        ("    speedinfer check --config worker.json     does it fit?\n", False),
        ("`speedinfer models pause|resume NAME`, `speedinfer settlements trim`", False),
    ],
)
def test_a_command_that_is_not_real_would_be_noticed(text: str, is_refused: bool) -> None:
    """In a block or in a sentence; what a sentence only names need not be whole."""
    found = list(command_lines(text))
    assert found
    assert any(refusal(arguments, whole=whole) for arguments, whole in found) is is_refused


@pytest.mark.parametrize("page", PAGES)
def test_what_else_is_run_exists(page: str) -> None:
    """Targets of make, and modules of ours."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", PAGES[page], re.MULTILINE)) <= targets
    for module in re.findall(r"python -m ((?:worker|tasks|settings|tests|benchmarks)[\w.]*)", PAGES[page]):
        assert find_spec(module), module


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.startswith(("README", "docs/tutorial", "docs/how-to/"))]
)
def test_configurations_load(page: str) -> None:
    """Whole ones as they stand, parts of one within the smallest."""
    for block in re.findall(r"^ *```json\n(.*?)^ *```", PAGES[page], re.DOTALL | re.MULTILINE):
        assert settings_from({**MINIMAL, **json.loads(block)}, hostname="host").worker_id
