"""Models with the contracts of those that people run, on a real Triton.

Each runs with its preset, and none of its habits gets a wrong count settled.
"""

import itertools
import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from settings.load import settings_from
from tasks.errors import (
    InferenceRejected,
    InvalidJob,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    OutputInvalid,
    RuntimeUnavailable,
    UsageUnavailable,
)
from tasks.generate import Generation
from tasks.usage import Usage
from tests.inferences import all_at_once, failure_of, infer, inference_on, settings_for
from tests.integration.conftest import EXAMPLES, LOOKALIKES
from tests.jobs import MODEL
from worker.sandbox.triton_server import TritonServer
from worker.triton.adapter import TritonInference
from worker.triton.failures import reason_of

VLLM: Final = {"preset": "vllm"}
TENSORRT_LLM: Final = {"preset": "tensorrt_llm"}
TENSORRT_LLM_MODELS: Final = ("ensemble", "ensemble_decoupled", "tensorrt_llm_bls")
WITHOUT_COUNTS: Final = ("llmapi", "huggingface", "mock_llm")


def run(server: TritonServer, model_name: str, prompt: str, fields: dict[str, Any], **job: Any) -> Generation:
    """Run one job."""
    with inference_on(server.url, model_name, **fields) as adapter:
        return infer(adapter, prompt, **job)


def failed(server: TritonServer, model_name: str, error: type[JobError], prompt: str, **fields: Any) -> JobError:
    """Run one job that must fail so."""
    with inference_on(server.url, model_name, **fields) as adapter:
        return failure_of(adapter, error, prompt, max_tokens=4)


class TestPresets:
    @pytest.mark.parametrize(
        ("model_name", "fields"),
        [("vllm_model", VLLM), *((name, TENSORRT_LLM) for name in TENSORRT_LLM_MODELS)],
    )
    def test_a_model_runs_with_its_preset_and_nothing_else(
        self, lookalikes: TritonServer, model_name: str, fields: dict[str, Any]
    ) -> None:
        """The text is the completion alone, and so is its count; the prompt's is its own."""
        got = run(lookalikes, model_name, "a b c", fields, max_tokens=4)
        assert got.text == " word word word word"
        assert got.usage == Usage.of(prompt_tokens=3, completion_tokens=4)
        assert got.model_version == "1"
        assert got.finish_reason == ("length" if fields is VLLM else None)

    @pytest.mark.parametrize(
        ("model_name", "fields"),
        [("vllm_model", VLLM), *((name, TENSORRT_LLM) for name in TENSORRT_LLM_MODELS)],
    )
    def test_the_report_has_no_doubts(self, lookalikes: TritonServer, model_name: str, fields: dict[str, Any]) -> None:
        """Everything that a preset names is there, in a type that will do."""
        with inference_on(lookalikes.url, model_name, **fields) as adapter:
            report = adapter.check(MODEL)
        assert report.passed
        assert [each for each in report.comparisons if each.reason] == []

    @pytest.mark.parametrize("model_name", TENSORRT_LLM_MODELS)
    def test_parameters_of_tensorrt_llm_have_tensors_of_their_own(
        self, lookalikes: TritonServer, model_name: str
    ) -> None:
        """A list of texts, a seed of 64 bits, floats and integers, each in the tensor's datatype, by either endpoint."""
        stop = ["\n", "é"]
        parameters = {
            "temperature": 0.7,
            "top_p": 1,
            "top_k": 40,
            "seed": 2**64 - 1,
            "stop": stop,
            "frequency_penalty": 0.1,
            "presence_penalty": -0.1,
            "repetition_penalty": 1.2,
            "min_tokens": 1,
        }
        got = run(lookalikes, model_name, "tell", TENSORRT_LLM, max_tokens=1, parameters=parameters)
        assert got.text == f" word stop={stop} seed={2**64 - 1}"

    def test_parameters_of_vllm_go_into_its_json(self, lookalikes: TritonServer) -> None:
        """The look-alike refuses what vLLM's sampling parameters have no field for, so these arrived as they should."""
        parameters = {"temperature": 0.7, "top_p": 1, "top_k": -1, "min_p": 0.1, "seed": 7, "stop": ["\n", "é"]}
        got = run(lookalikes, "vllm_model", "a", VLLM, max_tokens=2, parameters=parameters)
        assert got.usage.completion_tokens == 2

    @pytest.mark.parametrize(
        ("model_name", "fields", "parameters"),
        [
            ("vllm_model", VLLM, {"n": 2}),
            ("vllm_model", VLLM, {"temperature": "hot"}),
            ("vllm_model", VLLM, {"top_k": 2**31}),
            ("ensemble", TENSORRT_LLM, {"beam_width": 2}),
            ("ensemble", TENSORRT_LLM, {"min_p": 0.1}),
            ("ensemble", TENSORRT_LLM, {"seed": -1}),
            ("ensemble", TENSORRT_LLM, {"stop": ["a", 1]}),
            ("ensemble_decoupled", TENSORRT_LLM, {"stop": []}),
        ],
    )
    def test_what_a_model_has_no_place_for_is_the_jobs_fault(
        self, lookalikes: TritonServer, model_name: str, fields: dict[str, Any], parameters: dict[str, Any]
    ) -> None:
        """It is refused before anything is sent."""
        with inference_on(lookalikes.url, model_name, **fields) as adapter:
            failure_of(adapter, InvalidJob, parameters=parameters)


