"""What a model's configuration allows in a tensor job."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from tasks.tensors import Datatype, InputTensor, InSharedMemory, TensorJob

LEAST_BYTES: Final[dict[Datatype, int]] = {
    "BOOL": 1,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": 4,
}
"""What one value takes in a request; of BYTES, the length that is sent before the bytes."""


@dataclass(frozen=True, slots=True)
class TensorLimits:
    """The limits of one public name; ``max_input_bytes`` is of all inputs together, as they are sent."""

    max_input_bytes: int
    inference_parameters: frozenset[str] = frozenset()
    shared_memory_regions: frozenset[str] = frozenset()

    def objections(self, job: TensorJob) -> Iterator[str]:
        """Yield what is wrong with the tensors of a job; the words name fields and limits only."""
        for place, region in _regions(job):
            if region not in self.shared_memory_regions:
                yield f"{place} names a shared-memory region that is not allowed"
        if sum(least_bytes(tensor) for tensor in job.inputs if tensor.data is not None) > self.max_input_bytes:
            yield over_bytes(self.max_input_bytes)


def over_bytes(limit: int) -> str:
    """Return the words for inputs that are too large."""
    return f"inputs are over {limit} bytes"


def least_bytes(tensor: InputTensor) -> int:
    """Return how many bytes the tensor has at least, by its shape alone."""
    return prod(tensor.shape) * LEAST_BYTES[tensor.datatype]


def _regions(job: TensorJob) -> Iterator[tuple[str, str]]:
    places: dict[str, InSharedMemory] = {
        **{f"inputs[{index}]": tensor.parameters for index, tensor in enumerate(job.inputs)},
        **{f"outputs[{index}]": tensor.parameters for index, tensor in enumerate(job.outputs)},
    }
    for place, parameters in places.items():
        if parameters.shared_memory_region is not None:
            yield place, parameters.shared_memory_region
