"""One look at a model that is out of order: is it ready, and does its contract pass?"""

from collections.abc import Callable

import structlog

from tasks.errors import ContractMismatch, ModelNotReady
from worker.triton.model_contract import ContractReport

log = structlog.get_logger()


class Looks:
    """Asks the runtime about models; a mismatch is logged in full once, and again when it changes."""

    def __init__(self, model_ready: Callable[[str], bool], check: Callable[[str], ContractReport]) -> None:
        """Take the questions."""
        self._model_ready = model_ready
        self._check = check
        self._logged: dict[str, str] = {}

    def look(self, model: str) -> None:
        """Return if jobs of the model can run, else raise the JobError that says why not."""
        if not self._model_ready(model):
            raise ModelNotReady
        report = self._check(model)
        if report.passed:
            self._logged.pop(model, None)
            return
        if self._logged.get(model) != str(report):
            self._logged[model] = str(report)
            log.error("model.mismatched", model=model, report=str(report))
        raise ContractMismatch