class TestExamples:
    @pytest.mark.parametrize("name", ["vllm", "tensorrt_llm", "python_model"])
    def test_an_example_runs_as_it_stands(self, lookalikes: TritonServer, name: str) -> None:
        """But for the addresses, the file is one that people start from; every model in it runs and is not doubted."""
        content = json.loads((EXAMPLES / f"{name}.json").read_text())
        settings = settings_from({**content, "runtime_endpoint": lookalikes.url}, hostname="pod-1")
        adapter = TritonInference.of(settings)
        try:
            for model in settings.supported_models:
                assert [each for each in adapter.check(model).comparisons if each.reason] == []
                usage = infer(adapter, "a b c", model=model, max_tokens=2).usage
                assert usage == Usage.of(prompt_tokens=3, completion_tokens=2)
        finally:
            adapter.close()

    def test_the_examples_model_does_what_its_configuration_says(self, lookalikes: TritonServer) -> None:
        """Parameters, finish reason, and an error of its own that no neighbour shares."""
        fields = json.loads((EXAMPLES / "python_model.json").read_text())["runtime_config"]
        with inference_on(lookalikes.url, **fields) as adapter:
            got = infer(adapter, "a b c", parameters={"stop": ["c"], "temperature": 0.5})
            assert (got.text, got.finish_reason) == ("a b", "stop")
            assert infer(adapter, "a b c", max_tokens=1).finish_reason == "length"
            outcomes = all_at_once(
                [partial(infer, adapter, "x " * words, request_id=f"j-{words}") for words in (5000, 1, 2, 3)]
            )
        assert [type(each) for each in outcomes] == [InferenceRejected, Generation, Generation, Generation]


