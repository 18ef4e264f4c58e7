"""``python -m benchmarks.cpu``: where the worker's CPU time goes with the empty model, and where the time of a single job goes.

Printed as tables; put into docs/cpu.md with ``--page``.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from benchmarks import one_job
from benchmarks.figures import cpu_microseconds
from benchmarks.load import started
from benchmarks.machine import Machine
from benchmarks.ours import configuration, ours
from benchmarks.plan import EMPTY, ROOT
from benchmarks.scale.page import filled, origin
from benchmarks.sheets import Sheet, markdown, number, show
from benchmarks.stage import triton_with, valkey
from worker.sandbox.worker_process import WorkerProcess

_WIDTH: Final = 120
_WARM_SECONDS: Final = 2.0


class SampledWorker(WorkerProcess):
    """A worker that counts where its CPU time goes (benchmarks/cpu_layers.py)."""

    module = "benchmarks.cpu_layers"

    def __init__(self, settings: Mapping[str, Any], counts: Path) -> None:
        super().__init__(settings, environment={"BENCH_LAYERS": str(counts), "PYTHONPATH": str(ROOT)})


def main(
    *,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to sample.")] = 20.0,
    jobs: Annotated[int, typer.Option(min=10, help="How many single jobs to follow, in each case.")] = 200,
    page: Annotated[Path | None, typer.Option(help="Page whose tables to replace.")] = None,
) -> None:
    """Sample a worker under load, and print where its CPU time goes; follow single jobs, and print where theirs goes."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    with triton_with([EMPTY.model]) as triton:
        machine, sampled = _sampled(triton.url, seconds)
        sheets = {"cpu": sampled, "one-job": one_job.measure(triton.url, jobs)}
    show(list(sheets.values()), console)
    if page:
        tables = {name: f"**{sheet.title}**\n\n{markdown(sheet)}" for name, sheet in sheets.items()}
        where = origin(machine, quick=False, command="`python -m benchmarks.cpu`")
        page.write_text(filled(page.read_text(), {"origin": where, **tables}))


def _sampled(triton_url: str, seconds: float) -> tuple[Machine, Sheet]:
    with valkey("everysec") as server, tempfile.TemporaryDirectory() as directory:
        machine = Machine.of(server.url, triton_url)
        counts = Path(directory, "counts.json")
        side = ours(server.url, server.url, triton_url, EMPTY)
        sampled = SampledWorker(configuration(server.url, triton_url, EMPTY), counts)
        with started(replace(side, process=sampled)) as loaded:
            window = loaded.window(int(EMPTY.most_per_second * seconds), EMPTY.in_flight, _WARM_SECONDS, seconds)
            found: dict[str, int] = json.loads(counts.read_text())
        side.client.close()
    return machine, layers(found, window.jobs_per_second, cpu_microseconds(window) or 0.0)


def layers(counts: Mapping[str, int], jobs_per_second: float, cpu_us: float) -> Sheet:
    """Return the table of samples by layer, the largest first; ``cpu_us`` is all that a job takes."""
    total = sum(counts.values())
    rows = [
        (layer, f"{100 * count / total:.0f} %", number(cpu_us * count / total))
        for layer, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    title = f"CPU of one worker, empty model, 64 in flight: {number(jobs_per_second)} jobs/s, {number(cpu_us)} µs a job, sampled"
    return Sheet(title, ("layer", "share", "µs/job"), rows)


if __name__ == "__main__":
    typer.run(main)
