"""Jobs on a real Triton: what it answers to each kind of job, model and fault, as the generate task sees it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import gevent.os
import pytest
import structlog

from tasks.errors import (
    ConnectionLost,
    ContractMismatch,
    InferenceRejected,
    InvalidJob,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    ModelNotSupported,
    OutputInvalid,
    QueueFull,
    RuntimeTimeout,
    RuntimeUnavailable,
    UsageUnavailable,
)
from tasks.generate import Generation
from tasks.usage import Usage
from tests.conftest import MODELS
from tests.inferences import HASTY, PATIENT, all_at_once, failure_of, infer, inference_on, job_for, of_two_minds
from tests.jobs import MODEL
from tests.triton_http import load, revive, unload
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.triton.adapter import TritonInference
from worker.triton.asking import asked_model
from worker.triton.failures import ServerAway, reason_of
from worker.triton.model_contract import FittedTensor, ModelContract, TensorPlan
from worker.triton.outputs import OutputNames

FAULTY: Final = "faulty"


@pytest.fixture
def adapter(triton_url: str) -> Iterator[TritonInference]:
    """An adapter for the model ``text_generation``."""
    with inference_on(triton_url) as made:
        yield made


@pytest.fixture
def faulty(triton_url: str) -> Iterator[TritonInference]:
    """An adapter for the model that does wrong what its prompt says."""
    with inference_on(triton_url, FAULTY, max_result_bytes=1000) as made:
        yield made


@pytest.fixture
def own_triton() -> Iterator[TritonServer]:
    """A Triton of the test's own, to kill and to freeze."""
    with TritonServer(MODELS, control="explicit", models=["text_generation"]) as server:
        yield server


class TestModelsAsTheyAre:
    def test_a_job_gets_its_text_and_its_true_usage(self, adapter: TritonInference, witness: Witness) -> None:
        """What the model reports is what the generation holds; it was asked once, under the request's id."""
        got = infer(adapter, "Hello, wörld \N{SNOWMAN}", max_tokens=7, request_id="j-1/abc")
        assert got == Generation(
            text="echo: Hello, wörld \N{SNOWMAN}",
            usage=Usage(prompt_tokens=3, completion_tokens=7, total_tokens=10),
            finish_reason=None,
            model_version="1",
        )
        assert [served.request_id for served in witness.served()] == ["j-1/abc"]

    def test_parameters_reach_the_model_in_its_types(self, triton_url: str, witness: Witness) -> None:
        """An integer becomes a float where the model takes one."""
        options = {"temperature": "temperature", "seed": "seed"}
        with inference_on(triton_url, options=options, finish_reason_output_name="finish_reason") as adapter:
            got = infer(adapter, parameters={"temperature": 1, "seed": 2**40})
        assert got.finish_reason == "length"
        assert witness.served()[0].options == {"temperature": 1.0, "seed": 2**40}

    def test_a_parameter_that_does_not_fit_never_reaches_triton(self, triton_url: str, witness: Witness) -> None:
        """It is the job's fault, by name."""
        with inference_on(triton_url, options={"seed": "seed"}) as adapter:
            error = failure_of(adapter, InvalidJob, parameters={"seed": 2**63})
        assert error.detail.startswith("parameter seed is not from ")
        assert witness.served() == []

    def test_a_model_without_batches_and_of_other_integers(self, triton_url: str) -> None:
        """Shapes and datatypes come from the model: here [1] and INT64."""
        with inference_on(triton_url, "int64_tokens") as adapter:
            assert infer(adapter, max_tokens=9).usage.completion_tokens == 9

    def test_a_model_of_other_names(self, triton_url: str) -> None:
        """Names, constants, options, lists, one JSON input and a finish reason are a matter of configuration."""
        with inference_on(
            triton_url,
            "other_names",
            input_name="prompt",
            max_tokens_input_name="num_predict",
            output_name="generated",
            prompt_tokens_output_name="n_in",
            completion_tokens_output_name="n_out",
            finish_reason_output_name="why",
            constants={"return_counts": True},
            options={"temperature": "heat", "stop": "stop_words"},
            options_json_input="sampling",
        ) as adapter:
            got = infer(adapter, "a b", max_tokens=5, parameters={"temperature": 0.5, "stop": ["x", "y"], "min_p": 0.1})
        told = json.loads(got.text)
        assert json.loads(told.pop("sampling")[0]) == {"min_p": 0.1, "max_tokens": 5}
        assert told == {
            "prompt": ["a b"],
            "num_predict": [5],
            "return_counts": [True],
            "heat": [0.5],
            "stop_words": ["x", "y"],
        }
        assert got.usage == Usage(prompt_tokens=2, completion_tokens=5, total_tokens=7)
        assert got.finish_reason == "stop"

    def test_a_pinned_version_answers(self, triton_url: str) -> None:
        """The path names it, and the result says it."""
        with inference_on(triton_url, model_version="1") as adapter:
            assert infer(adapter).model_version == "1"

    def test_the_longest_prompt_arrives_whole(self, adapter: TritonInference) -> None:
        """1 MiB of any characters, which as JSON would be dangerous to some servers."""
        prompt = 'é"\\\n\x00' * 170_000
        assert infer(adapter, prompt).text == f"echo: {prompt}"

    def test_an_undeclared_model_is_never_asked_for(self, adapter: TritonInference, witness: Witness) -> None:
        """Nothing but what is configured is run, whatever Triton has loaded."""
        failure_of(adapter, ModelNotSupported, model="empty")
        assert witness.served() == []