class TestHabits:
    """What each real model is known to do, and what would be settled if nobody looked."""

    @pytest.mark.parametrize(
        ("model_name", "fields"), [("vllm_model", VLLM), *((n, TENSORRT_LLM) for n in TENSORRT_LLM_MODELS)]
    )
    def test_without_its_constant_the_prompt_stands_in_the_text(
        self, lookalikes: TritonServer, model_name: str, fields: dict[str, Any]
    ) -> None:
        """So the presets set it: a model that is asked plainly gives the customer's prompt back, as TensorRT-LLM counts it."""
        plainly = {**fields, "constants": {"exclude_input_in_output": None}}
        got = run(lookalikes, model_name, "a b c", plainly, max_tokens=4)
        assert got.text == "a b c word word word word"
        assert got.usage.completion_tokens == (4 if fields is VLLM else 3 + 4)

    @pytest.mark.parametrize(
        ("model_name", "fields"), [("vllm_model", VLLM), *((n, TENSORRT_LLM) for n in TENSORRT_LLM_MODELS)]
    )
    @pytest.mark.parametrize("missing", ["return_num_input_tokens", "return_num_output_tokens"])
    def test_a_count_that_nobody_asked_for_is_no_usage(
        self, lookalikes: TritonServer, model_name: str, fields: dict[str, Any], missing: str
    ) -> None:
        """The model says none, and none is made up."""
        failed(lookalikes, model_name, UsageUnavailable, "a b", **fields, constants={missing: None})

    @pytest.mark.parametrize("model_name", TENSORRT_LLM_MODELS)
    def test_a_text_for_each_beam_is_no_text(self, lookalikes: TritonServer, model_name: str) -> None:
        """Nor is the sum over the beams what one text cost; the attempt tells what was spent."""
        error = failed(lookalikes, model_name, OutputInvalid, "a b", **TENSORRT_LLM, constants={"beam_width": 2})
        assert error.usage == Usage.of(prompt_tokens=2, completion_tokens=8)

    def test_several_texts_of_vllm_have_no_count(self, lookalikes: TritonServer) -> None:
        """One for each text is not one count."""
        with inference_on(lookalikes.url, "vllm_model", **VLLM, options_json_parameters={"n": "INT32"}) as adapter:
            assert infer(adapter, parameters={"n": 1}).usage.completion_tokens == 32
            error = failure_of(adapter, OutputInvalid, parameters={"n": 2})
        assert error.usage is None

    @pytest.mark.parametrize(("model_name", "fields"), [("vllm_model", VLLM), ("ensemble_decoupled", TENSORRT_LLM)])
    @pytest.mark.parametrize("number", [0, 2])
    def test_a_decoupled_model_with_none_or_several_answers(
        self, lookalikes: TritonServer, model_name: str, fields: dict[str, Any], number: int
    ) -> None:
        """It comes with status 200, and is runtime_output_invalid."""
        error = failed(lookalikes, model_name, OutputInvalid, f"responses={number} x", **fields)
        assert error.upstream_status == 200
        assert reason_of(error) == "HTTP 200: none or several answers"

    @pytest.mark.parametrize(
        ("word", "error"),
        [("engine-dead", ModelCrashed), ("engine-ill", RuntimeUnavailable), ("too-long", ModelException)],
    )
    def test_a_status_that_lies_is_not_believed(
        self, lookalikes: TritonServer, word: str, error: type[JobError]
    ) -> None:
        """/generate says 400 to all of them, as if the job were wrong: the text tells them apart."""
        assert failed(lookalikes, "vllm_model", error, f"{word} x", **VLLM).upstream_status == 400

    @pytest.mark.parametrize("model_name", [*TENSORRT_LLM_MODELS, "counts_flat", "counts_decoupled"])
    def test_an_exception_is_one_whatever_its_status(self, lookalikes: TritonServer, model_name: str) -> None:
        """500 by /infer and 400 by /generate are the same exception."""
        fields = TENSORRT_LLM if model_name in TENSORRT_LLM_MODELS else {}
        for transport in ("auto", "generate"):
            failed(lookalikes, model_name, ModelException, "raise x", **fields, transport=transport)

    @pytest.mark.parametrize("model_name", WITHOUT_COUNTS)
    def test_a_model_that_counts_nothing_does_not_fit(self, lookalikes: TritonServer, model_name: str) -> None:
        """No job of it could be settled, so none is run; the report names both counts."""
        with inference_on(lookalikes.url, model_name, max_tokens_input_name=None, options_json_input="text") as adapter:
            wrong = {each.field for each in adapter.check(MODEL).mismatches}
        assert {"prompt_tokens_output_name", "completion_tokens_output_name"} <= wrong


