"""Jobs run on Triton: the ``Inference`` of the generate task, for every public name of a worker."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Never, Self

import structlog

from settings.runtime import RuntimeConfig
from settings.schema import Settings
from tasks.errors import ContractMismatch, ModelNotSupported
from tasks.generate import Generation
from tasks.job import GenerateJob
from tasks.tensor_result import TensorGeneration
from tasks.tensors import Job, TensorJob
from worker.triton.asking import AskedModel
from worker.triton.catalog import Catalog
from worker.triton.changes import Changes
from worker.triton.codec import NoInferenceAnswer
from worker.triton.contracts import Contracts
from worker.triton.description import ModelDescription
from worker.triton.endpoint import Endpoint
from worker.triton.failures import (
    ExchangeFailed,
    error_from_answer,
    error_from_loss,
    first_line,
    is_decoupled,
)
from worker.triton.http import Answer, HttpClients, Limits, Request
from worker.triton.model_contract import ContractReport
from worker.triton.outputs import ReadGeneration
from worker.triton.server import (
    LONGEST_ANSWER_BYTES,
    IndexEntry,
    ModelPath,
    ServerIdentity,
    Statistics,
    TritonServer,
)
from worker.triton.tensor_run import TensorRun
from worker.triton.tensors import AskedTensors

PROBE_SECONDS: Final = 10.0
"""How long Triton may take to say something of itself: it does so at once, or something is wrong."""

_PROBES_AT_ONCE: Final = 4
_OK: Final = 200
_log = structlog.get_logger()


class TritonInference:
    """Runs jobs on the Triton models behind their public names, and answers whether those can be run.

    May be made before a fork and used after it, from any greenlet and any thread.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        models: Mapping[str, RuntimeConfig],
        *,
        concurrency: int,
        log_upstream_errors: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect to nothing yet. ``models`` is by public name; ``concurrency`` inferences run at once in one thread.

        Raises:
            UnusableCertificates: a configured certificate file is none.
        """
        self._inferences = HttpClients(endpoint, concurrency)
        # Of their own, so that a probe never waits for an inference to end.
        self._probes = HttpClients(endpoint, _PROBES_AT_ONCE)
        self._log_upstream_errors = log_upstream_errors
        self._monotonic = monotonic
        self._connect_seconds = min(config.connect_timeout_seconds for config in models.values())
        self._paths = {name: ModelPath(config.model_name, config.model_version) for name, config in models.items()}
        self._catalog = Catalog(self._server, self._paths.values(), monotonic)
        self._contracts = Contracts(models, self._paths, self._catalog, monotonic)
        self._changes = Changes(self._catalog, monotonic)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the adapter for a worker's settings."""
        return cls(
            Endpoint.of(settings),
            {name: settings.runtime_for(name) for name in settings.supported_models},
            concurrency=settings.concurrency,
            log_upstream_errors=settings.log_upstream_errors,
        )

    def limit(self, concurrency: int) -> None:
        """Run so many inferences at once, where it is not the configuration that says how many; before the first."""
        self._inferences.limit(concurrency)

    def close(self) -> None:
        """Close this thread's connections; it may be used again."""
        self._inferences.close()
        self._probes.close()

    def infer(self, job: GenerateJob, request_id: str) -> Generation:
        """Return the generation, or raise a JobError. Takes no longer than the model's ``timeout_seconds``.

        A model that was never checked, or that no longer fits, is checked first.
        """
        model, limits = self._contracts.known(job.model)
        if isinstance(model, AskedTensors):
            raise ModelNotSupported
        answer = self._exchange(model.request(job, request_id), limits)
        if is_decoupled(answer.status, answer.body) and (other := model.by_generate()) is not None:
            # Nothing ran. Its configuration could not be read, or it was loaded anew as a decoupled model.
            model = self._contracts.asked[job.model] = other
            answer = self._exchange(model.request(job, request_id), replace(limits, max_bytes=other.limits.max_bytes))
        read = self._read(answer, model, job, request_id)
        if read.bytes_replaced:
            _log.warning("text.bytes_replaced", job_id=job.job_id)
        return read.generation

    def infer_tensors(self, job: TensorJob, request_id: str) -> TensorGeneration:
        """Do the same for a tensor job."""
        known, fail = partial(self._contracts.known_tensors, job.model), partial(self._fail, job=job)
        return TensorRun(job, request_id, known, self._exchange, fail, self._monotonic).generation()

    def check(self, public_name: str) -> ContractReport:
        """Return the model's configuration beside Triton's; jobs are run by what it says from now on.

        Raises:
            ModelNotSupported: the name is not declared.
            ModelNotReady: the model is unknown to Triton, loading or unloaded.
            RuntimeUnavailable: Triton cannot be asked.
            ContractMismatch: Triton does not permit to ask.
        """
        return self._contracts.check(public_name)

    def look(self, public_name: str) -> ContractReport:
        """Do as ``check`` does, or take what a look at another name of the model has just learnt."""
        return self._contracts.look(public_name)

    def changed(self) -> frozenset[str]:
        """Return the public names whose models may have changed since this was asked the last time."""
        paths = self._changes.since_last_time()
        for path in paths:
            self._catalog.forget(path)  # What a look has learnt before would hide it from the next.
        return frozenset(name for name, path in self._paths.items() if path in paths)

    def describe(self, model_name: str, model_version: str | None = None) -> ModelDescription:
        """Return what a model of Triton's takes and gives, configured or not. Raises as ``check`` does."""
        return self._server().describe(ModelPath(model_name, model_version))

    def server_identity(self) -> ServerIdentity:
        """Return Triton's name and version, or raise RuntimeUnavailable where no Triton answers."""
        return self._server().identity()

    def server_ready(self) -> bool:
        """Tell whether Triton calls itself ready; one failed model of others may be enough for a no."""
        return self._server().is_ready()

    def model_ready(self, public_name: str) -> bool:
        """Tell whether Triton calls the model ready; it goes on doing so when the model's process has died."""
        return self._catalog.is_ready(self._contracts.path(public_name))

    def statistics(self, public_name: str) -> Statistics:
        """Return what the model has done since it was loaded, or raise a JobError where Triton does not say."""
        return self._server().statistics(self._contracts.path(public_name))

    def ready_models(self) -> tuple[IndexEntry, ...]:
        """Return what Triton has loaded, by its own names. For people: it never widens what is run."""
        return self._server().ready_models()

    def _server(self) -> TritonServer:
        connect = min(self._connect_seconds, PROBE_SECONDS)
        return TritonServer(self._probes, Limits(PROBE_SECONDS, connect, LONGEST_ANSWER_BYTES))

    def _exchange(self, request: Request, limits: Limits) -> Answer:
        try:
            return self._inferences.exchange(request, limits)
        except ExchangeFailed as failed:
            raise error_from_loss(failed) from failed

    def _read(self, answer: Answer, model: AskedModel, job: GenerateJob, request_id: str) -> ReadGeneration:
        if answer.status != _OK:
            self._fail(answer, model, job)
        try:
            return model.read(answer, request_id)
        except NoInferenceAnswer:
            # Something may say with 200 that it failed.
            self._fail(answer, model, job)

    def _fail(self, answer: Answer, model: AskedModel | AskedTensors, job: Job) -> Never:
        if self._log_upstream_errors:
            _log.debug(
                "upstream_error.received",
                job_id=job.job_id,
                model=job.model,
                status=answer.status,
                text=first_line(answer.body),
            )
        error = error_from_answer(answer.status, answer.body, status_is_vague=model.status_is_vague)
        if isinstance(error, ContractMismatch):
            self._contracts.drop(job.model)
        raise error
