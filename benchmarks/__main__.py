"""``python -m benchmarks``: measures all sides in one run, prints what it found, and writes docs/benchmarks.md."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks.load import NotAllSettled, RanDry
from benchmarks.machine import Machine
from benchmarks.plan import FULL, QUICK, ROOT, WORKLOADS, UnknownWorkload, Workload, chosen
from benchmarks.report import Findings, page, show
from benchmarks.sides import DirectLoopEnded
from benchmarks.stage import measure_added_time, measure_idle, measure_load, triton_with, valkey
from worker.sandbox.errors import SandboxError
from worker.sandbox.valkey_server import Fsync

_PAGE: Final = ROOT / "docs" / "benchmarks.md"
_SINGLES: Final = WORKLOADS[0]
_FSYNCS: Final[tuple[Fsync, ...]] = ("everysec", "always")
_IDLE_MODELS: Final = (1, 50)
_WIDTH: Final = 150
"""Columns where the output is no terminal."""


class Part(StrEnum):
    """A part of the run that is not a workload."""

    ADDED_TIME = "added-time"
    IDLE = "idle"


class FsyncChoice(StrEnum):
    """When Valkey's log reaches the disk."""

    EVERYSEC = "everysec"
    ALWAYS = "always"


def main(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short rounds: shows that all of it works, in a minute.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help=f"Measure only this; may be given again: {', '.join([w.name for w in WORKLOADS] + list(Part))}.",
        ),
    ] = None,
    fsync: Annotated[
        FsyncChoice,
        typer.Option(help="When Valkey's log reaches the disk, under load. Single jobs are measured at both."),
    ] = FsyncChoice.EVERYSEC,
    output: Annotated[
        Path | None,
        typer.Option(help=f"Page to write. Default: {_PAGE.relative_to(ROOT)}, and none after a quick or partial run."),
    ] = None,
) -> None:
    """Measure the worker beside a direct loop and beside stock Celery, on an embedded Valkey and Triton."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    parts = [Part(name) for name in only or Part if name in list(Part)]
    try:
        names = [name for name in only or [] if name not in list(Part)]
        workloads = () if only and not names else chosen(names)
        found = _measure(workloads, parts, quick=quick, fsync=fsync, console=console)
    except UnknownWorkload as error:
        raise typer.BadParameter(f"{error}, {', '.join(Part)}") from None
    except (DirectLoopEnded, NotAllSettled, RanDry) as error:
        console.print(f"benchmarks: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    except SandboxError as error:
        console.print(f"benchmarks: {error}", style="red", markup=False)
        raise typer.Exit(3) from None
    show(found, console)
    target = output or (None if quick or only else _PAGE)
    if target:
        target.write_text(page(found))
        console.print(f"written: {target}")


def _measure(
    workloads: tuple[Workload, ...], parts: list[Part], *, quick: bool, fsync: FsyncChoice, console: Console
) -> Findings:
    pace = QUICK if quick else FULL

    def say(words: str) -> None:
        console.print(words, style="dim", highlight=False, markup=False)

    with triton_with([workload.model for workload in (*workloads, _SINGLES)]) as triton:
        with valkey(fsync.value) as server:
            machine = Machine.of(server.url, triton.url)
        return Findings(
            machine=machine,
            fsync=fsync.value,
            quick=quick,
            loads={one.name: measure_load(triton.url, one, pace, fsync.value, say) for one in workloads},
            added=measure_added_time(triton.url, _SINGLES, pace, _FSYNCS, say) if Part.ADDED_TIME in parts else {},
            idle=[
                measure_idle(triton.url, _SINGLES, pace, models, say) for models in _IDLE_MODELS if Part.IDLE in parts
            ],
        )


if __name__ == "__main__":
    typer.run(main)
