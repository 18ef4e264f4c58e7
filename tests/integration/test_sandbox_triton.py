"""The embedded Triton: a real server, ready when it says so, and nothing of it left behind."""

from tests.triton_http import infer, text_generation
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer


def test_the_models_answer_with_their_deterministic_text_and_counts(triton: TritonServer, witness: Witness) -> None:
    """The model of the default names echoes the prompt, counts its words, and spends what was allowed."""
    answer = infer(triton.url, "text_generation", text_generation("hello big world", 5), request_id="r-1")

    assert answer["id"] == "r-1"
    assert {name: tensor["data"] for name, tensor in answer["outputs"].items()} == {
        "text_output": ["echo: hello big world"],
        "prompt_tokens": [3],
        "completion_tokens": [5],
        "finish_reason": ["length"],
    }
    assert [(seen.request_id, seen.prompt) for seen in witness.served()] == [("r-1", "hello big world")]
