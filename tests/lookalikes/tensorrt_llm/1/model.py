"""What stands behind TensorRT-LLM's ensemble: batched, counting only when asked to, one text for each beam.

Its habits: unless ``exclude_input_in_output`` says otherwise the prompt stands before the text and is in its count too;
that count is a sum over the beams. The prompt's first word may ask for ``raise`` or, where the model is decoupled, for
``responses=N``.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Says as many words as ``max_tokens`` allows."""

    def initialize(self, args):
        """Learn whether the answers are sent one by one."""
        config = json.loads(args["model_config"])
        self.decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)

    def execute(self, requests):
        """Answer each request."""
        if not self.decoupled:
            return [answer(request) for request in requests]
        for request in requests:
            sender = request.get_response_sender()
            word = prompt_of(request).partition(" ")[0]
            for _ in range(int(word.removeprefix("responses=")) if word.startswith("responses=") else 1):
                sender.send(answer(request))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None


def answer(request):
    """One answer."""
    if prompt_of(request).startswith("raise "):
        raise ValueError(prompt_of(request))
    return pb_utils.InferenceResponse(output_tensors=list(tensors(request)))


def tensors(request):
    """What the answer holds: the text of each beam, and whatever else was asked for."""
    prompt, size, beams = prompt_of(request), int(first(request, "max_tokens")), int(first(request, "beam_width", 1))
    tokens = len(prompt.split())
    before, counted = (prompt, tokens) if not first(request, "exclude_input_in_output", default=False) else ("", 0)
    told = f" stop={words(request, 'stop_words')} seed={first(request, 'seed')}" if "tell" in prompt else ""
    text = (before + " word" * size + told).encode()
    yield pb_utils.Tensor("text_output", np.array([[text] * beams], dtype=np.object_))
    if first(request, "return_num_input_tokens", default=False):
        yield pb_utils.Tensor("num_input_tokens", np.array([[tokens]], dtype=np.int32))
    if first(request, "return_num_output_tokens", default=False):
        yield pb_utils.Tensor("num_output_tokens", np.array([[(size + counted) * beams]], dtype=np.int32))


def prompt_of(request):
    """The prompt."""
    return first(request, "text_input").decode()


def words(request, name):
    """A list of texts."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else [word.decode() for word in tensor.as_numpy().reshape(-1)]


def first(request, name, default=None):
    """An input's first value, or the default where it did not come."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy().reshape(-1)[0]
