"""Does wrong what the first word of the prompt says, so that a real Triton sends every kind of wrong answer.

``prompt_tokens:KIND``, ``completion_tokens:KIND`` and ``text_output:KIND`` spoil one output (``both:KIND`` both counts);
``raise``, ``error=CODE``, ``exit``, ``exit=SECONDS`` (after so long), ``no-responses`` and ``sleep=SECONDS`` spoil the answer.
Like ``text_generation`` it writes down every request that reaches it.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import hashlib
import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

COUNTS = ("prompt_tokens", "completion_tokens")
COUNT_KINDS = {
    "absent": lambda _: None,
    "two": lambda count: np.array([[count, count]], dtype=np.int32),
    "none": lambda _: np.empty((1, 0), dtype=np.int32),
    "fp32": lambda count: np.array([[count]], dtype=np.float32),
    "fp64": lambda count: np.array([[count + 0.5]], dtype=np.float64),
    "text": lambda count: np.array([[str(count).encode()]], dtype=np.object_),
    "bool": lambda _: np.array([[True]], dtype=np.bool_),
    "negative": lambda count: np.array([[-count]], dtype=np.int32),
    "negative-int64": lambda count: np.array([[-count]], dtype=np.int64),
    "zero": lambda _: np.array([[0]], dtype=np.int32),
    # Right, though not what the model declares.
    **{
        datatype: lambda count, datatype=datatype: np.array([[count]], dtype=datatype)
        for datatype in ("int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    "scalar": lambda count: np.array(count, dtype=np.int32),
    "flat": lambda count: np.array([count], dtype=np.int32),
    "huge": lambda _: np.array([[2**62]], dtype=np.int64),
}
TEXT_KINDS = {
    "absent": lambda _: None,
    "two": lambda text: np.array([[text, text]], dtype=np.object_),
    "none": lambda _: np.empty((1, 0), dtype=np.object_),
    "int32": lambda _: np.array([[7]], dtype=np.int32),
    "fp32": lambda _: np.array([[0.5]], dtype=np.float32),
    "not-utf8": lambda _: np.array([[b"caf\xe9 \xff"]], dtype=np.object_),
    "nul": lambda _: np.array([[b"a\x00b"]], dtype=np.object_),
    "blank": lambda _: np.array([[b""]], dtype=np.object_),
    "flat": lambda text: np.array([text], dtype=np.object_),
}


class TritonPythonModel:
    """Answers one request at a time."""

    def initialize(self, args):
        """Open the witness file, where the environment names one."""
        path = os.environ.get("SPEEDINFER_TEST_WITNESS")
        self.model = args["model_name"]
        self.witness = None if not path else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def execute(self, requests):
        """Note each request, then answer it wrongly."""
        responses = []
        for request in requests:
            prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1)[0].decode()
            max_tokens = int(pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy().reshape(-1)[0])
            self.note("started", request, prompt)
            fault = (prompt.split() or [""])[0]
            if fault == "no-responses":
                return []
            responses.append(answer(fault, prompt, max_tokens))
            self.note("finished", request, prompt)
        return responses

    def note(self, event, request, prompt):
        """Append one line in one write, so that lines never mix."""
        if self.witness is not None:
            note = {
                "event": event,
                "at": time.time(),
                "request_id": request.request_id(),
                "model": self.model,
                "prompt": prompt[:200],
                "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
                "options": {},
                "parameters": json.loads(request.parameters() or "{}"),
            }
            os.write(self.witness, json.dumps(note).encode() + b"\n")


def answer(fault, prompt, max_tokens):
    """The response with that fault."""
    if fault == "raise":
        raise ValueError(f"refused: {prompt}")
    if fault.partition("=")[0] == "exit":
        time.sleep(float(fault.partition("=")[2] or 0))
        os._exit(1)
    if fault.startswith("sleep="):
        time.sleep(float(fault.removeprefix("sleep=")))
    if fault.startswith("error="):
        code = getattr(pb_utils.TritonError, fault.removeprefix("error="))
        return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(f"refused: {prompt}", code))
    values = outputs(fault, f"echo: {prompt}".encode(), max(1, len(prompt.split())), max_tokens)
    return pb_utils.InferenceResponse(
        output_tensors=[pb_utils.Tensor(name, value) for name, value in values.items() if value is not None]
    )


def outputs(fault, text, prompt_tokens, completion_tokens):
    """The three outputs, those spoilt that the fault names."""
    field, _, kind = fault.partition(":")
    counts = dict(zip(COUNTS, (prompt_tokens, completion_tokens), strict=True))
    values = {"text_output": np.array([[text]], dtype=np.object_)}
    if field == "text_output":
        size = kind.removeprefix("bytes=")
        long = np.array([[b"x" * int(size)]], dtype=np.object_) if size.isdecimal() else None
        values["text_output"] = TEXT_KINDS[kind](text) if long is None else long
    for name, count in counts.items():
        spoilt = field in {name, "both"}
        values[name] = COUNT_KINDS[kind](count) if spoilt else np.array([[count]], dtype=np.int32)
    return values
