"""What an answer to a tensor job is worth: its outputs as JSON and what they cost, or the coded error that it is not valid."""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import to_json

from tasks.errors import OutputInvalid, UsageUnavailable
from tasks.tensor_result import OutputTensor, TensorGeneration
from tasks.tensors import BASE64, OutputParameters
from tasks.usage import Units
from worker.triton.codec import NoInferenceAnswer, Tensor, TensorAnswer, decode_tensors
from worker.triton.http import Answer
from worker.triton.outputs import INTEGER_DATATYPES
from worker.triton.tensor_values import Array, array_of, json_texts, json_values
from worker.triton.values import DATATYPES, DoesNotFit

_LEAST_JSON_BYTES: Final = 2
"""What a value takes in a result at least: a digit and a comma."""


def read_tensors(
    answer: Answer,
    wanted: Mapping[str, OutputParameters],
    usage: Mapping[str, str],
    *,
    request_id: str,
    max_result_bytes: int,
    all_needed: bool,
) -> TensorGeneration:
    """Return the wanted outputs in an answer to ``request_id``; ``usage`` is by unit the output that counts it.

    Raises:
        NoInferenceAnswer: it is no inference's result: something may say with 200 that it failed.
        OutputInvalid: it answers another request, lacks an output where they are ``all_needed``, or is too large. What was
            spent is on it where the counts are valid.
        UsageUnavailable: a count is absent, or has other values than integers from 0.
    """
    result = decode_tensors(answer.body, answer.json_bytes)
    if result.request_id is None:
        raise NoInferenceAnswer
    if result.request_id != request_id:
        raise OutputInvalid(upstream_status=answer.status)
    spent = _spent(result, usage)
    try:
        outputs = _outputs(result, wanted, max_result_bytes, all_needed=all_needed)
    except _NotValid:
        raise OutputInvalid(upstream_status=answer.status, usage=spent) from None
    if spent is None:
        raise UsageUnavailable(upstream_status=answer.status)
    return TensorGeneration(outputs, spent, result.model_version)


class _NotValid(Exception):
    """An output cannot be settled."""


def _spent(result: TensorAnswer, usage: Mapping[str, str]) -> Units | None:
    counts = {unit: _count(result.outputs.get(name)) for unit, name in usage.items()}
    known = {unit: count for unit, count in counts.items() if count is not None}
    return Units.of(known) if len(known) == len(counts) else None


def _count(tensor: Tensor | None) -> int | None:
    """Return the sum of a count's values, None where they are no counts."""
    if tensor is None or tensor.datatype not in INTEGER_DATATYPES:
        return None
    try:
        values = json_values(_array(tensor))
    except DoesNotFit:
        return None
    return sum(values) if values and min(values) >= 0 else None


def _outputs(
    result: TensorAnswer, wanted: Mapping[str, OutputParameters], most_bytes: int, *, all_needed: bool
) -> list[OutputTensor]:
    outputs: list[OutputTensor] = []
    size = 0
    for name, parameters in wanted.items():
        tensor = result.outputs.get(name)
        if tensor is not None:
            outputs.append(_output(name, tensor, parameters, most_bytes - size))
            size += len(to_json(outputs[-1]))
        if size > most_bytes or (tensor is None and all_needed):
            raise _NotValid
    return outputs


def _output(name: str, tensor: Tensor, parameters: OutputParameters, most_bytes: int) -> OutputTensor:
    where = parameters.model_dump(exclude_defaults=True, exclude={"classification"})
    if where:
        return _checked(name, tensor, where, None)
    if tensor.datatype not in DATATYPES or prod(tensor.shape) * _LEAST_JSON_BYTES > most_bytes:
        raise _NotValid
    try:
        array = _array(tensor)
    except DoesNotFit:
        raise _NotValid from None
    if tensor.datatype != "BYTES":
        return _checked(name, tensor, {}, json_values(array))
    texts, are_base64 = json_texts(array)
    return _checked(name, tensor, {"content_type": BASE64} if are_base64 else {}, texts)


def _array(tensor: Tensor) -> Array:
    """Return what came in binary as it is, and what came as JSON read as strictly as a job's own values."""
    if tensor.array is not None:
        return tensor.array
    if tensor.data is None or tensor.datatype not in DATATYPES:
        raise DoesNotFit("has no values")
    return array_of(tensor.datatype, tensor.shape, tensor.data)


def _checked(name: str, tensor: Tensor, parameters: Mapping[str, str | int], data: list[Any] | None) -> OutputTensor:
    content = {"name": name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    try:
        return OutputTensor.model_validate({**content, "parameters": dict(parameters), "data": data})
    except ValidationError:
        raise _NotValid from None
