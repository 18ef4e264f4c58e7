"""A worker's traces as one part: what notes, and what sends."""

from importlib.metadata import version
from typing import Protocol

import structlog

from tasks.generate import Clock, Inference
from worker import DISTRIBUTION
from worker.intake_ports import Committer
from worker.tracing.runs import Recorder, Runs, TracedCommitter, TracedInference
from worker.tracing.wanted import TracesWanted

log = structlog.get_logger()


class Sender(Recorder, Protocol):
    """Records stories, and sends what it makes of them."""

    def close(self) -> None:
        """Send what is left."""
        ...


class Traces:
    """The traces of one worker."""

    def __init__(self, wanted: TracesWanted, worker_id: str, clock: Clock) -> None:
        """Send nothing yet."""
        self._wanted = wanted
        self._worker_id = worker_id
        self._clock = clock
        self._sender: Sender | None = None
        self.runs = Runs(clock)

    def start(self) -> None:
        """Begin to send. Where nothing can be sent that is logged, and jobs run all the same."""
        try:
            from worker.tracing import exporting  # noqa: PLC0415 - it needs the extra otel, and time where nothing is sent
        except ModuleNotFoundError as missing:
            log.warning("tracing.was_refused", missing=missing.name, remedy=f"pip install '{DISTRIBUTION}[otel]'")
            return
        try:
            self._sender = exporting.sender_to(self._wanted, self._worker_id, version(DISTRIBUTION))
        except exporting.UnusableExporter as problem:
            log.warning("tracing.was_refused", reason=str(problem))
        else:
            self.runs.recorder = self._sender
            log.info("tracing.started", exporters=self._wanted.exporters)

    def close(self) -> None:
        """Send what is left, for a few seconds at the most."""
        if self._sender is not None:
            self._sender.close()

    def inference(self, inner: Inference) -> Inference:
        """Return the same with a span for each inference."""
        return TracedInference(inner, self.runs)

    def committer(self, inner: Committer) -> Committer:
        """Return the same, of whose claims the times are noted."""
        return TracedCommitter(inner, self.runs, self._clock)
