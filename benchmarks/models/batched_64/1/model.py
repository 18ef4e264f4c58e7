"""Takes 20 ms for a batch of up to 64, as a large GPU would: what feeds it has 20 ms for each 64 jobs."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import time

import numpy as np
import triton_python_backend_utils as pb_utils

STEP_SECONDS = 0.02


class TritonPythonModel:
    """Gives everyone the same answer, after the one step that a batch takes."""

    def initialize(self, args):  # noqa: ARG002 - Triton's signature
        """Make the answer's tensors once."""
        self.outputs = [
            pb_utils.Tensor("text_output", np.array([[b"answer " * 32]], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([[256]], dtype=np.int32)),
            pb_utils.Tensor("completion_tokens", np.array([[32]], dtype=np.int32)),
        ]

    def execute(self, requests):
        """Answer without a look at the prompts."""
        time.sleep(STEP_SECONDS)
        return [pb_utils.InferenceResponse(output_tensors=self.outputs) for _ in requests]
