"""Every way in which a job can fail, and what each means.

JobError
├── InvalidJob · ModelNotSupported · StreamingNotSupported · ExceedsPoolLimit      the job is at fault
├── JobExpired · JobCancelled · DeliveryLimitExceeded                              it was not run to its end
├── InferenceRejected · ModelException                                             Triton refused it, or the model raised
├── UsageUnavailable · OutputInvalid                                               Triton answered what cannot be settled
├── RuntimeTimeout · ConnectionLost · ModelCrashed                                 it ran, and no answer came
├── RuntimeUnavailable (QueueFull · ModelNotReady)                                 it never ran
├── ContractMismatch                                                               the configuration does not fit the model
└── InternalError                                                                  the worker is at fault

What follows from a failure stands here and nowhere else: on its class whether it is tried again, counts for a circuit or opens
it at once, and whether the job's content may be the cause; in ``RULES`` what the customer reads. docs/wire-contract.md shows the
same as a table.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tasks.usage import Spent


class ErrorCode(StrEnum):
    """The codes of a failed result."""

    INVALID_JOB = "invalid_job"
    MODEL_NOT_SUPPORTED = "model_not_supported"
    STREAMING_NOT_SUPPORTED = "streaming_not_supported"
    JOB_EXPIRED = "job_expired"
    JOB_CANCELLED = "job_cancelled"
    TRITON_INFERENCE_FAILED = "triton_inference_failed"
    RUNTIME_USAGE_UNAVAILABLE = "runtime_usage_unavailable"
    RUNTIME_OUTPUT_INVALID = "runtime_output_invalid"
    RUNTIME_TIMEOUT = "runtime_timeout"
    RUNTIME_UNAVAILABLE = "runtime_unavailable"
    RUNTIME_CONTRACT_MISMATCH = "runtime_contract_mismatch"
    RUNTIME_CONNECTION_LOST = "runtime_connection_lost"
    RUNTIME_MODEL_CRASHED = "runtime_model_crashed"
    EXCEEDS_POOL_LIMIT = "exceeds_pool_limit"
    DELIVERY_LIMIT_EXCEEDED = "delivery_limit_exceeded"
    INTERNAL_ERROR = "internal_error"


class Again(StrEnum):
    """Whether the worker tries a job again by itself."""

    NEVER = "never"
    ONCE = "once"
    UP_TO_MAX_ATTEMPTS = "up_to_max_attempts"
    WHEN_RECOVERED = "when_recovered"
    """It goes back to its queue and uses up no attempt; the model is paused on this worker."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows from a code: the customer's sentence, and whether a new job may help (``retryable``)."""

    message: str
    retryable: bool


RULES: dict[ErrorCode, Rule] = {
    ErrorCode.INVALID_JOB: Rule("The job does not meet the contract.", retryable=False),
    ErrorCode.MODEL_NOT_SUPPORTED: Rule("The model is not served on this queue.", retryable=False),
    ErrorCode.STREAMING_NOT_SUPPORTED: Rule("Streaming is not supported.", retryable=False),
    ErrorCode.JOB_EXPIRED: Rule("The job expired before it was started.", retryable=True),
    ErrorCode.JOB_CANCELLED: Rule("The job was cancelled.", retryable=True),
    ErrorCode.TRITON_INFERENCE_FAILED: Rule("The model could not run this job.", retryable=False),
    ErrorCode.RUNTIME_USAGE_UNAVAILABLE: Rule("The runtime did not report valid usage.", retryable=False),
    ErrorCode.RUNTIME_OUTPUT_INVALID: Rule("The runtime did not return a valid output.", retryable=False),
    ErrorCode.RUNTIME_TIMEOUT: Rule("The runtime did not answer in time.", retryable=True),
    ErrorCode.RUNTIME_UNAVAILABLE: Rule("The runtime is not available.", retryable=True),
    ErrorCode.RUNTIME_CONTRACT_MISMATCH: Rule("The runtime's model does not fit its configuration.", retryable=True),
    ErrorCode.RUNTIME_CONNECTION_LOST: Rule("The connection was lost while the job ran.", retryable=True),
    ErrorCode.RUNTIME_MODEL_CRASHED: Rule("The model's process ended while the job ran.", retryable=False),
    ErrorCode.EXCEEDS_POOL_LIMIT: Rule("The job needs more tokens than its pool ever grants.", retryable=False),
    ErrorCode.DELIVERY_LIMIT_EXCEEDED: Rule("The job was delivered too often without an end.", retryable=False),
    ErrorCode.INTERNAL_ERROR: Rule("The worker failed to run the job.", retryable=True),
}


