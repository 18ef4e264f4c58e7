"""A model that says a word and counts nothing: of TensorRT-LLM's LLM API, of Hugging Face's tutorials, or a mock of OpenAI's.

None of them tells how many tokens it read or made, so none of their jobs could ever be settled.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Says a word."""

    def initialize(self, args):
        """Learn whether the answers are sent one by one."""
        config = json.loads(args["model_config"])
        self.decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)

    def execute(self, requests):
        """Answer each request."""
        answers = [
            pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([[b"word"]], dtype=np.object_))])
            for _ in requests
        ]
        if not self.decoupled:
            return answers
        for request, answer in zip(requests, answers, strict=True):
            request.get_response_sender().send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
