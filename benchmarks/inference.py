"""One inference as tritonclient's users write it: shared by the direct loop, stock Celery and the other queues."""

from typing import Any, Final

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

_OUTPUTS: Final = [InferRequestedOutput(name) for name in ("text_output", "prompt_tokens", "completion_tokens")]


def infer(client: InferenceServerClient, model: str, prompt: str, max_tokens: int, request_id: str) -> dict[str, Any]:
    """Return the text and the usage of one inference."""
    return read(client.infer(model, inputs(prompt, max_tokens), outputs=_OUTPUTS, request_id=request_id))


async def infer_soon(client: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Return the same by tritonclient's client for asyncio."""
    asked = inputs(job["prompt"], job["max_tokens"])
    return read(await client.infer(job["model"], asked, outputs=_OUTPUTS, request_id=job["job_id"]))


def inputs(prompt: str, max_tokens: int) -> list[InferInput]:
    """Return the tensors of one prompt."""
    text, limit = InferInput("text_input", [1, 1], "BYTES"), InferInput("max_tokens", [1, 1], "INT32")
    text.set_data_from_numpy(np.array([[prompt.encode()]], dtype=np.object_))
    limit.set_data_from_numpy(np.array([[max_tokens]], dtype=np.int32))
    return [text, limit]


def read(answer: Any) -> dict[str, Any]:
    """Return the text and the usage in an answer."""
    prompt_tokens = int(answer.as_numpy("prompt_tokens").item())
    completion_tokens = int(answer.as_numpy("completion_tokens").item())
    return {
        "text": answer.as_numpy("text_output").item().decode(),
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }
