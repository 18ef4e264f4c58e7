"""One inference as tritonclient's users write it: shared by the direct loop and the stock Celery task."""

from typing import Any, Final

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

_OUTPUTS: Final = [InferRequestedOutput(name) for name in ("text_output", "prompt_tokens", "completion_tokens")]


def infer(client: InferenceServerClient, model: str, prompt: str, max_tokens: int, request_id: str) -> dict[str, Any]:
    """Return the text and the usage of one inference."""
    text, limit = InferInput("text_input", [1, 1], "BYTES"), InferInput("max_tokens", [1, 1], "INT32")
    text.set_data_from_numpy(np.array([[prompt.encode()]], dtype=np.object_))
    limit.set_data_from_numpy(np.array([[max_tokens]], dtype=np.int32))
    answer = client.infer(model, [text, limit], outputs=_OUTPUTS, request_id=request_id)
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
