"""What traces tell of a run: its steps and their times, what it came from, and what it was before."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Return, Standing
from tasks.errors import ConnectionLost, ErrorCode, ModelNotReady, UsageUnavailable
from tasks.generate import Generation, generate
from tasks.job import GenerateJob
from tasks.reading import DeadLetterReason, JobIdentity
from tasks.result import AttemptCode
from tests.fakes import GENERATION, FakeClock, FakeInference
from tests.generating import ports
from tests.jobs import CLAIMED_AT_MS, MODEL, TRACEPARENT, attempt, delivery, job_json, usage
from worker.exchange import Claim, Claimed, ExchangeReply, Known
from worker.tracing.identity import Context, run_id_of, trace_id_of, traceparent_in
from worker.tracing.runs import Runs, TracedInference
from worker.tracing.story import Link, Step, Story
from worker.tracing.wanted import NO_TRACES, TracesWanted, traces_wanted

PARENT = Context.of(TRACEPARENT)
SETTLED, SETTLED_BEFORE, GONE = 1, 0, -1
TRACED = delivery(job_json(traceparent=TRACEPARENT))


@dataclass
class Notes:
    """A recorder that keeps stories."""

    is_sampling: bool = True
    stories: list[Story] = field(default_factory=list)
    asked: list[tuple[int, Context | None]] = field(default_factory=list)

    def samples(self, trace_id: int, parent: Context | None) -> bool:
        """Say what it was told to."""
        self.asked.append((trace_id, parent))
        return self.is_sampling

    def record(self, story: Story) -> None:
        """Keep it."""
        self.stories.append(story)


@dataclass
class Rig:
    """The runs of a process whose inferences take 840 ms, on a clock that the test lets pass."""

    clock: FakeClock = field(default_factory=FakeClock)
    notes: Notes | None = field(default_factory=Notes)

    def __post_init__(self) -> None:
        """Know no run yet."""
        self.runs = Runs(self.clock)
        self.runs.recorder = self.notes

    def claim(self, of: Delivery, *, asked_ms: float, answered_ms: float) -> None:
        """Let a call claim the job."""
        known = Known(Standing.TO_RUN, b"", alone=False, attempts=())
        claim = Claim(of.tag, "q", of.raw, of.job_id, of.claimed_at_ms, known)
        claimed = Claimed(of.claimed_at_ms, None, frozenset(), frozenset(), (claim,))
        self.clock.now_ms = answered_ms
        self.runs.exchanged(asked_ms, ExchangeReply(claimed=claimed))

    def run(
        self, of: Delivery, ends_with: Generation | BaseException = GENERATION
    ) -> tuple[Outcome, list[GenerateJob]]:
        """Run it; returns the outcome, and what the runtime was asked."""
        inference = FakeInference(ends_with, self.clock, takes_ms=840)
        outcome = generate(of, replace(ports(inference), inference=TracedInference(inference, self.runs)))
        return outcome, [job for job, _ in inference.asked]

    def story(self, of: Delivery, ends_with: Generation | BaseException = GENERATION, word: int = SETTLED) -> Story:
        """Run it to its committed end, and return its story."""
        outcome, _ = self.run(of, ends_with)
        self.runs.committed(of, outcome, word)
        assert self.notes is not None
        return self.notes.stories.pop()


def shown(step: Step) -> tuple[str, float, float]:
    """Return a step's name and times, from the claim on."""
    return step.name, step.begun_ms - CLAIMED_AT_MS, step.ended_ms - CLAIMED_AT_MS


def test_a_run_is_told_step_by_step_by_redis_clock() -> None:
    """Claim, wait for the pool, inference, settling; the whole goes from the call that claimed to the commit."""
    rig = Rig()
    of = delivery(job_json(traceparent=TRACEPARENT), received_ms=1000.0)
    rig.claim(of, asked_ms=998, answered_ms=1003)
    rig.clock.pass_ms(7)
    outcome, _ = rig.run(of)
    rig.clock.pass_ms(5)
    rig.runs.committed(of, outcome, SETTLED)
    assert rig.notes is not None
    (story,) = rig.notes.stories
    assert shown(story.whole) == ("speedinfer.generate", -2, 855)
    assert [shown(step) for step in story.steps] == [
        ("claim", -2, 3),
        ("pool wait", 3, 10),
        ("inference", 10, 850),
        ("settle", 850, 855),
    ]


def test_the_runtime_is_given_the_context_of_the_inference() -> None:
    """In the job's trace, in the place of the job's own."""
    rig = Rig()
    _, (asked,) = rig.run(TRACED)
    assert asked.traceparent is not None
    given = Context.of(asked.traceparent)
    assert given.trace_id == PARENT.trace_id
    assert given.span_id != PARENT.span_id
    assert given.is_sampled
    assert asked == GenerateJob.model_validate_json(TRACED.raw).model_copy(update={"traceparent": asked.traceparent})
    story = rig.story(TRACED)
    assert story.steps[2].span_id not in {None, given.span_id}
    assert (story.trace_id, story.parent) == (PARENT.trace_id, PARENT)


