"""Lets a request wait for 100 ms; Triton refuses it after that, once the model is free again."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers one request after the other; ``sleep=SECONDS`` at a prompt's start keeps the model busy so long."""

    def execute(self, requests):
        """Echo each prompt."""
        return [answer(request) for request in requests]


def answer(request):
    """Echo one prompt, after the sleep that it asks for."""
    prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1)[0].decode()
    max_tokens = pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy().reshape(-1)[0]
    marker = prompt.partition(" ")[0]
    if marker.startswith("sleep="):
        time.sleep(float(marker.removeprefix("sleep=")))
    return pb_utils.InferenceResponse(
        output_tensors=[
            pb_utils.Tensor("text_output", np.array([[f"echo: {prompt}".encode()]], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([[max(1, len(prompt.split()))]], dtype=np.int32)),
            pb_utils.Tensor("completion_tokens", np.array([[max_tokens]], dtype=np.int32)),
        ]
    )
