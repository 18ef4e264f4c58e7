"""One look at a model that is out of order: is it ready, does its contract pass, and was it loaded again meanwhile?"""

from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from tasks.errors import ContractMismatch, JobError, ModelNotReady
from worker.triton.model_contract import ContractReport
from worker.triton.server import Statistics

_REMEMBERED: Final = 64

log = structlog.get_logger()


class Looks:
    """Asks the runtime about models; a mismatch is logged in full once, and again when it changes."""

    def __init__(
        self,
        model_ready: Callable[[str], bool],
        check: Callable[[str], ContractReport],
        statistics: Callable[[str], Statistics],
    ) -> None:
        """Take the questions."""
        self._model_ready = model_ready
        self._check = check
        self._statistics = statistics
        self._logged: dict[str, str] = {}
        self._histories: dict[str, _History] = {}

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

    def begin(self, model: str) -> None:
        """Compare from now on with what Triton says next: what was before does not matter any more."""
        self._history(model).begin()

    def was_loaded_again(self, model: str) -> bool:
        """Tell whether the model was loaded again since it was begun: Triton's own statistics of it went backwards.

        So a reload is seen that fell between two looks. Where Triton does not say, it is none.
        """
        try:
            now = self._statistics(model)
        except JobError:
            return False
        return self._history(model).goes_backwards(now)

    def _history(self, model: str) -> "_History":
        return self._histories.setdefault(model, _History())


class _History:
    """What Triton has said of one model."""

    def __init__(self) -> None:
        self._last: Statistics | None = None
        self._latest: Statistics | None = None
        self._seen = deque[Statistics](maxlen=_REMEMBERED)
        self._is_of_one_server = True

    def begin(self) -> None:
        self._last = None

    def goes_backwards(self, now: Statistics) -> bool:
        # Where several servers stand behind one address their figures come in turns, and say nothing.
        if now in self._seen and now != self._latest:
            self._is_of_one_server = False
        if now != Statistics():  # That is how each begins.
            self._seen.append(now)
        last, self._last, self._latest = self._last, now, now
        return self._is_of_one_server and last is not None and now.is_behind(last)