class TestVersions:
    def test_two_public_names_are_two_versions_of_one_model(self, lookalikes: TritonServer) -> None:
        """Each asks for its own, and each result says which version answered; without one, Triton takes the latest."""
        settings = settings_for(
            lookalikes.url,
            "versions",
            supported_models=["one", "two", "latest"],
            models={"one": {"model_version": "1"}, "two": {"model_version": "2"}},
        )
        adapter = TritonInference.of(settings)
        try:
            got = {name: infer(adapter, model=name) for name in settings.supported_models}
        finally:
            adapter.close()
        assert {name: (each.text, each.model_version) for name, each in got.items()} == {
            "one": ("version 1", "1"),
            "two": ("version 2", "2"),
            "latest": ("version 2", "2"),
        }

    def test_a_pinned_version_is_pinned_by_generate_too(self, lookalikes: TritonServer) -> None:
        """Its path names it as the other does."""
        got = run(lookalikes, "versions", "x", {"model_version": "1", "transport": "generate"})
        assert (got.text, got.model_version) == ("version 1", "1")

    @pytest.mark.parametrize("transport", ["infer", "generate"])
    def test_a_version_that_is_not_loaded_is_not_ready(self, lookalikes: TritonServer, transport: str) -> None:
        """Its jobs wait, and its worker is told which versions there are."""
        error = failed(lookalikes, "versions", ModelNotReady, "x", model_version="3", transport=transport)
        assert reason_of(error) == "version 3 is not loaded; loaded: 1, 2"


SHAPES: Final = ("counts_batched", "counts_flat", "counts_square", "counts_any", "counts_decoupled")
WAYS: Final = [way for way in itertools.product(SHAPES, ("infer", "generate")) if way != ("counts_decoupled", "infer")]
INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
RIGHT_COUNTS: Final = (*INTEGERS, "scalar", "square")
WRONG_COUNTS: Final = ("absent", "two", "none", "fp32", "fp64", "text", "bool", "negative", "zero")


@pytest.fixture(scope="module")
def asked(lookalikes: TritonServer) -> Iterator[TritonInference]:
    """An adapter for each model and endpoint, made once."""
    settings = settings_for(
        lookalikes.url,
        supported_models=[f"{model}/{transport}" for model, transport in WAYS],
        models={f"{model}/{transport}": {"model_name": model, "transport": transport} for model, transport in WAYS},
    )
    adapter = TritonInference.of(settings)
    yield adapter
    adapter.close()


