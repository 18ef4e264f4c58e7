"""Tensors as they stand in the bodies of requests and answers, made and read by hand."""

import json
import struct
from typing import Any, Final

from worker.triton.codec import Input, RequestedOutputs, encode_request

INTEGERS: Final = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
FLOATS: Final = ("FP16", "BF16", "FP32", "FP64")
DATATYPES: Final = ("BOOL", *INTEGERS, *FLOATS, "BYTES")


def request_of(*inputs: Input) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of a request with these inputs, and the bytes after it."""
    body, json_bytes = encode_request(inputs, RequestedOutputs(()), "id")
    return json.loads(body[:json_bytes]), body[json_bytes:]


def output(name: str, datatype: str, shape: list[int], raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Return an output as an answer has it: its JSON, and its bytes."""
    head = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    return head, raw


def answer_of(*outputs: tuple[dict[str, Any], bytes], **changes: Any) -> tuple[bytes, str]:
    """Return the body of an answer with these outputs, and how many bytes of it are JSON, as the header says it."""
    content = {"id": "id", "model_version": "1", "outputs": [head for head, _ in outputs], **changes}
    head = json.dumps(content).encode()
    return head + b"".join(raw for _, raw in outputs), str(len(head))


def texts(*values: bytes) -> bytes:
    """Return BYTES values as they are sent."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)
