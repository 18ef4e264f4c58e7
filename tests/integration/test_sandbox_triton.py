"""The embedded Triton: a real server, ready when it says so, that can be killed and brought back."""

import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gate import Gate
from tests.conftest import MODELS
from tests.triton_http import TritonRefused, call, infer, inference_count, model_state, revive, tensor, text_generation
from tests.waiting import wait_until
from tests.witness import Witness
from worker.sandbox.errors import SandboxStartFailed
from worker.sandbox.places import SAMPLE_MODELS
from worker.sandbox.triton_server import TritonServer


@pytest.fixture
def own_triton() -> Iterator[TritonServer]:
    """A Triton of the test's own, with one model."""
    with TritonServer(MODELS, control="explicit", models=["text_generation"]) as server:
        yield server


def outputs(answer: dict[str, Any]) -> dict[str, Any]:
    """The values of an answer by the names of its outputs."""
    return {name: output["data"] for name, output in answer["outputs"].items()}


def texts_of(answer: dict[str, Any] | TritonRefused) -> list[str]:
    """The texts of an answer, which has to be one."""
    assert isinstance(answer, dict), answer
    return list(answer["text_output"])


def ask_at_once(
    url: str, model: str, prompts: Sequence[str], make_inputs: Callable[[str], list[dict[str, Any]]] = text_generation
) -> list[dict[str, Any] | TritonRefused]:
    """Ask all prompts at once; the outputs' values, or Triton's refusal, in the order of the prompts."""

    def ask(prompt: str) -> dict[str, Any] | TritonRefused:
        try:
            return outputs(infer(url, model, make_inputs(prompt), timeout=60))
        except TritonRefused as refused:
            return refused

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


def test_the_model_of_the_default_names_echoes_and_the_witness_sees_it(triton: TritonServer, witness: Witness) -> None:
    """It counts the prompt's words, spends what was allowed, and writes down what it was asked."""
    inputs = [*text_generation("hello big world", 5), tensor("temperature", 0.5)]

    answer = infer(triton.url, "text_generation", inputs, request_id="r-1")

    assert answer["id"] == "r-1"
    assert outputs(answer) == {
        "text_output": ["echo: hello big world"],
        "prompt_tokens": [3],
        "completion_tokens": [5],
        "finish_reason": ["length"],
    }
    (seen,) = witness.served()
    assert (seen.request_id, seen.prompt, seen.options) == ("r-1", "hello big world", {"temperature": 0.5})
    assert seen.finished_at is not None


def test_prompts_that_wait_do_not_stand_in_each_others_way(
    triton: TritonServer, witness: Witness, tmp_path: Path
) -> None:
    """Thirty prompts that are held are all being served at one moment, and one that sleeps is answered meanwhile."""
    gate = Gate(tmp_path / "gate")
    prompts = [gate.prompt(str(number)) for number in range(30)]
    with ThreadPoolExecutor(1) as aside:
        held = aside.submit(ask_at_once, triton.url, "text_generation", prompts)
        try:
            wait_until(lambda: witness.count() == 30, description="all thirty are being served")
            (brief,) = ask_at_once(triton.url, "text_generation", ["sleep=0.1 brief"])
            assert not held.done()
        finally:
            gate.open()
        answers = [brief, *held.result()]

    assert witness.most_at_once() == 31
    assert [texts_of(answer) for answer in answers] == [[f"echo: {each}"] for each in ("sleep=0.1 brief", *prompts)]


def test_a_killed_triton_comes_back_at_the_same_address(own_triton: TritonServer) -> None:
    """After kill -9 nothing answers; after restart the same URL serves the same models under the same id."""
    url = own_triton.url

    own_triton.kill()

    assert not own_triton.is_running()
    with pytest.raises(ConnectionRefusedError):
        call(url, "GET", "/v2")

    own_triton.restart()

    assert own_triton.url == url
    assert call(url, "GET", "/v2")["name"] == own_triton.server_id
    assert infer(url, "text_generation", text_generation("again"))["outputs"]["text_output"]["data"] == ["echo: again"]


def test_a_frozen_triton_takes_connections_and_answers_when_thawed(own_triton: TritonServer) -> None:
    """Frozen, it accepts a request and stays silent; thawed, it serves."""
    own_triton.freeze()
    with pytest.raises(TimeoutError):
        call(own_triton.url, "GET", "/v2", timeout=0.2)

    own_triton.thaw()

    assert call(own_triton.url, "GET", "/v2")["name"] == own_triton.server_id


