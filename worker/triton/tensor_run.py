"""One tensor job on its model, which is looked at again where it may have changed since it was known."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Never, Protocol

from tasks.errors import ContractMismatch, InferenceRejected, JobError
from tasks.tensor_result import TensorGeneration
from tasks.tensors import TensorJob
from worker.triton.codec import NoInferenceAnswer
from worker.triton.failures import cause_of, error_text
from worker.triton.http import Answer, Limits, Request
from worker.triton.tensors import AskedTensors

_OK: Final = 200
OF_THE_JOB: Final = frozenset(
    {
        *("wrong datatype", "wrong shape", "batch too big", "batch sizes differ"),
        *("inputs missing or too many", "unknown input or output", "stateful model"),
    }
)
"""Causes by which a text job says that the configuration is wrong. A tensor job brings names, datatypes and shapes itself."""


class Known(Protocol):
    """Gives what is known of the job's model, asked ``anew`` or from before, and what one exchange with it may take."""

    def __call__(self, *, anew: bool) -> tuple[AskedTensors, Limits]:
        """Raise a JobError where the model cannot be asked."""
        ...


@dataclass(frozen=True, slots=True)
class TensorRun:
    """One job, with what its adapter does for it; ``fail`` raises what an answer without a result means."""

    job: TensorJob
    request_id: str
    known: Known
    exchange: Callable[[Request, Limits], Answer]
    fail: Callable[[Answer, AskedTensors], Never]
    monotonic: Callable[[], float]

    def generation(self) -> TensorGeneration:
        """Return what the model gives, or raise a JobError."""
        begun = self.monotonic()
        model, limits = self._model()
        request = model.request(self.job, self.request_id)
        left = model.limits.timeout_seconds - (self.monotonic() - begun)
        answer = self.exchange(request, replace(limits, timeout_seconds=max(0.0, min(limits.timeout_seconds, left))))
        try:
            return self._read(answer, model)
        except ContractMismatch as mismatch:
            raise self._judged(mismatch, answer, model) from mismatch.__cause__

    def _model(self) -> tuple[AskedTensors, Limits]:
        # To classify what has become BYTES meanwhile would end Triton.
        is_dangerous = any(output.parameters.classification is not None for output in self.job.outputs)
        model, limits = self.known(anew=is_dangerous)
        if not is_dangerous and any(model.contract.objections(self.job)):
            return self.known(anew=True)  # It may have been loaded anew since, as what the job is for.
        return model, limits

    def _read(self, answer: Answer, model: AskedTensors) -> TensorGeneration:
        if answer.status != _OK:
            self.fail(answer, model)
        try:
            return model.read(answer, self.job, self.request_id)
        except NoInferenceAnswer:
            self.fail(answer, model)

    def _judged(self, mismatch: ContractMismatch, answer: Answer, model: AskedTensors) -> JobError:
        """Return whose fault a mismatch is: the job's, where the model is what it was taken for."""
        if cause_of(answer.status, error_text(answer.body)).name not in OF_THE_JOB:
            return mismatch
        by_now, _ = self.known(anew=True)
        if by_now.contract.model != model.contract.model:
            return mismatch
        return InferenceRejected(upstream_status=answer.status)
