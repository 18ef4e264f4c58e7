"""Models that take tensor jobs: whether one fits its configuration, and whether a job fits the model. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from settings.runtime import RuntimeConfig
from tasks.tensors import TensorJob, WantedOutput
from worker.triton.description import VARIABLE, ModelDescription, TensorDescription
from worker.triton.model_contract import Comparison, ContractReport
from worker.triton.outputs import INTEGER_DATATYPES
from worker.triton.remedies import name_another

CLASSIFIABLE: Final = INTEGER_DATATYPES | {"FP32", "FP64"}
"""What Triton can classify. Asked to classify BYTES, or a tensor without a value, it dies."""


@dataclass(frozen=True, slots=True)
class TensorContract:
    """How to ask one model for tensors; ``usage`` is what a job is billed by, unit to output."""

    model: ModelDescription
    usage: Mapping[str, str]

    def objections(self, job: TensorJob) -> Iterator[str]:
        """Yield what keeps the model from running a job, in words for its customer."""
        yield from self._about_inputs(job)
        known = _by_name(self.model.outputs)
        for index, wanted in enumerate(job.outputs):
            described = known.get(wanted.name)
            problem = "is none of the model's" if described is None else self._why_not(job, wanted, described)
            if problem:
                yield f"outputs[{index}] {problem}"

    def _about_inputs(self, job: TensorJob) -> Iterator[str]:
        known = _by_name(self.model.inputs)
        for index, tensor in enumerate(job.inputs):
            described = known.get(tensor.name)
            if described is None:
                yield f"inputs[{index}] is none of the model's"
            elif tensor.datatype != described.datatype:
                yield f"inputs[{index}] is not of the model's datatype, {described.datatype}"
            elif not self._is_of_shape(tensor.shape, described):
                yield f"inputs[{index}] is not of the model's shape, {self._shape(described)}"
        given = {tensor.name for tensor in job.inputs}
        for described in self.model.inputs if self.model.complete else ():
            if not described.optional and described.name not in given:
                yield f"the model's input {described.name} is missing"

    def _why_not(self, job: TensorJob, wanted: WantedOutput, described: TensorDescription) -> str:
        parameters = wanted.parameters
        if parameters.classification is not None and described.datatype not in CLASSIFIABLE:
            return f"cannot be classified: it is of {described.datatype}"
        if parameters.classification is not None and any(0 in tensor.shape for tensor in job.inputs):
            # Then the output may have none either, which is seen when it is too late.
            return "cannot be classified: an input has no values"
        is_plain = parameters.classification is None and parameters.shared_memory_region is None
        if wanted.name in self.usage.values() and not is_plain:
            return "is what the job is billed by: it comes neither classified nor in shared memory"
        return ""

    def _is_of_shape(self, shape: Sequence[int], described: TensorDescription) -> bool:
        sizes, bounds = list(shape), list(described.shape)
        if described.is_batched and sizes:
            if not 1 <= sizes[0] <= self.model.max_batch_size:
                return False
            sizes, bounds = sizes[1:], bounds[1:]
        return len(sizes) == len(bounds) and all(
            bound in {VARIABLE, size} for size, bound in zip(sizes, bounds, strict=True)
        )

    def _shape(self, described: TensorDescription) -> str:
        sizes = [str(size) for size in described.shape]
        if described.is_batched:
            sizes[0] = f"1 to {self.model.max_batch_size}"
        return f"[{', '.join(sizes)}]"


def compare_tensors(public_name: str, config: RuntimeConfig, model: ModelDescription) -> ContractReport:
    """Return the report on a configuration of kind ``tensors`` and the model that it names."""
    found = (*_transport(config, model), *_usage(config, model))
    fits = not any(each.is_mismatch for each in found)
    return ContractReport(
        public_name=public_name,
        model_name=config.model_name,
        versions=model.versions,
        comparisons=found,
        contract=TensorContract(model, dict(config.tensors.usage)) if fits else None,
        from_metadata=not model.complete,
        model=model,
    )


def _transport(config: RuntimeConfig, model: ModelDescription) -> Iterator[Comparison]:
    if config.model_version is not None:
        reason = "" if config.model_version in model.versions else "is not available"
        yield Comparison("model_version", config.model_version, ", ".join(model.versions) or "-", reason)
    if model.decoupled:
        reason = "takes no decoupled model: those answer /generate only, which has no tensors"
        yield Comparison("kind", "tensors", "a decoupled transaction policy", reason)


def _usage(config: RuntimeConfig, model: ModelDescription) -> Iterator[Comparison]:
    known = _by_name(model.outputs)
    for unit, name in config.tensors.usage.items():
        output, field = known.get(name), f"tensors.usage.{unit}"
        remedy = name_another(field, name, model.outputs, INTEGER_DATATYPES)
        if output is None:
            there = ", ".join(f"{each.name} {each}" for each in model.outputs) or "-"
            yield Comparison(field, name, there, "is none of its outputs", remedy=remedy)
        elif output.datatype in INTEGER_DATATYPES:
            yield Comparison(field, name, str(output))
        else:
            # A count of another datatype than declared will do, so the declaration alone refuses nothing.
            yield Comparison(field, name, str(output), "is no integer tensor", is_doubt=True, remedy=remedy)


def _by_name(tensors: Sequence[TensorDescription]) -> dict[str, TensorDescription]:
    return {tensor.name: tensor for tensor in tensors}