def test_another_server_on_the_port_is_not_taken_for_ours(own_triton: TritonServer) -> None:
    """A port that another Triton has is a failed start, although something ready answers there."""
    second = TritonServer(MODELS, control="explicit", models=["text_generation"], port=own_triton.port)

    with pytest.raises(SandboxStartFailed, match="already in use"):
        second.start()

    assert not second.is_running()


def test_a_model_that_cannot_be_loaded_is_named_in_the_error(tmp_path: Path) -> None:
    """A server that ends at start says why, in the exception's message."""
    broken = tmp_path / "broken"
    broken.mkdir()
    broken.joinpath("config.pbtxt").write_text('name: "broken"\nbackend: "python"\n')

    with pytest.raises(SandboxStartFailed, match="failed to load all models"):
        TritonServer(tmp_path).start()


def test_two_servers_run_side_by_side(triton: TritonServer, own_triton: TritonServer) -> None:
    """Each answers its own prompts: they share no port and no shared memory."""
    for server in (triton, own_triton) * 2:
        answer = infer(server.url, "text_generation", text_generation(server.server_id))
        assert answer["outputs"]["text_output"]["data"] == [f"echo: {server.server_id}"]


def test_metrics_are_served_where_they_were_asked_for(triton: TritonServer, own_triton: TritonServer) -> None:
    """The session's server has metrics at its own address, the other has none."""
    assert triton.metrics_url is not None
    with urllib.request.urlopen(triton.metrics_url) as response:  # noqa: S310 - our own server on loopback
        assert b"nv_inference_request_success" in response.read()
    assert own_triton.metrics_url is None


def test_a_dead_model_process_is_revived(triton: TritonServer) -> None:
    """Triton calls a model READY whose process is dead; only unloading and loading brings it back."""
    with pytest.raises(TritonRefused, match="is not healthy"):
        infer(triton.url, "faulty", text_generation("exit"))
    assert model_state(triton.url, "faulty") == "READY"

    revive(triton.url, "faulty")

    assert outputs(infer(triton.url, "faulty", text_generation("fine")))["text_output"] == ["echo: fine"]


@pytest.mark.parametrize(
    ("fault", "datatype", "shape", "data"),
    [
        ("fp32", "FP32", [1, 1], [2.0]),
        ("text", "BYTES", [1, 1], ["2"]),
        ("bool", "BOOL", [1, 1], [True]),
        ("two", "INT32", [1, 2], [2, 2]),
        ("none", "INT32", [1, 0], []),
        ("negative", "INT32", [1, 1], [-2]),
        ("zero", "INT32", [1, 1], [0]),
        ("int64", "INT64", [1, 1], [2]),
        ("scalar", "INT32", [], [2]),
    ],
)
def test_a_wrong_count_really_leaves_the_server(
    triton: TritonServer, fault: str, datatype: str, shape: list[int], data: list[object]
) -> None:
    """Triton passes on what a model answers, whatever its configuration declares."""
    answer = infer(triton.url, "faulty", text_generation(f"prompt_tokens:{fault} x"))

    count = answer["outputs"]["prompt_tokens"]
    assert (count["datatype"], count["shape"], count["data"]) == (datatype, shape, data)


@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens", "text_output"])
def test_an_absent_output_really_is_absent(triton: TritonServer, field: str) -> None:
    """Triton calls an answer without a declared output a success."""
    assert field not in infer(triton.url, "faulty", text_generation(f"{field}:absent"))["outputs"]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("raise", 500),
        ("no-responses", 500),
        ("error=INTERNAL", 500),
        ("error=UNAVAILABLE", 503),
        ("error=UNSUPPORTED", 501),
        ("error=NOT_FOUND", 404),
        ("error=INVALID_ARG", 400),
        ("error=CANCELLED", 400),
    ],
)
def test_a_model_error_has_tritons_own_status(triton: TritonServer, fault: str, status: int) -> None:
    """Each kind of a model's failure comes with the status that Triton gives it."""
    with pytest.raises(TritonRefused) as refused:
        infer(triton.url, "faulty", text_generation(fault))

    assert refused.value.status == status


def test_a_full_queue_refuses_at_once(triton: TritonServer) -> None:
    """Of prompts that come at once, one runs, one waits, and Triton refuses the rest."""
    before = inference_count(triton.url, "queue_full")

    answers = ask_at_once(triton.url, "queue_full", [f"sleep=0.5 {number}" for number in range(8)])

    refused = [answer for answer in answers if isinstance(answer, TritonRefused)]
    assert refused
    assert {(refusal.status, "Exceeds maximum queue size" in refusal.text) for refusal in refused} == {(503, True)}
    ran = len(answers) - len(refused)
    # Triton counts an inference after it has answered it.
    wait_until(
        lambda: inference_count(triton.url, "queue_full") - before >= ran, description="all that ran are counted"
    )
    assert inference_count(triton.url, "queue_full") - before == ran >= 1


