"""A collector of spans, as OpenTelemetry's is: it takes what workers send over HTTP, and keeps it."""

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

QUICK: Final = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
"""What keeps tests short."""


@dataclass(frozen=True)
class Span:
    """One span as it was sent; ``sender`` is its resource, ids are hexadecimal, times unix ns."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    begun_ns: int
    ended_ns: int
    error: str | None
    attributes: dict[str, Any]
    links: tuple[tuple[str, str, dict[str, Any]], ...]
    sender: dict[str, Any]


class Collector:
    """A context manager: listens on loopback."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.authorizations: set[str | None] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            """Takes one request at a time."""

            def do_POST(self) -> None:
                """Keep the spans."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                zipped = self.headers.get("Content-Encoding") == "gzip"
                collector.authorizations.add(self.headers.get("Authorization"))
                collector.spans += _spans(gzip.decompress(body) if zipped else body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature is the library's
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a worker sends to it, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}", **QUICK}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def runs_of(self, job_id: str) -> list[Span]:
        """Return the spans of a job's runs, oldest first."""
        found = [span for span in self.spans if span.attributes.get("speedinfer.job_id") == job_id]
        return sorted(found, key=lambda span: span.begun_ns)

    def steps_of(self, run: Span) -> list[Span]:
        """Return the spans within a run, oldest first."""
        return sorted((s for s in self.spans if s.parent_id == run.span_id), key=lambda s: (s.begun_ns, s.ended_ns))


def _spans(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    return [
        Span(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else None,
            _values(span.attributes),
            tuple((link.trace_id.hex(), link.span_id.hex(), _values(link.attributes)) for link in span.links),
            _values(group.resource.attributes),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in attributes}
