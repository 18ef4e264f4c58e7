"""How the model behind each public name is asked: as its last check said, and checked where that is not known."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from settings.runtime import RuntimeConfig
from tasks.errors import ContractMismatch, ModelNotSupported
from worker.triton.asking import AskedModel, asked_model
from worker.triton.catalog import Catalog
from worker.triton.comparing import compare
from worker.triton.deadline import at_most
from worker.triton.description import ModelDescription
from worker.triton.failures import ExchangeFailed, Loss, Refused, error_from_loss
from worker.triton.http import Limits
from worker.triton.model_contract import ContractReport, ModelContract
from worker.triton.server import ModelPath
from worker.triton.tensor_contract import TensorContract, compare_tensors
from worker.triton.tensors import AskedTensors

_log = structlog.get_logger()


class Contracts:
    """The contracts of one worker's public names. A job that is under way goes on with the one it began with."""

    def __init__(
        self,
        configs: Mapping[str, RuntimeConfig],
        paths: Mapping[str, ModelPath],
        catalog: Catalog,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know none yet; ``configs`` and ``paths`` are by public name."""
        self.configs = configs
        self.asked: dict[str, AskedModel | AskedTensors] = {}
        self._paths = paths
        self._catalog = catalog
        self._monotonic = monotonic

    def check(self, public_name: str) -> ContractReport:
        """Return a configuration beside what Triton says now. Raises ModelNotSupported, and as ``Catalog.describe`` does."""
        return self._compared(public_name, self._catalog.describe(self.path(public_name)))

    def look(self, public_name: str) -> ContractReport:
        """Do the same with what a look at another name of the model has just learnt, if one has."""
        return self._compared(public_name, self._catalog.describe_for_a_look(self.path(public_name)))

    def path(self, public_name: str) -> ModelPath:
        """Return which model stands behind a name, or raise ModelNotSupported where the name is not declared."""
        path = self._paths.get(public_name)
        if path is None:
            raise ModelNotSupported
        return path

    def known(self, public_name: str) -> tuple[AskedModel | AskedTensors, Limits]:
        """Return how a model is asked, and what is left for its inference where it had to be checked first.

        Raises a JobError where that does not pass.
        """
        asked = self.asked.get(public_name)
        if asked is not None:
            return asked, asked.limits
        self.path(public_name)
        config = self.configs[public_name]
        begun = self._monotonic()
        try:
            with at_most(config.timeout_seconds):
                report = self.check(public_name)
        except TimeoutError:
            failed = ExchangeFailed(Loss.NEVER_SENT, f"not checked within {config.timeout_seconds:g} s")
            raise error_from_loss(failed) from failed
        if report.contract is None:
            _log.error("model.mismatched", model=public_name, report=str(report))
            raise ContractMismatch from Refused(str(report))
        asked = _asked(config, report.contract)
        left = config.timeout_seconds - (self._monotonic() - begun)
        return asked, replace(asked.limits, timeout_seconds=max(0.0, left))

    def known_tensors(self, public_name: str, *, anew: bool) -> tuple[AskedTensors, Limits]:
        """Do the same for a model of kind ``tensors``, which is checked in any case if it is asked for ``anew``."""
        if anew:
            self.drop(public_name)
        asked, limits = self.known(public_name)
        if not isinstance(asked, AskedTensors):
            raise ModelNotSupported
        return asked, limits

    def drop(self, public_name: str) -> None:
        """Learn that a model is not what it was taken for."""
        self.asked.pop(public_name, None)
        self._catalog.forget(self.path(public_name))

    def _compared(self, public_name: str, model: ModelDescription) -> ContractReport:
        config = self.configs[public_name]
        report = (compare_tensors if config.kind == "tensors" else compare)(public_name, config, model)
        if report.contract is None:
            self.asked.pop(public_name, None)
        else:
            self.asked[public_name] = _asked(config, report.contract)
        return report


def _asked(config: RuntimeConfig, contract: ModelContract | TensorContract) -> AskedModel | AskedTensors:
    return AskedTensors(config, contract) if isinstance(contract, TensorContract) else asked_model(config, contract)
