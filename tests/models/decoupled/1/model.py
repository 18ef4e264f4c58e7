"""Decoupled, as vLLM's models are: one answer, or as many as ``responses=N`` at the prompt's start says."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Echoes the prompt."""

    def execute(self, requests):
        """Send each request its answers, then say that there are no more."""
        for request in requests:
            prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
            max_tokens = pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy()
            sender = request.get_response_sender()
            for _ in range(responses_of(prompt)):
                sender.send(echo(prompt, max_tokens))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def responses_of(prompt):
    """How many answers the prompt asks for."""
    marker = prompt.partition(" ")[0]
    return int(marker.removeprefix("responses=")) if marker.startswith("responses=") else 1


def echo(prompt, max_tokens):
    """One answer."""
    return pb_utils.InferenceResponse(
        output_tensors=[
            pb_utils.Tensor("text_output", np.array([f"echo: {prompt}".encode()], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([max(1, len(prompt.split()))], dtype=np.int32)),
            pb_utils.Tensor("completion_tokens", max_tokens.astype(np.int32)),
        ]
    )
