"""A model made at home: the names of the contract, whatever shape its configuration gives them, and one more output.

The prompt's first word, ``count:KIND`` or ``text:KIND``, makes both counts or the text come otherwise than they should;
``raise`` makes it fail.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import json

import numpy as np
import triton_python_backend_utils as pb_utils

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COUNTS = {
    "absent": lambda _: None,
    "two": lambda count: np.array([count, count], dtype=np.int32),
    "none": lambda _: np.empty((0,), dtype=np.int32),
    "fp16": lambda count: np.array([count], dtype=np.float16),
    "fp32": lambda count: np.array([count], dtype=np.float32),
    "fp64": lambda count: np.array([count + 0.5], dtype=np.float64),
    "text": lambda count: np.array([str(count).encode()], dtype=np.object_),
    "bool": lambda _: np.array([True], dtype=np.bool_),
    "negative": lambda count: np.array([-count], dtype=np.int64),
    "zero": lambda _: np.array([0], dtype=np.int32),
    **{kind: lambda count, kind=kind: np.array([count], dtype=kind) for kind in INTEGERS},
    "scalar": lambda count: np.array(count, dtype=np.uint32),
    "square": lambda count: np.array([[count]], dtype=np.int32),
}
TEXTS = {
    "absent": lambda _: None,
    "two": lambda text: np.array([text, text], dtype=np.object_),
    "none": lambda _: np.empty((0,), dtype=np.object_),
    "int32": lambda _: np.array([7], dtype=np.int32),
    "not-utf8": lambda _: np.array([b'caf\xe9 "\xff"'], dtype=np.object_),
    "odd": lambda _: np.array(['a\x00b "\\" \n é \N{SNOWMAN}'.encode()], dtype=np.object_),
    "blank": lambda _: np.array([b""], dtype=np.object_),
    "scalar": lambda text: np.array(text, dtype=np.object_),
    "square": lambda text: np.array([[text]], dtype=np.object_),
}


class TritonPythonModel:
    """Echoes the prompt."""

    def initialize(self, args):
        """Learn whether the answers are sent one by one, and what shape they have."""
        self.config = json.loads(args["model_config"])
        self.decoupled = self.config.get("model_transaction_policy", {}).get("decoupled", False)
        dims = [1 if int(size) == -1 else int(size) for size in self.config["output"][0]["dims"]]
        self.shape = [1, *dims] if self.config["max_batch_size"] else dims

    def execute(self, requests):
        """Answer each request."""
        if not self.decoupled:
            return [self.answer(request) for request in requests]
        for request in requests:
            request.get_response_sender().send(
                self.answer(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            )
        return None

    def answer(self, request):
        """The answer, with what its prompt asks to be spoilt."""
        prompt = value_of(request, "text_input").decode()
        word = prompt.partition(" ")[0]
        if word == "raise":
            raise ValueError(prompt)
        datatype = pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy().dtype
        text = np.array([f"echo: {prompt}".encode()], dtype=np.object_).reshape(self.shape)
        if word.startswith("text:"):
            text = TEXTS[word.removeprefix("text:")](f"echo: {prompt}".encode())
        counts = []
        for count in (len(prompt.split()), int(value_of(request, "max_tokens"))):
            spoilt = COUNTS[word.removeprefix("count:")] if word.startswith("count:") else None
            counts.append(spoilt(count) if spoilt else np.array([count], dtype=datatype).reshape(self.shape))
        scores = np.zeros((1, 2) if self.config["max_batch_size"] else (2,), dtype=np.float32)
        values = dict(
            zip(("text_output", "prompt_tokens", "completion_tokens", "scores"), (text, *counts, scores), strict=True)
        )
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, value) for name, value in values.items() if value is not None]
        )


def value_of(request, name):
    """An input's only value."""
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]