class JobError(Exception):
    """A job's failure, in the terms of the contract.

    ``detail`` names fields and limits only: it becomes part of the customer's message, so no prompt, no value and no upstream
    text may be in it. ``usage`` is what the failed attempt really spent, where Triton said so. ``may_have_run`` says whether
    the attempt may have reached Triton, and so belongs in the attempt ledger.
    """

    code: ClassVar[ErrorCode]
    again: ClassVar[Again] = Again.NEVER
    counts_for_circuit: ClassVar[bool] = False
    opens_circuit: ClassVar[bool] = False
    content_may_cause_it: ClassVar[bool] = False
    may_have_run: ClassVar[bool] = True

    def __init__(self, detail: str = "", *, upstream_status: int | None = None, usage: Spent | None = None) -> None:
        """Take what is known of the failure; ``upstream_status`` is Triton's HTTP status."""
        super().__init__(detail)
        self.detail = detail
        self.upstream_status = upstream_status
        self.usage = usage

    @property
    def message(self) -> str:
        """The customer's sentence: fixed per code, with the names of fields and limits where they help."""
        sentence = RULES[self.code].message
        return f"{sentence[:-1]}: {self.detail}." if self.detail else sentence

    @property
    def retryable(self) -> bool:
        """Whether sending the job again as a new one may help."""
        return RULES[self.code].retryable


class _BeforeTheRun(JobError):
    may_have_run = False


class InvalidJob(_BeforeTheRun):
    """The job breaks the contract's table."""

    code = ErrorCode.INVALID_JOB


class ModelNotSupported(_BeforeTheRun):
    """The model is undeclared on this worker, or is not its queue's."""

    code = ErrorCode.MODEL_NOT_SUPPORTED


class StreamingNotSupported(_BeforeTheRun):
    """``stream`` is not false."""

    code = ErrorCode.STREAMING_NOT_SUPPORTED


class ExceedsPoolLimit(_BeforeTheRun):
    """The job needs more tokens than its pool ever grants."""

    code = ErrorCode.EXCEEDS_POOL_LIMIT


class JobExpired(_BeforeTheRun):
    """``expires_at`` or the configured queue time passed before the start."""

    code = ErrorCode.JOB_EXPIRED


class JobCancelled(JobError):
    """The gateway cancelled the job."""

    code = ErrorCode.JOB_CANCELLED


class DeliveryLimitExceeded(_BeforeTheRun):
    """The job was delivered as often as allowed, without an end: it kills its worker."""

    code = ErrorCode.DELIVERY_LIMIT_EXCEEDED


class InferenceRejected(JobError):
    """Triton refused this job's content."""

    code = ErrorCode.TRITON_INFERENCE_FAILED


class ModelException(JobError):
    """The model raised. It may have been another job's fault: one exception fails the whole dynamic batch."""

    code = ErrorCode.TRITON_INFERENCE_FAILED
    again = Again.ONCE
    counts_for_circuit = content_may_cause_it = True
    text_digest: str | None = None  # Of what the model said: the same for a whole batch. It is shown to no one.


class UsageUnavailable(JobError):
    """A token count is absent or is not one valid integer; it is never settled as 0."""

    code = ErrorCode.RUNTIME_USAGE_UNAVAILABLE
    counts_for_circuit = content_may_cause_it = True


class OutputInvalid(JobError):
    """The text is absent, of another type, not one value or too large, or the answer is another request's."""

    code = ErrorCode.RUNTIME_OUTPUT_INVALID
    counts_for_circuit = content_may_cause_it = True


class RuntimeTimeout(JobError):
    """No answer in time. Not tried again: the GPU may still be working on it."""

    code = ErrorCode.RUNTIME_TIMEOUT
    counts_for_circuit = content_may_cause_it = True


class RuntimeUnavailable(JobError):
    """The inference never ran: refused, not resolved, 503."""

    code = ErrorCode.RUNTIME_UNAVAILABLE
    again = Again.WHEN_RECOVERED
    counts_for_circuit = True
    may_have_run = False


class QueueFull(RuntimeUnavailable):
    """Triton's own queue is full: a matter of load, not of health."""

    counts_for_circuit = False


class ModelNotReady(RuntimeUnavailable):
    """The model is not loaded, or is loading."""

    counts_for_circuit = False


class ContractMismatch(JobError):
    """Names, types, shapes or permissions do not fit: no job of this model can run from here."""

    code = ErrorCode.RUNTIME_CONTRACT_MISMATCH
    again = Again.WHEN_RECOVERED
    counts_for_circuit = opens_circuit = True
    may_have_run = False


class ConnectionLost(JobError):
    """Reset, closed or 502 while the job ran."""

    code = ErrorCode.RUNTIME_CONNECTION_LOST
    again = Again.UP_TO_MAX_ATTEMPTS
    counts_for_circuit = True


class ModelCrashed(JobError):
    """The model's process died under the job, which may be the cause."""

    code = ErrorCode.RUNTIME_MODEL_CRASHED
    again = Again.UP_TO_MAX_ATTEMPTS
    counts_for_circuit = opens_circuit = True


class InternalError(JobError):
    """A fault of the worker's own."""

    code = ErrorCode.INTERNAL_ERROR
    again = Again.UP_TO_MAX_ATTEMPTS
