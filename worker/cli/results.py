"""Waiting for a job's result, and showing it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from worker.cli.failures import NOT_RIGHT, NotRight
from worker.cli.output import readable, write_note
from worker.cli.tensor_files import output_lines, units

if TYPE_CHECKING:
    import redis

    from tasks.tensor_result import Result
    from tasks.tensors import Job
    from tasks.usage import Spent
    from worker.keys import Keys


@contextmanager
def told_where_it_will_be(keys: "Keys", job: "Job") -> Iterator[None]:
    """On Ctrl-C, tell the user that the job goes on, and where its result will be."""
    try:
        yield
    except KeyboardInterrupt:
        write_note(f"speedinfer: job {job.job_id} goes on; its result will be at {keys.result(job.job_id)}")
        raise


def awaited(client: "redis.Redis", keys: "Keys", job: "Job", timeout: float | None) -> "Result":
    """Return the job's result as soon as it is there. Raises NotRight after ``timeout`` seconds."""
    from worker.submit import AnotherJob, follow_result

    try:
        result = follow_result(client, keys, job, now=time.monotonic, sleep=time.sleep, timeout=timeout)
    except AnotherJob:
        raise NotRight(
            f"job_id {job.job_id} belongs to another job, which has been settled: choose another --job-id"
        ) from None
    if result is None:
        raise NotRight(
            f"job {job.job_id} has no result after {timeout:g} s; it goes on, and its result will be at "
            f"{keys.result(job.job_id)}. What the workers do: speedinfer status"
        )
    return result


def show_result(result: "Result", *, as_json: bool) -> None:
    """Write a result: to people its text or outputs on stdout and what it cost on stderr. Ends with 1 for a failed job."""
    if as_json:
        typer.echo(result.model_dump_json())
    elif result.error is None:
        typer.echo(_product(result))
        write_note(_spent(result))
    else:
        write_note(f"speedinfer: job {result.job_id} failed, {result.error.code}: {result.error.message}")
    if result.error is not None:
        raise typer.Exit(NOT_RIGHT)


def _product(result: "Result") -> str:
    from tasks.result import GenerateResult

    if isinstance(result, GenerateResult):
        return readable(result.text or "")
    return "\n".join(output_lines(output.model_dump() for output in result.outputs or ()))


def _counted(usage: "Spent | None") -> str | None:
    from tasks.usage import Units

    if usage is None:
        return None
    if isinstance(usage, Units):
        return units(usage.root)
    return f"{usage.prompt_tokens} prompt + {usage.completion_tokens} completion = {usage.total_tokens} tokens"


def _spent(result: "Result") -> str:
    tokens, timings = _counted(result.usage), result.timings
    queued = timings.queued_ms is not None and f"queued {timings.queued_ms} ms"
    inference = timings.inference_ms is not None and f"inference {timings.inference_ms} ms"
    return " · ".join(part for part in (tokens, queued, inference) if part)
