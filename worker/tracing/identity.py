"""The ids of a job's trace and of its runs. Pure.

They are made of the job's id, so that whoever runs a job again knows what its earlier runs are called, and has to be told by nobody.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from pydantic import TypeAdapter, ValidationError

from tasks.job import TraceParent

_TRACEPARENT: TypeAdapter[str] = TypeAdapter(TraceParent)


@dataclass(frozen=True, slots=True)
class Context:
    """A span, as W3C's trace context names it."""

    trace_id: int
    span_id: int
    is_sampled: bool

    @classmethod
    def of(cls, traceparent: str) -> Self:
        """Return the span that a valid traceparent names."""
        _, trace_id, span_id, flags = traceparent.split("-")
        return cls(int(trace_id, 16), int(span_id, 16), is_sampled=bool(int(flags, 16) & 1))

    @property
    def traceparent(self) -> str:
        """Return it as a header."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def trace_id_of(job_id: str) -> int:
    """Return the trace of a job that came with none: the first 16 bytes of its id's SHA-256."""
    return int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:16]) or 1


def run_id_of(job_id: str, place: int) -> int:
    """Return the span of the run that has this place, from 0, among the attempts in the job's ledger."""
    return int.from_bytes(hashlib.sha256(f"{job_id}/{place}".encode()).digest()[:8]) or 1


def traceparent_in(raw: bytes) -> str | None:
    """Return the trace context of a job that never ran, None where its bytes hold no valid one."""
    try:
        job = json.loads(raw)
        return _TRACEPARENT.validate_python(job["traceparent"]) if isinstance(job, dict) else None
    except (ValueError, LookupError, RecursionError, ValidationError):
        return None
