"""A model of the vLLM backend: always decoupled, sampled by one JSON text, counting only when asked to.

Its habits: the prompt stands before the text unless ``exclude_input_in_output`` says otherwise; the prompt's count has the
shape [], those of the ``n`` texts [n]; what is wrong comes as an error of the engine's. The prompt's first word may ask for
``responses=N``, ``engine-dead``, ``engine-ill`` or ``too-long``.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import json

import numpy as np
import triton_python_backend_utils as pb_utils

KNOWN = {"max_tokens", "n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "frequency_penalty", "min_tokens"}
KNOWN |= {"presence_penalty", "repetition_penalty", "ignore_eos", "bad_words", "skip_special_tokens"}
FAILURES = {
    "engine-dead": "Error generating stream: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "engine-ill": "Model is unavailable due to unhealthy vLLM engine",
    "too-long": "Error generating stream: The decoder prompt (length 9) is longer than the maximum model length of 8.",
}


class TritonPythonModel:
    """Says as many words as ``max_tokens`` allows."""

    def execute(self, requests):
        """Send each request its answers, the last one with the word that it is the last."""
        for request in requests:
            sender = request.get_response_sender()
            word = prompt_of(request).partition(" ")[0]
            number = int(word.removeprefix("responses=")) if word.startswith("responses=") else 1
            for _ in range(number - 1):
                sender.send(answer(request))
            if number:
                sender.send(answer(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            else:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def answer(request):
    """The one answer, or the error that the engine would raise."""
    failure = FAILURES.get(prompt_of(request).partition(" ")[0])
    if failure is not None:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(failure))
    sampling = json.loads(first(request, "sampling_parameters", b"{}"))
    if sampling.keys() - KNOWN:
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError("Error generating stream: 'NoneType' object has no attribute 'lora_name'")
        )
    return pb_utils.InferenceResponse(output_tensors=list(tensors(request, sampling)))


def tensors(request, sampling):
    """What the answer holds: the texts, and whatever else was asked for."""
    prompt, size, texts = prompt_of(request), sampling.get("max_tokens", 16), sampling.get("n", 1)
    before = "" if first(request, "exclude_input_in_output", default=False) else prompt
    text = before + " word" * size
    yield pb_utils.Tensor("text_output", np.array([text.encode()] * texts, dtype=np.object_))
    if first(request, "return_finish_reason", default=False):
        yield pb_utils.Tensor("finish_reason", np.array([b"length"] * texts, dtype=np.object_))
    if first(request, "return_num_input_tokens", default=False):
        yield pb_utils.Tensor("num_input_tokens", np.asarray(len(prompt.split()), dtype=np.uint32))
    if first(request, "return_num_output_tokens", default=False):
        yield pb_utils.Tensor("num_output_tokens", np.asarray([size] * texts, dtype=np.uint32))


def prompt_of(request):
    """The prompt."""
    return first(request, "text_input").decode()


def first(request, name, default=None):
    """An input's first value, or the default where it did not come."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy()[0]
