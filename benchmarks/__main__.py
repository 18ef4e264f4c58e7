"""``python -m benchmarks``: measures all sides in one run, prints what it found, and writes docs/benchmarks.md."""

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks.direct import DirectLoopEnded
from benchmarks.load import NotAllSettled, RanDry
from benchmarks.machine import Machine
from benchmarks.others import rival_sides
from benchmarks.ours import ours
from benchmarks.plan import EMPTY, FULL, QUICK, ROOT, SECTIONS, Section, UnknownSection, chosen
from benchmarks.report import Findings, page, sheets
from benchmarks.sheets import show
from benchmarks.sides import OURS, RIVALS, STOCK, Make
from benchmarks.stage import measure_added_time, measure_idle, measure_load, ours_by_models, triton_with, valkey
from benchmarks.stock import STOCK_SIDES
from worker.sandbox.errors import SandboxError
from worker.sandbox.valkey_server import Fsync

_PAGE: Final = ROOT / "docs" / "benchmarks.md"
_FSYNCS: Final[tuple[Fsync, ...]] = ("everysec", "always")
_MODELS: Final = (1, 50)
_WIDTH: Final = 170
"""Columns where the output is no terminal."""


class Part(StrEnum):
    """A part of the run that is not under load."""

    ADDED_TIME = "added-time"
    IDLE = "idle"


Rival = StrEnum("Rival", {name.upper(): name for name in RIVALS})  # type: ignore[misc]  # mypy wants the names written out


def main(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short rounds: shows that all of it works, in some minutes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help=f"Measure only this; may be given again: {', '.join([s.name for s in SECTIONS] + list(Part))}.",
        ),
    ] = None,
    without: Annotated[
        list[Rival] | None,
        typer.Option("--without", help="Leave this side out; may be given again."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help=f"Page to write. Default: {_PAGE.relative_to(ROOT)}, and none after a quick or partial run."),
    ] = None,
) -> None:
    """Measure the worker beside a direct loop, stock Celery and other queues, on an embedded Valkey and Triton."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    parts = [Part(name) for name in only or Part if name in list(Part)]
    left_out = tuple(without or ())
    try:
        names = [name for name in only or [] if name not in list(Part)]
        sections = () if only and not names else chosen(names)
        found = _measure(sections, parts, left_out, quick=quick, console=console)
    except UnknownSection as error:
        raise typer.BadParameter(f"{error}, {', '.join(Part)}") from None
    except (DirectLoopEnded, NotAllSettled, RanDry) as error:
        console.print(f"benchmarks: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    except SandboxError as error:
        console.print(f"benchmarks: {error}", style="red", markup=False)
        raise typer.Exit(3) from None
    show(sheets(found), console)
    target = output or (None if quick or only or left_out else _PAGE)
    if target:
        target.write_text(page(found))
        console.print(f"written: {target}")


def _measure(
    sections: tuple[Section, ...], parts: list[Part], left_out: Sequence[str], *, quick: bool, console: Console
) -> Findings:
    pace = QUICK if quick else FULL

    def say(words: str) -> None:
        console.print(words, style="dim", highlight=False, markup=False)

    makers = _makers(sections, left_out, say)
    added = {**ours_by_models(_MODELS), **{name: STOCK_SIDES[name] for name in STOCK.values()}}
    with triton_with([section.workload.model for section in sections] + [EMPTY.model]) as triton:
        with valkey("everysec") as server:
            machine = Machine.of(server.url, triton.url)
        return Findings(
            machine=machine,
            quick=quick,
            loads={one.name: measure_load(triton.url, one, makers, pace, say) for one in sections},
            added=measure_added_time(triton.url, added, pace, _FSYNCS, say) if Part.ADDED_TIME in parts else {},
            idle=[measure_idle(triton.url, pace, models, say) for models in _MODELS if Part.IDLE in parts],
            left_out=[name for name in RIVALS if sections and name not in makers],
        )


def _makers(sections: Sequence[Section], left_out: Sequence[str], say: Callable[[str], None]) -> dict[str, Make]:
    """Return what makes each side with a queue; the environments of other queues are made only where they take part."""
    wanted = {side for section in sections for side in section.kind.others}
    rivals = [name for name in RIVALS if name in wanted and name not in left_out]
    return {OURS: ours, **STOCK_SIDES, **rival_sides(rivals, say)}


if __name__ == "__main__":
    typer.run(main)
