"""Takes a tenth of a second for each request; four run at once, eight may wait, and Triton turns the others away."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import time

import numpy as np
import triton_python_backend_utils as pb_utils

SECONDS = 0.1


class TritonPythonModel:
    """Answers one request after the other, in each of its instances."""

    def initialize(self, args):  # noqa: ARG002 - Triton's signature
        """Make the answer once."""
        self.response = pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("text_output", np.array([[b"answer"]], dtype=np.object_)),
                pb_utils.Tensor("prompt_tokens", np.array([[8]], dtype=np.int32)),
                pb_utils.Tensor("completion_tokens", np.array([[32]], dtype=np.int32)),
            ]
        )

    def execute(self, requests):
        """Answer each, a tenth of a second after the one before."""
        answers = []
        for _ in requests:
            time.sleep(SECONDS)
            answers.append(self.response)
        return answers
