"""A configuration held against its model, field by field."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from settings.runtime import RuntimeConfig
from worker.triton.description import ModelDescription, TensorDescription, in_words, named
from worker.triton.generating import NOT_IN_JSON, RESERVED_INPUTS, RESERVED_OUTPUTS
from worker.triton.habits import doubts
from worker.triton.model_contract import (
    Comparison,
    ContractReport,
    FittedTensor,
    JsonOption,
    ModelContract,
    TensorPlan,
)
from worker.triton.outputs import INTEGER_DATATYPES, OutputNames
from worker.triton.remedies import name_another, name_another_count, name_another_limit, rename
from worker.triton.unfilled import unfilled
from worker.triton.values import DATATYPES, INTEGER_RANGES, DoesNotFit

_BYTES: Final = frozenset({"BYTES"})
_NOTHING: Final = "-"


def compare(public_name: str, config: RuntimeConfig, model: ModelDescription) -> ContractReport:
    """Return the report on a configuration and the model that it names."""
    comparing = _Comparing(config, model)
    contract = comparing.contract()
    found = tuple(comparing.found)
    return ContractReport(
        public_name=public_name,
        model_name=config.model_name,
        versions=model.versions,
        comparisons=found,
        contract=None if any(each.is_mismatch for each in found) else contract,
        from_metadata=not model.complete,
        model=model,
    )


@dataclass(slots=True)
class _Comparing:
    """One comparison under way; ``found`` grows with each field that is looked at."""

    config: RuntimeConfig
    model: ModelDescription
    by_generate: bool = False
    found: list[Comparison] = field(default_factory=list)

    def contract(self) -> ModelContract | None:
        config = self.config
        self._version()
        self._transport()
        prompt = self._input("input_name", config.input_name, _BYTES)
        max_tokens = self._max_tokens()
        constants = [self._constant(name, value) for name, value in config.constants.items()]
        options = {
            parameter: self._input(f"options.{parameter}", name, DATATYPES, is_list_too=True)
            for parameter, name in config.options.items()
        }
        options_json = self._input("options_json_input", config.options_json_input, _BYTES)
        self.found.extend(unfilled(config, self.model, self.found))
        self._outputs()
        self.found.extend(doubts(config, self.model))
        if prompt is None:
            return None
        return ModelContract(
            prompt=prompt,
            max_tokens=max_tokens,
            constants=tuple(constant for constant in constants if constant is not None),
            options={parameter: plan for parameter, plan in options.items() if plan is not None},
            options_json=options_json,
            outputs=OutputNames(
                config.output_name,
                config.prompt_tokens_output_name,
                config.completion_tokens_output_name,
                config.finish_reason_output_name,
            ),
            json_options=_json_options(config),
            transport="generate" if self.by_generate else "infer",
        )

    def _note(
        self,
        name: str,
        configured: object,
        actual: object,
        reason: str = "",
        remedy: Callable[[], str] = str,
        *,
        is_doubt: bool = False,
    ) -> None:
        """Write a comparison down; what to do is thought of only where something is wrong."""
        words = remedy() if reason else ""
        self.found.append(Comparison(name, str(configured), str(actual), reason, is_doubt, words))

    def _version(self) -> None:
        if self.config.model_version is not None:
            versions = ", ".join(self.model.versions) or _NOTHING
            reason = "" if self.config.model_version in self.model.versions else "is not available"
            self._note(
                "model_version", self.config.model_version, versions, reason, lambda: f"set it to one of {versions}"
            )

    def _transport(self) -> None:
        configured = self.config.transport
        if self.model.decoupled and configured == "infer":
            reason = "cannot run it: a decoupled model answers /generate alone"
            policy = "a decoupled transaction policy"
            self._note("transport", configured, policy, reason, lambda: "set transport to auto or generate")
        self.by_generate = configured == "generate" or (configured == "auto" and self.model.decoupled)
        if self.by_generate:
            self._not_for_generate()

    def _not_for_generate(self) -> None:
        reserved = [tensor for tensor in self.model.inputs if tensor.name in RESERVED_INPUTS]
        reserved += [tensor for tensor in self.model.outputs if tensor.name in RESERVED_OUTPUTS]
        remedy = "rename the tensor in the model" if self.model.decoupled else "set transport to infer"
        for tensor in reserved:
            reason = "has another meaning for a key of that name"
            self._note("transport", "generate", f"{tensor.name} {tensor}", reason, lambda: remedy)

    def _input(
        self, name: str, tensor_name: str | None, datatypes: AbstractSet[str], *, is_list_too: bool = False
    ) -> TensorPlan | None:
        if tensor_name is None:
            return None
        tensor = named(self.model.inputs, tensor_name)
        words = name_another_limit if name == "max_tokens_input_name" else name_another
        remedy = partial(words, name, tensor_name, self.model.inputs, datatypes)
        if name.startswith("options."):
            remedy = partial(rename, tensor_name, self.model.inputs, name.removeprefix("options."))
        if tensor is None:
            self._note(name, tensor_name, in_words(self.model.inputs), "is none of its inputs", remedy)
            return None
        plan = TensorPlan(tensor.name, tensor.datatype, tensor.shape)
        why_not = _why_not(plan, datatypes, is_list_too=is_list_too) or self._not_in_json(tensor)
        self._note(name, tensor_name, tensor, why_not, remedy)
        return plan

    def _not_in_json(self, tensor: TensorDescription) -> str:
        is_binary_only = self.by_generate and tensor.datatype in NOT_IN_JSON
        return f"cannot be sent by /generate, which takes no {tensor.datatype}" if is_binary_only else ""

    def _max_tokens(self) -> TensorPlan | None:
        plan = self._input("max_tokens_input_name", self.config.max_tokens_input_name, INTEGER_DATATYPES)
        limit = self.config.max_tokens_limit
        if plan is None or limit is None or plan.datatype not in INTEGER_RANGES:
            return plan
        largest = INTEGER_RANGES[plan.datatype][1]
        if limit > largest:
            reason = f"is over its largest value, {largest}"
            self._note("max_tokens_limit", limit, plan.datatype, reason, lambda: f"set it to at most {largest}")
        return plan

    def _constant(self, tensor_name: str, value: object) -> FittedTensor | None:
        tensor = named(self.model.inputs, tensor_name)
        name = f"constants.{tensor_name}"
        if tensor is None:
            remedy = partial(rename, tensor_name, self.model.inputs)
            self._note(name, value, in_words(self.model.inputs), "is for none of its inputs", remedy)
            return None
        if tensor.datatype not in DATATYPES:
            self._note(name, value, tensor, f"cannot be sent as {tensor.datatype}")
            return None
        try:
            fitted = TensorPlan(tensor.name, tensor.datatype, tensor.shape).holding(tuple(_leaves(value)))
        except DoesNotFit as problem:
            self._note(name, value, tensor, str(problem), lambda: f"give it what fits {tensor}")
            return None
        self._note(name, value, tensor, self._not_in_json(tensor))
        return fitted

    def _outputs(self) -> None:
        config = self.config
        self._output("output_name", config.output_name, _BYTES, is_doubt=False)
        # A count of another datatype than declared will do, so the declaration alone refuses nothing.
        for name in ("prompt_tokens_output_name", "completion_tokens_output_name"):
            self._output(name, getattr(config, name), INTEGER_DATATYPES, is_doubt=True)
        if config.finish_reason_output_name is not None:
            self._output("finish_reason_output_name", config.finish_reason_output_name, _BYTES, is_doubt=True)

    def _output(self, name: str, tensor_name: str, datatypes: AbstractSet[str], *, is_doubt: bool) -> None:
        tensor = named(self.model.outputs, tensor_name)
        words = name_another_count if datatypes == INTEGER_DATATYPES else name_another
        remedy = partial(words, name, tensor_name, self.model.outputs, datatypes)
        if tensor is None:
            self._note(name, tensor_name, in_words(self.model.outputs), "is none of its outputs", remedy)
        elif tensor.datatype not in datatypes:
            self._note(name, tensor_name, tensor, f"is no {_kind(datatypes)} tensor", remedy, is_doubt=is_doubt)
        else:
            self._note(name, tensor_name, tensor)


def _json_options(config: RuntimeConfig) -> dict[str, JsonOption] | None:
    if config.options_json_parameters is None:
        return None
    return {
        name: JsonOption(datatype.removesuffix("[]"), takes_list=datatype.endswith("[]"))
        for name, datatype in config.options_json_parameters.items()
    }


def _why_not(plan: TensorPlan, datatypes: AbstractSet[str], *, is_list_too: bool) -> str:
    if plan.datatype not in datatypes:
        return f"is no {_kind(datatypes)} tensor"
    if is_list_too:
        return ""
    try:
        plan.shape_for(1)
    except DoesNotFit as problem:
        return str(problem)
    return ""


def _kind(datatypes: AbstractSet[str]) -> str:
    if datatypes == _BYTES:
        return "BYTES"
    return "integer" if datatypes == INTEGER_DATATYPES else "supported"


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value
