"""What a circuit is told of a delivery that has ended. Pure."""

import hashlib
from dataclasses import dataclass

from tasks.errors import ErrorCode, JobError, ModelException
from worker.circuit import CircuitTerms
from worker.circuit_calls import Call


@dataclass(frozen=True, slots=True)
class Observation:
    """How a delivery ended: its public model name, when it was claimed (Redis' unix ms), and what came of it.

    ``error`` is None for a success alone. ``inference_ms`` is None where it did not run.
    """

    model: str
    claimed_at_ms: int
    error: JobError | None
    tenant: str | None = None
    inference_ms: int | None = None


def is_slow(seen: Observation, terms: CircuitTerms) -> bool:
    """Tell whether its inference took longer than configured."""
    return terms.slow_call_ms is not None and (seen.inference_ms or 0) > terms.slow_call_ms


def as_call(seen: Observation, terms: CircuitTerms, ended_ms: int) -> Call:
    """Return what an observation is to a circuit; a tenant becomes a digest, since the circuit stands in Redis."""
    error = seen.error
    slow = is_slow(seen, terms)
    of_its_content = slow if error is None else error.content_may_cause_it
    return Call(
        seen.claimed_at_ms,
        ended_ms,
        code=None if error is None else error.code,
        counts=error is not None and error.counts_for_circuit,
        opens_at_once=error is not None and error.opens_circuit,
        tenant=_digest(seen.tenant) if seen.tenant and of_its_content else None,
        slow=slow,
        text_digest=error.text_digest if isinstance(error, ModelException) else None,
    )


def confirmed_loss(ended_ms: int) -> Call:
    """Return what it is to a circuit that a connection broke under a job, and a look right after it found the server away.

    One lost connection may be a proxy's whim, and one failed look a new connection's. Together they leave no doubt, and the jobs
    that would have to fail until there are enough failures in a row are not sent any more.
    """
    return Call(ended_ms, ended_ms, code=ErrorCode.RUNTIME_UNAVAILABLE, counts=True, opens_at_once=True)


def _digest(tenant: str) -> str:
    return hashlib.blake2b(tenant.encode(), digest_size=8).hexdigest()
