"""What a job puts into its model's inputs, whatever the way in which they are sent."""

import json
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from settings.refusals import STREAMS
from tasks.errors import InvalidJob, StreamingNotSupported
from tasks.job import GenerateJob
from worker.triton.codec import TensorValue
from worker.triton.model_contract import ModelContract, TensorPlan
from worker.triton.values import DoesNotFit, fitted_all

Part = TypeVar("Part")
Slot = Callable[[Sequence[TensorValue]], Part]


class JobInputs(Generic[Part]):
    """The inputs of a model's jobs, as parts of a request. A slot is made once for each input, constants are encoded once."""

    def __init__(self, contract: ModelContract, slot_of: Callable[[TensorPlan], Slot[Part]]) -> None:
        """Take what makes a slot of an input."""
        self._prompt = slot_of(contract.prompt)
        self._max_tokens = None if contract.max_tokens is None else _Typed(contract.max_tokens, slot_of)
        self._options = {name: _Typed(plan, slot_of) for name, plan in contract.options.items()}
        self._json = None if contract.options_json is None else slot_of(contract.options_json)
        self._json_options = contract.json_options
        self._constants = [slot_of(each.plan)(each.values) for each in contract.constants]

    def of(self, job: GenerateJob) -> list[Part]:
        """Return the parts of a job.

        Raises:
            InvalidJob: ``max_tokens`` or a parameter does not fit.
            StreamingNotSupported: a parameter asks for a stream.
        """
        parts = [self._prompt((job.prompt.encode(),))]
        if self._max_tokens is not None:
            parts.append(self._max_tokens.part("max_tokens", job.max_tokens))
        others: dict[str, object] = {}
        for name, value in job.parameters.items():
            option = self._options.get(name)
            if option is None:
                others[name] = value
            else:
                parts.append(option.part(f"parameter {name}", value))
        if self._json is not None:
            parts.append(self._json((self._as_json(others, job.max_tokens),)))
        elif others:
            raise InvalidJob("a parameter is not supported")
        parts.extend(self._constants)
        return parts

    def _as_json(self, parameters: dict[str, object], max_tokens: int) -> bytes:
        for name, value in parameters.items():
            if name.lower() in STREAMS:
                raise StreamingNotSupported
            if name == "max_tokens":
                raise InvalidJob("max_tokens is no parameter")
            self._check(name, value)
        return json.dumps({**parameters, "max_tokens": max_tokens}).encode()

    def _check(self, name: str, value: object) -> None:
        if self._json_options is None:
            return
        option = self._json_options.get(name)
        if option is None:
            raise InvalidJob("a parameter is not supported")
        try:
            option.check(value)
        except DoesNotFit as problem:
            raise InvalidJob(f"parameter {name} {problem}") from None


class _Typed(Generic[Part]):
    """An input whose values are given its datatype first."""

    def __init__(self, plan: TensorPlan, slot_of: Callable[[TensorPlan], Slot[Part]]) -> None:
        self._datatype = plan.datatype
        self._slot = slot_of(plan)

    def part(self, what: str, value: object) -> Part:
        values = value if isinstance(value, list) else (value,)
        try:
            return self._slot(fitted_all(self._datatype, values))
        except DoesNotFit as problem:
            raise InvalidJob(f"{what} {problem}") from None
