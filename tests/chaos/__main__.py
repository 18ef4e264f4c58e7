"""``python -m tests.chaos``: workers, Redis and Triton under faults that a seed draws, and a verdict from outside."""

import shutil
import sys
from typing import Annotated, Final

import typer

from tests.chaos.failpoints import FAILPOINTS
from tests.chaos.mutations import CONTROLS, MUTATIONS, provoking
from tests.chaos.options import Options
from tests.chaos.plan import FaultKind
from tests.chaos.run import plan_of, run
from tests.chaos.stage import Servers
from worker.sandbox.errors import SandboxError
from worker.sandbox.places import temporary_directory

_JOBS_A_SECOND: Final = 25


def main(
    *,
    seed: Annotated[int, typer.Option(help="Draws the load and the faults; the same seed draws the same ones.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="How long faults happen and jobs are pushed.")] = 60,
    jobs: Annotated[int | None, typer.Option(min=1, help=f"How many jobs. Default: {_JOBS_A_SECOND} a second.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many worker processes.")] = 3,
    faults: Annotated[
        str, typer.Option(help=f"Which faults, with commas between; all, none, or of: {', '.join(FaultKind)}.")
    ] = "all",
    every: Annotated[float, typer.Option(min=0.1, help="Seconds from one fault of a worker to the next, about.")] = 6.0,
    lease: Annotated[float, typer.Option(min=0.5, help="lease_seconds of the workers.")] = 3.0,
    failpoint: Annotated[
        list[str] | None,
        typer.Option(help=f"NAME:N, a worker ends at that point of its Nth job. Names: {', '.join(FAILPOINTS)}."),
    ] = None,
    mutation: Annotated[
        str | None,
        typer.Option(help=f"Put a fault into the workers' code; brings its own plan. Names: {', '.join(MUTATIONS)}."),
    ] = None,
    most_reruns: Annotated[
        float | None, typer.Option(help="Largest share of jobs that may run more than once, such as 0.05.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs also where all is well.")] = False,
) -> None:
    """Run jobs under faults and judge from outside whether every promise was kept: exit code 0, else 1."""
    jobs = jobs or round(seconds * _JOBS_A_SECOND)
    strangers = [one for one in failpoint or () if one.partition(":")[0] not in FAILPOINTS]
    if strangers:
        raise typer.BadParameter(f"there is no failpoint {strangers[0]}")
    if mutation is None:
        options = Options(
            seed=seed,
            seconds=seconds,
            jobs=jobs,
            workers=workers,
            faults=_kinds(faults),
            every=every,
            lease_seconds=lease,
            failpoints=tuple(failpoint or ()),
            most_reruns=most_reruns,
        )
    elif mutation in MUTATIONS or mutation in CONTROLS:
        options = provoking(mutation, seed)
    else:
        raise typer.BadParameter(f"there is no mutation {mutation}")
    try:
        code = _run(options, keep=keep)
    except SandboxError as error:
        _say(f"chaos: {error}")
        raise typer.Exit(3) from None
    raise typer.Exit(code)


def _run(options: Options, *, keep: bool) -> int:
    _say(f"seed {options.seed}: {options.jobs} jobs in {options.seconds:g} s, {options.workers} workers; the plan:")
    for fault in plan_of(options):
        _say(f"  {fault}")
    directory = temporary_directory("chaos")
    with Servers(directory) as servers:
        verdict = run(options, servers, directory, _say)
    for line in verdict.lines():
        _say(line)
    if verdict.findings or keep:
        _say(f"logs and journals: {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if verdict.findings else 0


def _kinds(names: str) -> frozenset[FaultKind]:
    if names in {"all", "none"}:
        return frozenset(FaultKind if names == "all" else ())
    try:
        return frozenset(FaultKind(name.strip()) for name in names.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{error}; there are: {', '.join(FaultKind)}") from None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