@pytest.mark.parametrize(("model", "transport"), WAYS)
class TestEveryShapeByEveryWay:
    """The same model with other declared shapes and datatypes, by both endpoints, with each right and each odd count."""

    def test_it_runs(self, asked: TritonInference, model: str, transport: str) -> None:
        """[1], [1] with a batch, [1,1] and [-1]; INT32, INT64 and UINT32: a job is a job, and many at once are many."""
        name = f"{model}/{transport}"
        jobs = [
            partial(infer, asked, f"a b {i}", model=name, max_tokens=4 + i, request_id=f"j-{i}/t") for i in range(8)
        ]
        got = all_at_once(jobs)
        assert [each.text for each in got] == [f"echo: a b {i}" for i in range(8)]
        assert [each.usage for each in got] == [Usage.of(prompt_tokens=3, completion_tokens=4 + i) for i in range(8)]

    @pytest.mark.parametrize("kind", RIGHT_COUNTS)
    def test_one_integer_is_a_count(self, asked: TritonInference, model: str, transport: str, kind: str) -> None:
        """Whatever integer, of whatever shape, whatever the model declares."""
        got = infer(asked, f"count:{kind} b c", model=f"{model}/{transport}", max_tokens=9)
        assert got.usage == Usage.of(prompt_tokens=3, completion_tokens=9)

    @pytest.mark.parametrize("kind", WRONG_COUNTS)
    def test_anything_else_is_no_usage(self, asked: TritonInference, model: str, transport: str, kind: str) -> None:
        """Missing, several, none, a float, a text, a boolean, negative, or a prompt of no tokens."""
        error = failure_of(asked, UsageUnavailable, f"count:{kind} b", model=f"{model}/{transport}")
        assert error.usage is None

    def test_a_half_float_is_no_usage_either(self, asked: TritonInference, model: str, transport: str) -> None:
        """/generate cannot even send it; either way the job has run, and is not run again."""
        error = UsageUnavailable if transport == "infer" else OutputInvalid
        failure_of(asked, error, "count:fp16 b", model=f"{model}/{transport}")

    @pytest.mark.parametrize("kind", ["absent", "two", "none", "int32"])
    def test_a_wrong_text_tells_what_was_spent(
        self, asked: TritonInference, model: str, transport: str, kind: str
    ) -> None:
        """What is not one text is runtime_output_invalid, with the counts that came along."""
        error = failure_of(asked, OutputInvalid, f"text:{kind} b", model=f"{model}/{transport}", max_tokens=4)
        assert error.usage == Usage.of(prompt_tokens=2, completion_tokens=4)

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            ("blank", ""),
            ("odd", 'a\x00b "\\" \n é \N{SNOWMAN}'),
            ("not-utf8", 'caf\N{REPLACEMENT CHARACTER} "\N{REPLACEMENT CHARACTER}"'),
            ("scalar", "echo: text:scalar b"),
            ("square", "echo: text:square b"),
        ],
    )
    def test_an_odd_text_is_a_text(
        self, asked: TritonInference, model: str, transport: str, kind: str, text: str
    ) -> None:
        """Empty, with control characters and quotes, with bytes that are no UTF-8, of any shape of one value."""
        assert infer(asked, f"text:{kind} b", model=f"{model}/{transport}").text == text

    def test_a_long_and_odd_prompt_arrives_whole(self, asked: TritonInference, model: str, transport: str) -> None:
        """1 MiB of characters that JSON has to escape, or that take several bytes."""
        prompt = 'é"\\\n\x00\N{GRINNING FACE}' * 100_000
        assert infer(asked, prompt, model=f"{model}/{transport}").text == f"echo: {prompt}"


class TestSize:
    @pytest.mark.parametrize("transport", ["infer", "generate"])
    def test_the_longest_text_is_kept_whatever_it_is_sent_as(self, lookalikes: TritonServer, transport: str) -> None:
        """JSON makes it longer on the way; one byte more than max_result_bytes is too much, with what was spent."""
        prompt, before = "\x01" * 200_000, len("echo: ")
        fields = {"transport": transport, "max_result_bytes": 200_000 + before}
        assert run(lookalikes, "counts_flat", prompt, fields).text == f"echo: {prompt}"
        error = failed(lookalikes, "counts_flat", OutputInvalid, f"{prompt}\x01", **fields)
        assert error.usage == Usage.of(prompt_tokens=1, completion_tokens=4)


class TestAuto:
    def test_a_decoupled_model_is_found_out_where_its_configuration_is_closed(self) -> None:
        """Triton's metadata do not tell; its refusal does, before anything has run. The next job goes the right way at once."""
        closed = ("--http-restricted-api=model-config:x-admin=1",)
        with (
            TritonServer(
                LOOKALIKES, control="explicit", models=["counts_decoupled"], extra_arguments=closed, own_copy=True
            ) as server,
            inference_on(server.url, "counts_decoupled") as adapter,
        ):
            assert adapter.check(MODEL).from_metadata
            assert infer(adapter, "a b").text == "echo: a b"
            assert infer(adapter, "a b").text == "echo: a b"