class TestWhatCannotBeSettled:
    @pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens", "both"])
    @pytest.mark.parametrize(
        "kind", ["absent", "two", "none", "fp32", "fp64", "text", "bool", "negative", "negative-int64"]
    )
    def test_a_wrong_count_is_no_usage(self, faulty: TritonInference, name: str, kind: str) -> None:
        """Every way a count can be wrong is runtime_usage_unavailable, through the real server."""
        error = failure_of(faulty, UsageUnavailable, f"{name}:{kind} x")
        assert error.usage is None

    def test_a_prompt_of_no_tokens_is_no_usage(self, faulty: TritonInference) -> None:
        """0 is a count for a completion only."""
        failure_of(faulty, UsageUnavailable, "prompt_tokens:zero x")
        assert infer(faulty, "completion_tokens:zero x").usage.completion_tokens == 0

    @pytest.mark.parametrize(
        "kind", ["int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "scalar", "flat"]
    )
    def test_any_integer_of_any_shape_is_a_count(self, faulty: TritonInference, kind: str) -> None:
        """Whatever the model declares: one integer is one integer."""
        assert infer(faulty, f"both:{kind} x y", max_tokens=9).usage == Usage.of(prompt_tokens=3, completion_tokens=9)

    @pytest.mark.parametrize("kind", ["absent", "two", "none", "int32", "fp32", "bytes=1001"])
    def test_a_wrong_text_tells_what_was_spent(self, faulty: TritonInference, kind: str) -> None:
        """Absent, several, of another type or too large: runtime_output_invalid with the counts that came along."""
        error = failure_of(faulty, OutputInvalid, f"text_output:{kind} x", max_tokens=4)
        assert error.usage == Usage.of(prompt_tokens=2, completion_tokens=4)

    @pytest.mark.parametrize(
        ("kind", "text"),
        [("blank", ""), ("nul", "a\x00b"), ("flat", "echo: text_output:flat x"), ("bytes=1000", "x" * 1000)],
    )
    def test_an_odd_text_is_a_text(self, faulty: TritonInference, kind: str, text: str) -> None:
        """Empty, with a NUL, of another shape, or as long as allowed."""
        assert infer(faulty, f"text_output:{kind} x").text == text

    def test_bytes_that_are_no_utf8_are_replaced_and_logged(self, faulty: TritonInference) -> None:
        """The job succeeds; the log has its id and nothing of its text."""
        with structlog.testing.capture_logs() as logs:
            got = infer(faulty, "text_output:not-utf8 x")
        assert got.text == "caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}"
        assert logs == [{"event": "text.bytes_replaced", "log_level": "warning", "job_id": "j-1"}]

    def test_an_answer_far_over_the_limit_is_not_read(self, triton_url: str) -> None:
        """10 MB where 1 MB is allowed: cut off by its announced length, and the next job is not disturbed."""
        with inference_on(triton_url, FAULTY, max_result_bytes=1_000_000) as adapter:
            error = failure_of(adapter, OutputInvalid, "text_output:bytes=10000000 x")
            assert reason_of(error) == "the answer is over the largest that is read"
            assert infer(adapter).text == "echo: Hello"


class TestWhatGoesWrongInTriton:
    @pytest.mark.parametrize(
        ("prompt", "error", "status"),
        [
            ("raise x", ModelException, 500),
            ("no-responses x", ModelException, 500),
            ("error=INTERNAL x", ModelException, 500),
            ("error=UNAVAILABLE x", RuntimeUnavailable, 503),
            ("error=UNSUPPORTED x", InferenceRejected, 501),
            ("error=NOT_FOUND x", InferenceRejected, 404),
            ("error=INVALID_ARG x", InferenceRejected, 400),
            ("error=UNKNOWN x", InferenceRejected, 400),
            ("error=ALREADY_EXISTS x", InferenceRejected, 400),
            ("error=CANCELLED x", InferenceRejected, 400),
        ],
    )
    def test_what_a_model_refuses_or_raises(
        self, faulty: TritonInference, prompt: str, error: type[JobError], status: int
    ) -> None:
        """Each TritonError and each exception has its class; no word of the model's is in it."""
        found = failure_of(faulty, error, f"{prompt} canary")
        assert found.upstream_status == status
        assert "canary" not in f"{found!r}{found.message}{reason_of(found)}"

    def test_upstream_words_are_logged_only_where_asked_for(self, triton_url: str, faulty: TritonInference) -> None:
        """Even then a first line at debug level, and never without the setting."""
        with structlog.testing.capture_logs() as logs:
            failure_of(faulty, ModelException, "raise canary")
        assert logs == []
        with (
            inference_on(triton_url, FAULTY, log_upstream_errors=True) as adapter,
            structlog.testing.capture_logs() as logs,
        ):
            failure_of(adapter, ModelException, "raise canary")
        (line,) = logs
        assert line["event"] == "upstream_error.received"
        assert line["log_level"] == "debug"
        assert line["job_id"] == "j-1"
        assert line["text"].startswith("Failed to process the request(s) for model 'faulty")
        assert "\n" not in line["text"]

    def test_a_model_whose_process_died_is_crashed_until_loaded_again(
        self, triton_url: str, faulty: TritonInference
    ) -> None:
        """Under the job that kills it and for each one after it, while its health goes on saying ready."""
        try:
            failure_of(faulty, ModelCrashed, "exit x")
            failure_of(faulty, ModelCrashed, "innocent")
            assert faulty.model_ready(MODEL)
        finally:
            revive(triton_url, FAULTY)
        assert infer(faulty).text == "echo: Hello"

    def test_a_model_that_never_answers_is_a_timeout(self, triton_url: str) -> None:
        """After timeout_seconds, and not tried again by itself."""
        with inference_on(triton_url, **of_two_minds(0.3, model_name="silent")) as adapter:
            infer(adapter, model=PATIENT)
            adapter.check(HASTY)
            failure_of(adapter, RuntimeTimeout, model=HASTY)

    @pytest.mark.parametrize(("model", "count"), [("queue_full", 6), ("queue_timeout", 3)])
    def test_a_queue_in_triton_that_is_full_is_load_and_not_ill_health(
        self, triton_url: str, model: str, count: int
    ) -> None:
        """Refused at once or after its wait; whoever was let in succeeds."""
        met: set[type] = set()
        with inference_on(triton_url, model, concurrency=count) as adapter:
            adapter.check(MODEL)

            def both_are_met() -> bool:
                # On a busy machine all of them may come one after the other, or all wait too long.
                met.update(type(each) for each in all_at_once([partial(infer, adapter, "sleep=0.3 x")] * count))
                return met >= {Generation, QueueFull}

            wait_until(both_are_met, description="some were let in and some refused")
        assert met == {Generation, QueueFull}

    def test_a_model_that_is_unloaded_is_not_ready(self, triton_url: str) -> None:
        """With a contract from before; and it runs again when it is back, with the same adapter."""
        with inference_on(triton_url, "empty") as adapter:
            infer(adapter)
            unload(triton_url, "empty")
            try:
                assert failure_of(adapter, ModelNotReady).upstream_status == 404
                assert not adapter.model_ready(MODEL)
                with pytest.raises(ModelNotReady):
                    adapter.check(MODEL)
            finally:
                load(triton_url, "empty")
            infer(adapter)

    def test_a_model_that_triton_never_heard_of_is_not_ready(self, triton_url: str) -> None:
        """It may still be copied there; a job waits for it in its queue."""
        with inference_on(triton_url, "nowhere") as adapter:
            failure_of(adapter, ModelNotReady)
            assert not adapter.model_ready(MODEL)


def asked_wrongly(adapter: TritonInference, model_name: str, **changes: Any) -> None:
    """Make the adapter believe that the model has another contract than it has."""
    right = ModelContract(
        prompt=TensorPlan("text_input", "BYTES", (1, 1)),
        max_tokens=TensorPlan("max_tokens", "INT32", (1, 1)),
        constants=(),
        options={},
        options_json=None,
        outputs=OutputNames("text_output", "prompt_tokens", "completion_tokens"),
    )
    wrong = ModelContract(**{name: changes.get(name, getattr(right, name)) for name in ModelContract.__slots__})
    config = adapter._contracts.configs[MODEL].model_copy(update={"model_name": model_name})
    adapter._contracts.asked[MODEL] = asked_model(config, wrong)


class TestWhatDoesNotFit:
    @pytest.mark.parametrize(
        ("model", "changes"),
        [
            ("int64_tokens", {"prompt": TensorPlan("text_input", "BYTES", (1,))}),
            ("text_generation", {"max_tokens": TensorPlan("max_tokens", "INT64", (1, 1))}),
            ("text_generation", {"max_tokens": TensorPlan("max_tokens", "INT32", (1,))}),
            ("text_generation", {"max_tokens": None}),
            ("text_generation", {"constants": (FittedTensor("nope", "INT32", (1, 1), (1,)),)}),
            ("text_generation", {"outputs": OutputNames("text_output", "prompt_tokens", "nope")}),
            ("text_generation", {"constants": (FittedTensor("seed", "INT64", (2, 1), (1, 2)),)}),
        ],
    )
    def test_what_triton_says_does_not_fit(self, adapter: TritonInference, model: str, changes: dict[str, Any]) -> None:
        """A model that was changed under a running worker is noticed by its first job, and checked before the next."""
        asked_wrongly(adapter, model, **changes)
        failure_of(adapter, ContractMismatch)
        assert infer(adapter).text == "echo: Hello"

    def test_a_batch_over_the_models_largest(self, adapter: TritonInference) -> None:
        """Cannot happen to one prompt, and is a mismatch if it does."""
        asked_wrongly(
            adapter,
            "other_names",
            prompt=TensorPlan("prompt", "BYTES", (1, 1)),
            max_tokens=TensorPlan("num_predict", "UINT32", (1, 1)),
            constants=(FittedTensor("return_counts", "BOOL", (9, 1), (True,) * 9),),
            outputs=OutputNames("generated", "n_in", "n_out"),
        )
        failure_of(adapter, ContractMismatch)

    def test_a_checked_model_passes(self, adapter: TritonInference) -> None:
        """The report shows each field beside what the model has."""
        report = adapter.check(MODEL)
        assert report.passed
        assert report.versions == ("1",)
        assert [(each.field, each.configured, each.actual) for each in report.comparisons][:2] == [
            ("input_name", "text_input", "BYTES [1,1]"),
            ("max_tokens_input_name", "max_tokens", "INT32 [1,1]"),
        ]

    def test_a_job_of_a_model_that_does_not_fit_is_not_sent(self, triton_url: str, witness: Witness) -> None:
        """The check comes first, and its one message says what is configured beside what there is."""
        with inference_on(triton_url, output_name="answer") as adapter, structlog.testing.capture_logs() as logs:
            error = failure_of(adapter, ContractMismatch)
        assert "output_name = answer is none of its outputs (the model has: text_output BYTES [1,1]" in reason_of(error)
        assert [line["event"] for line in logs] == ["model.mismatched"]
        assert witness.served() == []

    def test_a_version_that_is_not_there_is_not_ready(self, triton_url: str) -> None:
        """It may yet be loaded, so its jobs wait uncharged; operators read which versions there are."""
        with inference_on(triton_url, model_version="7") as adapter:
            error = failure_of(adapter, ModelNotReady)
            assert reason_of(error) == "version 7 is not loaded; loaded: 1"
            with pytest.raises(ModelNotReady):
                adapter.check(MODEL)
            assert not adapter.model_ready(MODEL)

    def test_where_triton_restricts_its_apis(self) -> None:
        """The check makes do with metadata; an inference without the header is a mismatch, with it a result."""
        restricted = ("--http-restricted-api=model-config:x-admin=1", "--http-restricted-api=inference:x-key=secret")
        with TritonServer(MODELS, control="explicit", models=["empty"], extra_arguments=restricted) as server:
            with inference_on(server.url, "empty") as adapter:
                report = adapter.check(MODEL)
                assert report.passed
                assert report.from_metadata
                assert failure_of(adapter, ContractMismatch).upstream_status == 403
            with inference_on(server.url, "empty", runtime_headers={"x-key": "secret"}) as adapter:
                assert infer(adapter).text == ""
                assert infer(adapter).text == ""


class TestProbes:
    def test_what_triton_says_of_itself(self, triton: TritonServer, adapter: TritonInference) -> None:
        """Its own name and version, and what it has loaded."""
        identity = adapter.server_identity()
        assert (identity.name, identity.version) == (triton.server_id, "2.51.0")
        assert adapter.server_ready()
        assert adapter.model_ready(MODEL)
        assert ("text_generation", "1", "READY") in {(e.name, e.version, e.state) for e in adapter.ready_models()}

    def test_probes_wait_for_no_inference(self, triton_url: str) -> None:
        """With every connection for inferences in use, readiness is still known at once."""
        with inference_on(triton_url, "silent", concurrency=1) as adapter:
            adapter.check(MODEL)
            inference = gevent.spawn(adapter.infer, job_for(), "j-1/tag")
            gevent.sleep(0)
            assert adapter.server_ready()
            assert not inference.ready()
            inference.kill()


class TestTritonGone:
    def test_refused_lost_and_back(self, own_triton: TritonServer) -> None:
        """Killed under a job: lost, since it may have run. Then refused: it never ran. Then back, with the same adapter."""
        with inference_on(own_triton.url) as adapter:
            infer(adapter)
            lost, _ = all_at_once([partial(infer, adapter, "sleep=30 x"), partial(_soon, own_triton.kill)])
            assert type(lost) is ConnectionLost
            error = failure_of(adapter, ServerAway)
            assert "refused" in reason_of(error)
            for probe in (adapter.server_identity, adapter.server_ready, adapter.ready_models):
                with pytest.raises(RuntimeUnavailable):
                    probe()
            own_triton.restart()
            assert infer(adapter).text == "echo: Hello"

    def test_a_frozen_triton_costs_no_connection_for_good(self, own_triton: TritonServer) -> None:
        """Deadlines pass while requests are sent and while answers are awaited; when it thaws, all slots are there."""
        with inference_on(own_triton.url, concurrency=2, max_prompt_bytes=1 << 30, **of_two_minds(0.5)) as adapter:
            infer(adapter, model=PATIENT)
            adapter.check(HASTY)
            own_triton.freeze()
            long = "x" * 20_000_000
            prompts = (long, "b", long, "d", "e", "f")
            outcomes = all_at_once([partial(infer, adapter, prompt, model=HASTY) for prompt in prompts])
            assert {type(outcome) for outcome in outcomes} <= {RuntimeTimeout, RuntimeUnavailable}
            assert RuntimeTimeout in {type(outcome) for outcome in outcomes}
            own_triton.thaw()
            wait_until(adapter.server_ready, description="Triton has caught up")
            jobs = [partial(infer, adapter, model=PATIENT)] * 6
            assert [type(outcome) for outcome in all_at_once(jobs)] == [Generation] * 6


def _soon(function: Callable[[], object]) -> None:
    gevent.sleep(0.3)
    function()


class TestManyAtOnce:
    def test_greenlets_beyond_the_connections_wait_their_turn(self, triton_url: str) -> None:
        """100 jobs over 4 connections: each gets its own answer."""
        with inference_on(triton_url, concurrency=4) as adapter:
            texts = all_at_once([partial(infer, adapter, f"prompt {i}", request_id=f"j-{i}/t") for i in range(100)])
        assert [got.text for got in texts] == [f"echo: prompt {i}" for i in range(100)]

    def test_each_thread_has_connections_of_its_own(self, adapter: TritonInference) -> None:
        """An adapter used in one thread works in others, also when one takes the place of another that ended."""
        infer(adapter)
        wrong: list[object] = []

        def run(name: str) -> None:
            try:
                texts = [infer(adapter, f"{name} {i}", request_id=f"{name}-{i}").text for i in range(10)]
            except JobError as error:
                wrong.append(error)
            else:
                wrong.extend(text for i, text in enumerate(texts) if text != f"echo: {name} {i}")
            adapter.close()
            gevent.get_hub().destroy()

        for round_of_threads in range(2):
            threads = [threading.Thread(target=run, args=(f"{round_of_threads}-{n}",)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert wrong == []

    def test_forked_processes_never_get_each_others_answers(self, adapter: TritonInference) -> None:
        """Two children of a process that has used the adapter: none of 200 answers is the other's."""
        infer(adapter)
        children = [_forked(adapter, name) for name in ("a", "b")]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert statuses == [0, 0]
        assert infer(adapter).text == "echo: Hello"

    def test_it_works_where_everything_is_patched(self, triton_url: str) -> None:
        """As in the worker: monkey patching changes nothing about connections, deadlines and TLS contexts."""
        program = Path(__file__).with_name("patched_program.py")
        subprocess.run([sys.executable, "-W", "error", program, triton_url], check=True, timeout=100)


def _forked(adapter: TritonInference, name: str) -> int:
    child = gevent.os.fork()
    if child:
        return child
    status = 1
    try:
        texts = [adapter.infer(job_for(f"{name} {i}"), f"{name}-{i}").text for i in range(100)]
        status = 0 if texts == [f"echo: {name} {i}" for i in range(100)] else 2
    finally:
        os._exit(status)
