"""A model in two versions, each of which says which one it is."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Says its version."""

    def initialize(self, args):
        """Learn the version."""
        self.version = args["model_version"]

    def execute(self, requests):
        """Answer each request."""
        values = {
            "text_output": np.array([[f"version {self.version}".encode()]], dtype=np.object_),
            "prompt_tokens": np.array([[1]], dtype=np.int32),
            "completion_tokens": np.array([[2]], dtype=np.int32),
        }
        tensors = [pb_utils.Tensor(name, value) for name, value in values.items()]
        return [pb_utils.InferenceResponse(output_tensors=tensors) for _ in requests]
