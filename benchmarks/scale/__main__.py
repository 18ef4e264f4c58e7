"""``python -m benchmarks.scale``: how the worker grows, as tables: printed, and put into docs/scaling.md."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks.machine import Machine
from benchmarks.plan import EMPTY, ROOT
from benchmarks.scale.bed import Say, Stalled
from benchmarks.scale.memory import measure_memory
from benchmarks.scale.page import filled, origin
from benchmarks.scale.parts import FULL, QUICK, by_depth, by_models, by_workers
from benchmarks.scale.report import Grown, sheets
from benchmarks.scale.soak import soak
from benchmarks.sheets import markdown, show
from benchmarks.stage import triton_with, valkey
from worker.sandbox.errors import SandboxError

_PAGE: Final = ROOT / "docs" / "scaling.md"
_LLM_MS: Final = 500.0
_WIDTH: Final = 170


class Part(StrEnum):
    """A part of the run."""

    DEPTH = "depth"
    MODELS = "models"
    WORKERS = "workers"
    MEMORY = "memory"


def main(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short windows and few jobs: shows that all of it works.")
    ] = False,
    only: Annotated[list[Part] | None, typer.Option("--only", help="Measure only this; may be given again.")] = None,
    soak_minutes: Annotated[float, typer.Option(min=0.0, help="Soak for so long as well. 0: not at all.")] = 0.0,
    soak_rate: Annotated[float, typer.Option(min=1.0, help="Jobs a second of the soak.")] = 500.0,
    page: Annotated[
        Path | None,
        typer.Option(
            help=f"Page whose tables to replace. Default: {_PAGE.relative_to(ROOT)}, and none after a quick or partial run."
        ),
    ] = None,
) -> None:
    """Measure how the worker grows with queue depth, models, workers and time, and what Redis keeps of a job."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    try:
        machine, found = _measure(
            frozenset(only or Part), say, quick=quick, soak_minutes=soak_minutes, soak_rate=soak_rate
        )
    except Stalled as error:
        console.print(f"benchmarks: {error}", style="red", markup=False)
        raise typer.Exit(1) from None
    except SandboxError as error:
        console.print(f"benchmarks: {error}", style="red", markup=False)
        raise typer.Exit(3) from None
    show(list(sheets(found).values()), console)
    target = page or (None if quick or only else _PAGE)
    if target:
        tables = {name: f"**{sheet.title}**\n\n{markdown(sheet)}" for name, sheet in sheets(found).items()}
        target.write_text(filled(target.read_text(), {"origin": origin(machine, quick=quick), **tables}))
        console.print(f"written: {target}")


def _measure(
    parts: frozenset[Part], say: Say, *, quick: bool, soak_minutes: float, soak_rate: float
) -> tuple[Machine, Grown]:
    pace = QUICK if quick else FULL
    with triton_with([EMPTY.model]) as triton:
        with valkey("everysec") as server:
            machine = Machine.of(server.url, triton.url)
        return machine, Grown(
            depths=by_depth(triton.url, pace, say) if Part.DEPTH in parts else (),
            models=by_models(triton.url, pace, say) if Part.MODELS in parts else (),
            workers={ms: by_workers(triton.url, pace, say, made_up_ms=ms) for ms in (0.0, _LLM_MS)}
            if Part.WORKERS in parts
            else {},
            memory=measure_memory(triton.url, pace.memory_jobs, say) if Part.MEMORY in parts else (),
            soak=soak(triton.url, soak_minutes, soak_rate, say) if soak_minutes else None,
        )


if __name__ == "__main__":
    typer.run(main)
