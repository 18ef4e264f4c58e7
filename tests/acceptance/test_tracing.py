"""Traces of a real worker, as a collector gets them."""

import json
import signal
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.acceptance.collector import QUICK, Collector
from tests.acceptance.fleet import Client, Fleet, models, run
from tests.acceptance.gateway import push_jobs, result_of, wait_for_results
from tests.jobs import TRACEPARENT
from tests.misbehaving_server import MisbehavingServer
from worker.clock import MonotonicClock
from worker.sandbox.places import free_port
from worker.tracing.service import Traces
from worker.tracing.wanted import TracesWanted

SERVED, FAULTY = "acme/served", "acme/faulty"
TRACE_ID, PARENT_ID = TRACEPARENT.split("-")[1:3]
STEPS = ["claim", "pool wait", "inference", "settle"]


def test_a_job_is_a_trace_from_its_gateway_to_triton(fleet: Fleet, valkey: Client) -> None:
    """One span beneath the gateway's, with its steps; a run again is linked to the one before; Triton gets the inference's context.

    What the gateway does not sample is neither sent nor sampled further on. What is left is sent when the worker ends. Neither prompt
    nor text nor a tenant's name is in a span.
    """
    with Collector() as collector, MisbehavingServer() as triton:
        environment = {**collector.environment, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x"}
        behind = models(served="text_generation", faulty="faulty")
        real = fleet.start(worker_id="real", environment=environment, **behind)
        other = fleet.start(worker_id="other", environment=environment, runtime_endpoint=triton.url)
        content = {"tenant": "canary", "metadata": {"canary": "canary"}}
        push_jobs(valkey, "traced", model=SERVED, prompt="sleep=0.3 canary", traceparent=TRACEPARENT, **content)
        push_jobs(valkey, "unsampled", model=SERVED, traceparent=TRACEPARENT[:-1] + "0")
        push_jobs(valkey, "again", model=FAULTY, prompt="raise canary", **content)
        push_jobs(valkey, "seen", traceparent=TRACEPARENT)
        results = wait_for_results(valkey, "traced", "unsampled", "again", "seen")
        assert [worker.stop() for worker in (real, other)] == [0, 0]

    (traced,) = collector.runs_of("traced")
    assert (traced.name, traced.trace_id, traced.parent_id) == ("speedinfer.generate", TRACE_ID, PARENT_ID)
    assert (traced.attributes["speedinfer.model"], traced.attributes["speedinfer.outcome"]) == (SERVED, "settled")
    usage = results["traced"].usage
    assert usage is not None
    assert traced.attributes["gen_ai.usage.output_tokens"] == usage.completion_tokens
    assert (traced.sender["service.name"], traced.sender["service.instance.id"]) == ("speedinfer-worker", "real")
    steps = collector.steps_of(traced)
    assert [step.name for step in steps] == STEPS
    assert {step.trace_id for step in steps} == {TRACE_ID}
    assert steps[0].begun_ns == traced.begun_ns
    assert steps[-1].ended_ns == traced.ended_ns
    assert all(before.ended_ns == after.begun_ns for before, after in pairwise(steps))
    inference_ms = results["traced"].timings.inference_ms
    # The span is what of the inference was Triton's, so it lies within what the result says, which is in whole ms.
    assert inference_ms is not None
    assert 300 <= (steps[2].ended_ns - steps[2].begun_ns) / 1e6 <= inference_ms + 1

    first, second = collector.runs_of("again")
    assert [span.attributes["speedinfer.outcome"] for span in (first, second)] == ["retried", "settled"]
    assert second.links == ((first.trace_id, first.span_id, {"speedinfer.code": "triton_inference_failed"}),)
    assert {first.error, second.error} == {"triton_inference_failed"}
    assert first.parent_id == ""

    (seen,) = collector.runs_of("seen")
    (request,) = triton.inferences
    assert request.headers["traceparent"] == f"00-{TRACE_ID}-{collector.steps_of(seen)[2].span_id}-01"
    assert collector.runs_of("unsampled") == []
    assert collector.authorizations == {"Bearer x"}
    assert "canary" not in repr(collector.spans)


def test_a_collector_that_is_away_holds_nobody_up(fleet: Fleet, valkey: Client) -> None:
    """Jobs run, and the worker ends within seconds."""
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", **QUICK}
    worker = fleet.start(environment=environment)
    push_jobs(valkey, "runs", traceparent=TRACEPARENT)
    assert result_of(valkey, "runs").status == "succeeded"
    worker.signal(signal.SIGTERM)
    assert worker.wait(timeout=10) == 0


def test_traces_that_cannot_be_sent_stop_no_worker(fleet: Fleet, valkey: Client, tmp_path: Path) -> None:
    """Without the extra it says what is missing, and runs jobs all the same."""
    package = tmp_path / "without" / "opentelemetry"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError(name='opentelemetry')\n")
    worker = fleet.start(environment={"OTEL_TRACES_EXPORTER": "otlp", "PYTHONPATH": str(package.parent)})
    told = {"missing": "opentelemetry", "remedy": "pip install 'speedinfer-triton-worker[otel]'"}
    assert worker.wait_for_event("tracing.was_refused").items() >= told.items()
    push_jobs(valkey, "runs", traceparent=TRACEPARENT)
    assert result_of(valkey, "runs").status == "succeeded"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (TracesWanted(("otlp",), "grpc"), "OTEL_EXPORTER_OTLP_PROTOCOL grpc is not spoken here: set http/protobuf"),
        (TracesWanted(("console", "zipkin")), "OTEL_TRACES_EXPORTER names zipkin, which is not installed"),
    ],
)
def test_an_exporter_that_cannot_be_had_is_said(wanted: TracesWanted, reason: str) -> None:
    """Which, and why; there is no recorder then, and so no trace."""
    traces = Traces(wanted, "triton-01", MonotonicClock())
    with capture_logs() as lines:
        traces.start()
    assert [(line["event"], line["reason"]) for line in lines] == [("tracing.was_refused", reason)]
    assert traces.runs.recorder is None
    traces.close()


_MAKE_A_WORKER = """
import json, os, sys
from settings.load import settings_from
from worker.app import create_app
from worker.tracing.wanted import traces_wanted
create_app(settings_from(json.loads(sys.argv[1])), traces_wanted(os.environ))
sending = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "worker.tracing.exporting")
print(json.dumps(sorted(name for name in sys.modules if name.startswith(sending))))
"""


def test_what_makes_spans_is_not_even_imported_before_they_are_sent(fleet: Fleet) -> None:
    """Not by commands such as ``celery inspect``, which start no worker, though an exporter is configured.

    (Redis' client imports OpenTelemetry's metrics by itself, where they are installed.)
    """
    ended = run(
        Path(sys.executable).name,
        "-c",
        _MAKE_A_WORKER,
        json.dumps(fleet.configuration()),
        environment={"OTEL_TRACES_EXPORTER": "otlp"},
    )
    assert (ended.code, ended.out) == (0, "[]\n"), ended.err
