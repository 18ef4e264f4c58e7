"""A model of one's own whose jobs can be settled: one text, and both token counts as the model itself counted them.

Put your tokenizer and your model in the places of ``tokenize`` and ``generate``; the rest is what the worker needs.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers whole batches; a request that cannot be run gets an error of its own, so that its neighbours do not."""

    def execute(self, requests):
        """Answer each request."""
        return [answer(request) for request in requests]


def answer(request):
    """The answer to one request: the text without the prompt, and counts of what really went through the model."""
    tokens = tokenize(one(request, "prompt").decode())
    if len(tokens) > 4096:
        error = pb_utils.TritonError("the prompt is too long", pb_utils.TritonError.INVALID_ARG)
        return pb_utils.InferenceResponse(error=error)
    stop = [word.decode() for word in values(request, "stop")]
    made, reason = generate(tokens, int(one(request, "max_tokens")), one(request, "temperature", 1.0), stop)
    return pb_utils.InferenceResponse(
        [
            text("completion", " ".join(made)),
            count("prompt_tokens", len(tokens)),
            count("completion_tokens", len(made)),
            text("finish_reason", reason),
        ]
    )


def tokenize(prompt):
    """Stands for a tokenizer; a prompt is never of no tokens."""
    return prompt.split() or [prompt]


def generate(tokens, max_tokens, temperature, stop):  # noqa: ARG001 - a real model has a use for the temperature
    """Stands for a model: the prompt's words again, until a stop word or the limit."""
    made = []
    for token in tokens:
        if token in stop:
            return made, "stop"
        if len(made) == max_tokens:
            return made, "length"
        made.append(token)
    return made, "stop"


def one(request, name, default=None):
    """An input's only value, or the default where it did not come."""
    found = values(request, name)
    return found[0] if len(found) else default


def values(request, name):
    """An input's values; none where it did not come."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return [] if tensor is None else tensor.as_numpy().reshape(-1)


def text(name, value):
    """An output of one text."""
    return pb_utils.Tensor(name, np.array([[value.encode()]], dtype=np.object_))


def count(name, value):
    """An output of one count; any integer type will do."""
    return pb_utils.Tensor(name, np.array([[value]], dtype=np.int32))
