"""Answers every prompt at once with an empty text of no tokens: what a queue costs when the model costs nothing."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Gives everyone the same answer."""

    def initialize(self, args):  # noqa: ARG002 - Triton's signature
        """Make the answer's tensors once."""
        self.outputs = [
            pb_utils.Tensor("text_output", np.array([[b""]], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([[1]], dtype=np.int32)),
            pb_utils.Tensor("completion_tokens", np.array([[0]], dtype=np.int32)),
        ]

    def execute(self, requests):
        """Answer without a look at the prompts."""
        return [pb_utils.InferenceResponse(output_tensors=self.outputs) for _ in requests]
