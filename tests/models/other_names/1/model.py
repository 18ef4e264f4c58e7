"""Calls everything differently, and counts only when a constant input asks it to; tells in its text what it was given."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import json

import numpy as np
import triton_python_backend_utils as pb_utils

OPTIONS = ("heat", "stop_words", "sampling")


class TritonPythonModel:
    """Echoes the prompt and the options as JSON."""

    def execute(self, requests):
        """Echo each prompt."""
        return [answer(request) for request in requests]


def answer(request):
    """Echo one prompt."""
    given = {name: values_of(request, name) for name in ("prompt", "num_predict", "return_counts", *OPTIONS)}
    text = json.dumps({name: values for name, values in given.items() if values is not None})
    outputs = [
        pb_utils.Tensor("generated", np.array([[text.encode()]], dtype=np.object_)),
        pb_utils.Tensor("why", np.array([[b"stop"]], dtype=np.object_)),
    ]
    if given["return_counts"] == [True]:
        words = max(1, len(given["prompt"][0].split()))
        outputs.append(pb_utils.Tensor("n_in", np.array([[words]], dtype=np.uint32)))
        outputs.append(pb_utils.Tensor("n_out", np.array([given["num_predict"]], dtype=np.uint64)))
    return pb_utils.InferenceResponse(output_tensors=outputs)


def values_of(request, name):
    """An input's values as a list, None when it did not come."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    return [value.decode() if isinstance(value, bytes) else value for value in tensor.as_numpy().reshape(-1).tolist()]