def test_a_job_without_a_trace_has_one_that_its_id_names() -> None:
    """The same whoever runs it."""
    story = Rig().story(delivery())
    assert (story.trace_id, story.parent) == (trace_id_of("j-1"), None)
    assert Rig().story(delivery()).trace_id == story.trace_id


@pytest.mark.parametrize(
    ("ends_with", "word", "outcome", "code"),
    [
        (GENERATION, SETTLED, "settled", None),
        (UsageUnavailable(), SETTLED, "settled", "runtime_usage_unavailable"),
        (ConnectionLost(), SETTLED, "retried", "runtime_connection_lost"),
        (ModelNotReady(), SETTLED, "returned", "runtime_unavailable"),
        (GENERATION, SETTLED_BEFORE, "settled before", None),
        (GENERATION, GONE, "lost", None),
        (ConnectionLost(), 0, "lost", "runtime_connection_lost"),
    ],
)
def test_what_became_of_a_run_is_told(
    ends_with: Generation | BaseException, word: int, outcome: str, code: str | None
) -> None:
    """And its code, where it failed."""
    story = Rig().story(TRACED, ends_with, word)
    attributes = story.whole.attributes
    assert attributes["speedinfer.outcome"] == outcome
    assert (story.whole.error, attributes.get("speedinfer.code")) == (code, code)
    assert (attributes["speedinfer.job_id"], attributes["speedinfer.model"]) == ("j-1", MODEL)
    spent = {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 32} if code is None else {}
    assert {name: number for name, number in attributes.items() if "usage" in name} == spent


def test_no_content_of_a_job_is_told() -> None:
    """Neither prompt nor text, nor what the gateway sent along."""
    secret = delivery(job_json(prompt="a secret", tenant="tenant-7", metadata={"k": "also secret"}))
    told = repr(Rig().story(secret))
    assert not any(word in told for word in ("secret", "tenant-7", "Hello to you too"))


def test_a_run_again_is_linked_to_the_runs_before() -> None:
    """Whoever made them, by what the ledger says: no id has to be handed on."""
    first = Rig().story(TRACED, ConnectionLost())
    ledger = (attempt(ErrorCode.RUNTIME_CONNECTION_LOST),)
    second_delivery = delivery(TRACED.raw, tag="9.1", attempts=ledger)
    second = Rig().story(second_delivery, ConnectionLost())
    assert second.links == (Link(_span_id(first), "runtime_connection_lost"),)
    third = Rig().story(delivery(TRACED.raw, attempts=(*ledger, attempt(AttemptCode.WORKER_LOST))))
    assert third.links == (*second.links, Link(_span_id(second), "worker_lost"))
    assert third.whole.attributes["speedinfer.attempt"] == 3
    assert len({_span_id(story) for story in (first, second, third)}) == 3


def _span_id(story: Story) -> int:
    assert story.whole.span_id is not None
    return story.whole.span_id


def test_a_run_that_left_no_attempt_has_no_place_among_them() -> None:
    """The next one has that place: two spans of one id would be one."""
    assert Rig().story(TRACED, ModelNotReady()).whole.span_id is None
    rig = Rig()
    rig.runs.committed(TRACED, None, 1)
    assert rig.notes is not None
    assert rig.notes.stories[0].whole.span_id is None
    assert [step.name for step in rig.notes.stories[0].steps] == ["claim", "settle"]


def test_a_job_that_never_ran_is_in_its_trace_too() -> None:
    """It failed before its start."""
    rig = Rig()
    invalid = delivery(job_json(max_tokens=0, traceparent=TRACEPARENT))
    story = rig.story(invalid)
    assert (story.trace_id, story.parent, story.whole.error) == (PARENT.trace_id, PARENT, "invalid_job")
    assert [step.name for step in story.steps] == ["claim", "settle"]


def test_what_an_earlier_run_spent_is_not_told_again() -> None:
    """A job that expired before its second run spent nothing in it."""
    before = attempt(ErrorCode.RUNTIME_CONNECTION_LOST, usage())
    expired = delivery(TRACED.raw, standing=Standing.EXPIRED, attempts=(before,))
    story = Rig().story(expired)
    assert story.whole.error == "job_expired"
    assert not any("usage" in name for name in story.whole.attributes)


@pytest.mark.parametrize(
    ("of", "outcome"),
    [
        (TRACED, Duplicate(JobIdentity("j-1", MODEL, "f"))),
        (delivery(b"nonsense", job_id=None), DeadLetter(DeadLetterReason.NOT_JSON)),
        (delivery(b"nonsense", job_id=None), None),
    ],
)
def test_what_is_no_run_of_a_job_has_no_story(of: Delivery, outcome: Outcome | None) -> None:
    """A second copy, a dead letter."""
    rig = Rig()
    rig.runs.committed(of, outcome, 1)
    assert rig.notes is not None
    assert rig.notes.stories == []


