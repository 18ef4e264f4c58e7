"""Stories as spans of OpenTelemetry's SDK: its one importer. Resource, sampler and limits are those of the standard variables."""

import secrets
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

import gevent
import structlog
from opentelemetry.context import Context as SdkContext
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from worker.tracing.identity import Context
from worker.tracing.story import RUN, Step, Story
from worker.tracing.wanted import TracesWanted

_FLUSH_SECONDS: Final = 3.0
"""How long a worker that ends waits for its last spans to be taken."""

_NS_A_MS: Final = 1_000_000

log = structlog.get_logger()


class UnusableExporter(Exception):
    """An exporter that is configured cannot be had; the words say which and why."""


class _ChosenIds(IdGenerator):
    """Gives the ids that were chosen before; what has none gets one that is drawn."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id: int | None = None

    def generate_trace_id(self) -> int:
        """Return the chosen trace."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Return the chosen span, once."""
        chosen, self.span_id = self.span_id, None
        return chosen or secrets.randbits(64) or 1


class Exporting:
    """Records stories, and sends their spans in batches from a greenlet of its own."""

    def __init__(self, exporters: Sequence[SpanExporter], worker_id: str, version: str) -> None:
        """Begin to send. The process has been patched for gevent: the SDK's thread is a greenlet."""
        self._ids = _ChosenIds()
        self._provider = TracerProvider(
            resource=_resource(worker_id, version), id_generator=self._ids, shutdown_on_exit=False
        )
        for exporter in exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("speedinfer", version)

    def samples(self, trace_id: int, parent: Context | None) -> bool:
        """Tell whether a trace is recorded: the sampler's word, which is the parent's unless it is told otherwise."""
        decided = self._provider.sampler.should_sample(_beneath(parent), trace_id, RUN, SpanKind.CONSUMER)
        return decided.decision is Decision.RECORD_AND_SAMPLE

    def record(self, story: Story) -> None:
        """Make the spans of a run."""
        self._ids.trace_id = story.trace_id
        links = [
            Link(
                SpanContext(story.trace_id, link.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)),
                {} if link.code is None else {"speedinfer.code": link.code},
            )
            for link in story.links
        ]
        whole = self._span(story.whole, _beneath(story.parent), SpanKind.CONSUMER, links)
        inside = set_span_in_context(whole, SdkContext())
        for step in story.steps:
            kind = SpanKind.CLIENT if step.span_id is not None else SpanKind.INTERNAL
            _end(self._span(step, inside, kind, []), step)
        _end(whole, story.whole)

    def close(self) -> None:
        """Send what is left, for a few seconds at the most."""
        closing = gevent.spawn(self._provider.shutdown)
        closing.join(_FLUSH_SECONDS)
        if not closing.ready():
            closing.kill(block=False)
            log.warning("tracing.left_spans")

    def _span(self, step: Step, context: SdkContext, kind: SpanKind, links: list[Link]) -> Span:
        # Nothing else runs between the choice of an id and its use.
        self._ids.span_id = step.span_id
        start = round(step.begun_ms * _NS_A_MS)
        return self._tracer.start_span(step.name, context, kind, dict(step.attributes), links, start)


def sender_to(wanted: TracesWanted, worker_id: str, version: str) -> Exporting:
    """Return what sends to the exporters that are wanted.

    Raises:
        UnusableExporter: one of them cannot be had.
    """
    return Exporting([_exporter(name, wanted.protocol) for name in wanted.exporters], worker_id, version)


def _exporter(name: str, protocol: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    if name == "otlp":
        if protocol != "http/protobuf":
            raise UnusableExporter(f"OTEL_EXPORTER_OTLP_PROTOCOL {protocol[:40]} is not spoken here: set http/protobuf")
        return OTLPSpanExporter()
    for entry in entry_points(group="opentelemetry_traces_exporter", name=name):
        exporter: SpanExporter = entry.load()()
        return exporter
    raise UnusableExporter(f"OTEL_TRACES_EXPORTER names {name[:40]}, which is not installed")


def _resource(worker_id: str, version: str) -> Resource:
    """Return who sends; what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say goes before."""
    ours = Resource({SERVICE_NAME: "speedinfer-worker", "service.instance.id": worker_id, "service.version": version})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())


def _beneath(parent: Context | None) -> SdkContext:
    if parent is None:
        return SdkContext()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
    span = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(span), SdkContext())


def _end(span: Span, step: Step) -> None:
    if step.error is not None:
        span.set_status(Status(StatusCode.ERROR, step.error))
    span.end(round(step.ended_ms * _NS_A_MS))
