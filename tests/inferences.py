"""The Triton adapter as tests want it: made of a configuration of a few fields, and closed at the end."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import gevent
import pytest

from settings.schema import Settings
from tasks.errors import JobError
from tasks.generate import Generation
from tasks.job import GenerateJob
from tests.jobs import MODEL, job_content
from worker.triton.adapter import TritonInference

E = TypeVar("E", bound=JobError)


def settings_for(url: str, model_name: str = "text_generation", **fields: Any) -> Settings:
    """Return settings of one public name; fields that are not the settings' own are the model's."""
    own = {name: fields.pop(name) for name in list(fields) if name in Settings.model_fields}
    return Settings.model_validate(
        {
            "worker_id": "triton-01",
            "runtime_endpoint": url,
            "supported_models": [MODEL],
            "runtime_config": {"model_name": model_name, **fields},
            "concurrency": 4,
            **own,
        }
    )


@contextmanager
def inference_on(url: str, model_name: str = "text_generation", **fields: Any) -> Iterator[TritonInference]:
    """An adapter for the public name ``MODEL``."""
    adapter = TritonInference.of(settings_for(url, model_name, **fields))
    try:
        yield adapter
    finally:
        adapter.close()


PATIENT, HASTY = "patient", "hasty"


def of_two_minds(hasty_seconds: float, **of_hasty: Any) -> dict[str, Any]:
    """Return fields for two public names of one Triton model, or of ``of_hasty``: one has all the time there is, one next to none.

    A time-out is a time-out, and not a connection that was not made in time, where HASTY takes over a connection that PATIENT has made.
    """
    models = {PATIENT: {}, HASTY: {"timeout_seconds": hasty_seconds, **of_hasty}}
    return {"supported_models": [*models], "models": models}


def job_for(prompt: str = "Hello", **changes: Any) -> GenerateJob:
    """A valid job."""
    return GenerateJob.model_validate(job_content(prompt=prompt, **changes))


def infer(
    adapter: TritonInference, prompt: str = "Hello", *, request_id: str = "j-1/tag", **changes: Any
) -> Generation:
    """Run one job."""
    return adapter.infer(job_for(prompt, **changes), request_id)


def failure_of(
    adapter: TritonInference, error: type[E], prompt: str = "Hello", *, request_id: str = "j-1/tag", **changes: Any
) -> E:
    """Run one job that must fail with exactly this class, and return its error."""
    with pytest.raises(error) as caught:
        infer(adapter, prompt, request_id=request_id, **changes)
    assert type(caught.value) is error
    return caught.value


def all_at_once(functions: Iterable[Callable[[], Any]]) -> list[Any]:
    """Run each in a greenlet of its own; return what each returned, or the JobError it raised, in order."""

    def outcome(function: Callable[[], Any]) -> Any:
        try:
            return function()
        except JobError as error:
            return error

    greenlets = [gevent.spawn(outcome, function) for function in functions]
    gevent.joinall(greenlets, raise_error=True)
    return [greenlet.value for greenlet in greenlets]
