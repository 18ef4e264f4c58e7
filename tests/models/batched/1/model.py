"""Takes 20 ms for a batch of up to eight, as a GPU would; a prompt that starts with ``raise`` fails its whole batch."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import time

import numpy as np
import triton_python_backend_utils as pb_utils

STEP_SECONDS = 0.02


class TritonPythonModel:
    """Echoes the prompts of a batch together."""

    def execute(self, requests):
        """Echo each prompt, after the one step that all of them take."""
        time.sleep(STEP_SECONDS)
        return [answer(request) for request in requests]


def answer(request):
    """Echo one prompt."""
    prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1)[0].decode()
    max_tokens = pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy()
    if prompt.startswith("raise"):
        raise ValueError(f"refused: {prompt}")
    return pb_utils.InferenceResponse(
        output_tensors=[
            pb_utils.Tensor("text_output", np.array([[f"echo: {prompt}".encode()]], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([[max(1, len(prompt.split()))]], dtype=np.int32)),
            pb_utils.Tensor("completion_tokens", max_tokens.astype(np.int32)),
        ]
    )
