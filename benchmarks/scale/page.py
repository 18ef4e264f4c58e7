"""Puts tables into docs/scaling.md, whose words are written by hand: each between ``<!-- name -->`` and ``<!-- /name -->``."""

import re
from collections.abc import Mapping

from benchmarks.machine import Machine


class NoPlace(Exception):
    """The page has no place for a table."""


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables in their places; the other places stay as they are.

    Raises:
        NoPlace: there is none for one of them.
    """
    for name, table in tables.items():
        page = _with(page, name, f"\n{table}\n\n")
    return page


def _with(page: str, name: str, content: str) -> str:
    place = re.compile(rf"(?<=<!-- {re.escape(name)} -->\n).*?(?=<!-- /{re.escape(name)} -->)", re.DOTALL)
    page, count = place.subn(lambda _: content, page)
    if count != 1:
        raise NoPlace(f"the page needs one place between <!-- {name} --> and <!-- /{name} -->, and has {count}")
    return page


def origin(machine: Machine, *, quick: bool, command: str = "`make scale` (`python -m benchmarks.scale`)") -> str:
    """Return where and when the tables were measured."""
    versions = ", ".join(f"{name} {machine.versions[name]}" for name in ("Python", "celery", "Valkey", "Triton"))
    line = (
        f"The tables were measured by {command} on {machine.date}: {machine.cpu}, {machine.cores} cores "
        f"for workers, Valkey, Triton and what feeds them together, {machine.memory_gb:.0f} GB; {versions}."
    )
    doubts = ["**This was a quick run: its figures are not to be quoted.**"] if quick else []
    doubts += ["**The machine had other work before the run, which these figures bear.**"] if machine.is_busy else []
    return "\n\n".join([line, *doubts])