def test_a_prompt_that_waits_too_long_is_refused(triton: TritonServer) -> None:
    """Of prompts that keep the model busy, those that waited longer than its queue allows are refused."""
    answers = ask_at_once(triton.url, "queue_timeout", [f"sleep=0.3 {number}" for number in range(8)])

    refused = [answer for answer in answers if isinstance(answer, TritonRefused)]
    assert refused
    assert {(refusal.status, "Request timeout expired" in refusal.text) for refusal in refused} == {(503, True)}


def test_one_exception_fails_its_whole_batch(triton: TritonServer) -> None:
    """The stranger in the batch gets the error of the prompt that raised."""
    prompts = ("first", "raise it", "stranger")

    def refusals() -> dict[str, str] | None:
        answers = dict(zip(prompts, ask_at_once(triton.url, "batched", prompts), strict=True))
        refused = {prompt: answer.text for prompt, answer in answers.items() if isinstance(answer, TritonRefused)}
        return refused if "stranger" in refused else None

    refused = wait_until(refusals, description="the stranger is in one batch with the prompt that raises")

    assert refused is not None
    assert refused["stranger"] == refused["raise it"]


def test_a_decoupled_model_is_refused_by_infer_and_served_by_generate(triton: TritonServer) -> None:
    """As vLLM's models: 501 for infer, an answer for generate."""
    with pytest.raises(TritonRefused, match="decoupled") as refused:
        infer(triton.url, "decoupled", [tensor("text_input", "a b", [1]), tensor("max_tokens", 4, [1])])
    assert refused.value.status == 501

    answer = call(triton.url, "POST", "/v2/models/decoupled/generate", {"text_input": "a b", "max_tokens": 4})

    assert (answer["text_output"], answer["prompt_tokens"], answer["completion_tokens"]) == ("echo: a b", 2, 4)


def test_a_model_with_other_names_counts_only_when_asked(triton: TritonServer) -> None:
    """Without its constant input set, the counts are not in the answer."""

    def ask(*, counts: bool) -> dict[str, object]:
        inputs = [tensor("prompt", "a b"), tensor("num_predict", 5, datatype="UINT32"), tensor("return_counts", counts)]
        return outputs(infer(triton.url, "other_names", inputs))

    assert ask(counts=True)["n_in"] == [2]
    assert ask(counts=True)["n_out"] == [5]
    assert set(ask(counts=False)) == {"generated", "why"}


def test_the_small_models_take_their_own_types_and_shapes(triton: TritonServer) -> None:
    """One has INT64 and no batch dimension, one answers with nothing, one is asked too late."""
    int64 = [tensor("text_input", "a b c", [1]), tensor("max_tokens", 7, [1], "INT64")]

    assert outputs(infer(triton.url, "int64_tokens", int64))["completion_tokens"] == [7]
    assert outputs(infer(triton.url, "empty", text_generation("a b"))) == {
        "text_output": [""],
        "prompt_tokens": [1],
        "completion_tokens": [0],
    }
    with pytest.raises(TimeoutError):
        infer(triton.url, "silent", text_generation("anyone?"), timeout=0.2)


def test_smollm2_writes_text_and_counts_its_own_tokens() -> None:
    """The real model answers several prompts at once, each with the counts of its own tokenizer."""

    def inputs(prompt: str) -> list[dict[str, Any]]:
        return [tensor("text_input", prompt, [1]), tensor("max_tokens", 12, [1]), tensor("seed", 1, [1], "INT64")]

    prompts = [
        "What is 2 + 2?",
        "Name three colours, please.",
        "Say hello.",
        "Why is the sky blue?",
        "Hi",
        "much " * 3000,
    ]
    with TritonServer(SAMPLE_MODELS) as server:
        *answers, too_long = ask_at_once(server.url, "smollm2", prompts, inputs)

    for answer in answers:
        assert isinstance(answer, dict), answer
        assert answer["text_output"][0].strip()
        assert 1 <= answer["completion_tokens"][0] <= 12
        assert answer["finish_reason"][0] in {"stop", "length"}
    counts = {prompt: answer["prompt_tokens"][0] for prompt, answer in zip(prompts, answers, strict=False)}  # type: ignore[index]  # dicts, as asserted above
    assert counts["Hi"] < counts["Name three colours, please."]
    assert counts["Hi"] > 1, "the chat template's own tokens count too"
    assert isinstance(too_long, TritonRefused)
    assert too_long.status == 400