def test_a_trace_that_is_not_sampled_costs_no_span() -> None:
    """Its context is handed on all the same, as not sampled."""
    rig = Rig(notes=Notes(is_sampling=False))
    outcome, (asked,) = rig.run(TRACED)
    rig.runs.committed(TRACED, outcome, SETTLED)
    assert rig.notes is not None
    assert rig.notes.stories == []
    assert asked.traceparent is not None
    assert asked.traceparent.endswith("-00")
    assert set(rig.notes.asked) == {(PARENT.trace_id, PARENT)}


def test_without_a_recorder_jobs_run_as_if_there_were_no_traces() -> None:
    """Triton is given what the job says."""
    rig = Rig(notes=None)
    outcome, (asked,) = rig.run(TRACED)
    rig.runs.committed(TRACED, outcome, SETTLED)
    assert asked.traceparent == TRACEPARENT


def test_an_inference_that_was_broken_off_lasts_until_it_was() -> None:
    """The job went back while it ran."""

    class BrokenOff(BaseException):
        """As a greenlet's end is."""

    rig = Rig()
    with pytest.raises(BrokenOff):
        rig.run(TRACED, BrokenOff())
    rig.clock.pass_ms(60)
    rig.runs.committed(TRACED, None, 1)
    assert rig.notes is not None
    (story,) = rig.notes.stories
    assert [shown(step) for step in story.steps][2:] == [("inference", 0, 840), ("settle", 840, 900)]
    assert story.whole.attributes["speedinfer.outcome"] == "returned"
    assert story.whole.span_id == run_id_of("j-1", 0)


def test_runs_whose_end_is_never_heard_of_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a lease that was lost."""
    monkeypatch.setattr("worker.tracing.runs._MOST_KEPT", 3)
    rig = Rig()
    for n in range(10):
        of = delivery(tag=f"{n}.1")
        rig.claim(of, asked_ms=n, answered_ms=n + 1)
        rig.run(of)
    assert len(rig.runs._claims) == 3
    assert len(rig.runs._inferences) <= 4


def test_a_return_is_told_without_a_run() -> None:
    """Its model was out of order before it began."""
    rig = Rig()
    rig.runs.committed(TRACED, Return(JobIdentity("j-1", MODEL, "f"), ModelNotReady()), 1)
    assert rig.notes is not None
    assert rig.notes.stories[0].whole.error == "runtime_unavailable"


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_a_context_is_what_its_header_says(trace_id: int, span_id: int, is_sampled: bool) -> None:
    """There and back."""
    context = Context(trace_id, span_id, is_sampled)
    assert Context.of(context.traceparent) == context
    assert traceparent_in(job_json(traceparent=context.traceparent)) == context.traceparent


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"nonsense",
        b"\xff",
        job_json(),
        job_json(traceparent=7),
        job_json(traceparent="00-0-0-01"),
        b"[" * 9999,
    ],
)
def test_bytes_without_a_valid_trace_context_have_none(raw: bytes) -> None:
    """Whatever they are."""
    assert traceparent_in(raw) is None


@given(st.text(max_size=20), st.integers(0, 100))
def test_ids_are_valid_and_apart(job_id: str, place: int) -> None:
    """No id is zero, and each place has its own."""
    assert 0 < trace_id_of(job_id) < 2**128
    assert 0 < run_id_of(job_id, place) < 2**64
    assert run_id_of(job_id, place) != run_id_of(job_id, place + 1)


def test_the_page_says_what_a_trace_shows() -> None:
    """Its spans in their order, and the attributes of a run."""
    page = (Path(__file__).parents[2] / "docs/tracing.md").read_text()
    story = Rig().story(TRACED, UsageUnavailable())
    spans = re.findall(r"^\| `([\w. ]+)` \| the ", page.partition("\n| attribute")[0], re.MULTILINE)
    assert spans == [story.whole.name, *(step.name for step in story.steps)]
    attributes = {*story.whole.attributes, *Rig().story(TRACED).whole.attributes}
    rows = " ".join(re.findall(r"^\| (`(?:speedinfer|gen_ai)\..*?) \|", page, re.MULTILINE))
    assert {*re.findall(r"`([\w.]+\.[\w.]+)`", rows)} - {"speedinfer.generate"} == attributes


OTLP = TracesWanted(("otlp",))


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, NO_TRACES),
        ({"OTEL_SERVICE_NAME": "x"}, NO_TRACES),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, OTLP),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, OTLP),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318"}, NO_TRACES),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, OTLP),
        ({"OTEL_TRACES_EXPORTER": " otlp , console"}, TracesWanted(("otlp", "console"))),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, NO_TRACES),
        ({"OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}, NO_TRACES),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, NO_TRACES),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, TracesWanted(("otlp",), "grpc")),
        (
            {
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            OTLP,
        ),
    ],
)
def test_traces_are_wanted_where_the_standard_variables_say_so(environ: dict[str, Any], wanted: TracesWanted) -> None:
    """An exporter by name, or an address."""
    assert traces_wanted(environ) == wanted
