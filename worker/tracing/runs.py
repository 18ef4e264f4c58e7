"""Notes what happens to the jobs of this process, and tells their story when they are out of hand."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome
from tasks.generate import Clock, Generation, Inference
from tasks.job import GenerateJob
from tasks.tensor_result import TensorGeneration
from tasks.tensors import TensorJob
from worker.exchange import Exchange, ExchangeReply
from worker.intake_ports import Committer
from worker.tracing.identity import Context, trace_id_of, traceparent_in
from worker.tracing.story import Story, Times, tell

_MOST_KEPT: Final = 100_000
"""Runs whose end is never heard of, such as those of a lease that was lost, are forgotten when so many others came after them."""

T = TypeVar("T")


class Recorder(Protocol):
    """Makes spans of stories."""

    def samples(self, trace_id: int, parent: Context | None) -> bool:
        """Tell whether a trace is recorded."""
        ...

    def record(self, story: Story) -> None:
        """Make the spans of a run."""
        ...


@dataclass(slots=True)
class _Run:
    """``context`` is of its inference; one that never began has no times."""

    context: Context
    parent: Context | None
    begun_ms: float | None = None
    ended_ms: float | None = None


class Runs:
    """The runs of one process, by the tags of their claims."""

    def __init__(self, clock: Clock) -> None:
        """Know none yet."""
        self.recorder: Recorder | None = None
        """Who is told; while there is nobody, jobs run as if there were no traces."""
        self._clock = clock
        self._claims: dict[str, tuple[float, float]] = {}
        self._inferences: dict[str, _Run] = {}

    def exchanged(self, asked_ms: float, reply: ExchangeReply) -> None:
        """Note when a call that claimed jobs was made, and that it is answered."""
        if reply.claimed:
            answered_ms = self._clock.monotonic_ms()
            for claim in reply.claimed.claims:
                self._claims[claim.tag] = asked_ms, answered_ms
        while len(self._claims) > _MOST_KEPT:
            tag = next(iter(self._claims))
            del self._claims[tag]
            self._inferences.pop(tag, None)

    def traced(self, job_id: str, traceparent: str | None, request_id: str, infer: Callable[[str | None], T]) -> T:
        """Return what ``infer`` does, given the traceparent of the inference's span, and note how long it takes."""
        if self.recorder is None:
            return infer(traceparent)
        run = self._inferences[request_id.rpartition("/")[2]] = self._run(self.recorder, job_id, traceparent)
        run.begun_ms = self._clock.monotonic_ms()
        try:
            return infer(run.context.traceparent)
        finally:
            run.ended_ms = self._clock.monotonic_ms()

    def committed(self, delivery: Delivery, outcome: Outcome | None, word: int) -> None:
        """Tell the story of a run whose outcome is committed; what was no run of a job has none."""
        now_ms = self._clock.monotonic_ms()
        asked_ms, answered_ms = self._claims.pop(delivery.tag, (delivery.received_ms, delivery.received_ms))
        run = self._inferences.pop(delivery.tag, None)
        if self.recorder is None or delivery.job_id is None or isinstance(outcome, (Duplicate, DeadLetter)):
            return
        if run is None:
            run = self._run(self.recorder, delivery.job_id, traceparent_in(delivery.raw))
        if run.context.is_sampled:
            times = Times(asked_ms, answered_ms, run.begun_ms, run.ended_ms, now_ms)
            self.recorder.record(tell(delivery, outcome, word, times, run.context, run.parent))

    def reaped(self, jobs: int) -> None:
        """Do nothing: the runs of others are theirs to tell."""

    @staticmethod
    def _run(recorder: Recorder, job_id: str, traceparent: str | None) -> "_Run":
        parent = None if traceparent is None else Context.of(traceparent)
        trace_id = trace_id_of(job_id) if parent is None else parent.trace_id
        context = Context(trace_id, secrets.randbits(64) or 1, is_sampled=recorder.samples(trace_id, parent))
        return _Run(context, parent)


@dataclass(frozen=True, slots=True)
class TracedInference:
    """Runs inferences with a span each, whose context goes to the runtime in the place of the job's."""

    inner: Inference
    runs: Runs

    def infer(self, job: GenerateJob, request_id: str) -> Generation:
        """Do as the inner one."""
        return self.runs.traced(
            job.job_id,
            job.traceparent,
            request_id,
            lambda traceparent: self.inner.infer(job.model_copy(update={"traceparent": traceparent}), request_id),
        )

    def infer_tensors(self, job: TensorJob, request_id: str) -> TensorGeneration:
        """Do as the inner one."""
        return self.runs.traced(
            job.job_id,
            job.traceparent,
            request_id,
            lambda traceparent: self.inner.infer_tensors(
                job.model_copy(update={"traceparent": traceparent}), request_id
            ),
        )


@dataclass(frozen=True, slots=True)
class TracedCommitter:
    """Does exchanges, and notes when their claims were asked for."""

    inner: Committer
    runs: Runs
    clock: Clock

    def exchange(self, asked: Exchange) -> ExchangeReply:
        """Do as the inner one."""
        asked_ms = self.clock.monotonic_ms()
        reply = self.inner.exchange(asked)
        self.runs.exchanged(asked_ms, reply)
        return reply
