"""Takes max_tokens as INT64 and has no batch dimension, so that its inputs have another type and shape than most."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Echoes the prompt."""

    def execute(self, requests):
        """Echo each prompt."""
        return [answer(request) for request in requests]


def answer(request):
    """Echo one prompt."""
    prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
    max_tokens = pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy()
    return pb_utils.InferenceResponse(
        output_tensors=[
            pb_utils.Tensor("text_output", np.array([f"echo: {prompt}".encode()], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([max(1, len(prompt.split()))], dtype=np.int64)),
            pb_utils.Tensor("completion_tokens", max_tokens.astype(np.int64)),
        ]
    )
