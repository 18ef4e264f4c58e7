"""Gives each input ``IN_X`` back as ``OUT_X``, of any datatype, and with it ``count``, the number of values in each row.

The request's parameter ``fault`` spoils the answer: ``absent=OUTPUT``, ``count=KIND``, ``raise``, ``error=CODE``, ``exit``,
``sleep=SECONDS``, ``held=FOLDER`` (until there is a file ``all`` in it), ``large=VALUES``. It writes down every request that reaches it, as ``text_generation`` does.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import hashlib
import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

HELD_LOOK_SECONDS = 0.02
COUNT_KINDS = {
    "absent": lambda _: None,
    "none": lambda _: np.empty((1, 0), dtype=np.int32),
    "fp32": lambda count: count.astype(np.float32),
    "text": lambda count: count.astype(np.str_).astype(np.bytes_).astype(np.object_),
    "negative": lambda count: -count,
    "zero": lambda count: count * 0,
    "uint64": lambda count: count.astype(np.uint64),
}


class TritonPythonModel:
    """Answers one request at a time."""

    def initialize(self, args):
        """Open the witness file, where the environment names one."""
        path = os.environ.get("SPEEDINFER_TEST_WITNESS")
        self.model = args["model_name"]
        self.witness = None if not path else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def execute(self, requests):
        """Note each request, then give back what is in it."""
        responses = []
        for request in requests:
            parameters = json.loads(request.parameters() or "{}")
            self.note("started", request, parameters)
            responses.append(answer(str(parameters.get("fault", "")), request))
            self.note("finished", request, parameters)
        return responses

    def note(self, event, request, parameters):
        """Append one line in one write, so that lines never mix."""
        if self.witness is not None:
            note = {
                "event": event,
                "at": time.time(),
                "request_id": request.request_id(),
                "model": self.model,
                "prompt": "",
                "prompt_sha256": hashlib.sha256(b"").hexdigest(),
                "options": {tensor.name(): list(tensor.shape()) for tensor in request.inputs()},
                "parameters": parameters,
            }
            os.write(self.witness, json.dumps(note).encode() + b"\n")


def answer(fault, request):
    """The response with that fault."""
    kind, _, value = fault.partition("=")
    if kind == "raise":
        raise ValueError("refused")
    if kind == "exit":
        os._exit(1)
    if kind == "sleep":
        time.sleep(float(value))
    while kind == "held" and not os.path.exists(f"{value}/all"):  # noqa: PTH110 - no more than this is needed here
        time.sleep(HELD_LOOK_SECONDS)
    if kind == "error":
        error = pb_utils.TritonError("refused", getattr(pb_utils.TritonError, value))
        return pb_utils.InferenceResponse(output_tensors=[], error=error)
    outputs = [echo(tensor) for tensor in request.inputs() if f"OUT{tensor.name()[2:]}" != value]
    if kind == "large":
        outputs = [pb_utils.Tensor("OUT_FP64", np.full((1, int(value)), 1 / 3))]
    count = counted(request, value if kind == "count" else "")
    return pb_utils.InferenceResponse(
        output_tensors=outputs if count is None else [*outputs, pb_utils.Tensor("count", count)]
    )


def echo(tensor):
    """The output of the same datatype; of BF16 the backend makes no array."""
    name = f"OUT{tensor.name()[2:]}"
    if tensor.name() == "IN_BF16":
        return pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack())
    return pb_utils.Tensor(name, tensor.as_numpy())


def counted(request, kind):
    """The values of each row over all inputs, spoilt as ``kind`` says."""
    shapes = [tensor.shape() for tensor in request.inputs()]
    count = np.full((shapes[0][0], 1), sum(shape[1] for shape in shapes), dtype=np.int32)
    return COUNT_KINDS[kind](count) if kind else count
