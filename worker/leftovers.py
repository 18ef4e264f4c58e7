"""Slots that stay taken after their jobs have ended, since Triton may be busy with them still, and what frees them early."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tasks.delivery import Delivery, Outcome, Retry, Return, Settlement
from tasks.errors import ModelCrashed
from worker.exchange import Run
from worker.outcomes import became_of
from worker.triton.failures import ServerAway


def _lives(_: str) -> bool:
    return False


def _may_be_on(outcome: Outcome) -> bool:
    return isinstance(outcome, (Settlement, Retry)) and became_of(outcome) is Run.ON


@dataclass(slots=True)
class Leftovers:
    """The slots that this run left taken, by public model. They lapse by themselves; what is known to be over is freed at once.

    ``has_died`` tells whether a model's process is known to be dead.
    """

    incarnation: Callable[[], str] = str
    has_died: Callable[[str], bool] = _lives
    _holder: str = ""
    _slots: dict[str, dict[str, str]] = field(default_factory=dict)
    _freed: list[str] = field(default_factory=list)

    def claimed(self) -> None:
        """Learn that jobs were claimed, under the name that this run has now."""
        self._holder = self.incarnation()

    def note(self, delivery: Delivery, outcome: Outcome) -> None:
        """Learn how a delivery ended. A dead process has ended all that ran in it."""
        if isinstance(outcome, Return) and isinstance(outcome.error, ServerAway):
            self.server_is_away()
        model = delivery.queue_model
        lost = self._slots.get(model, {}).pop(delivery.tag, None)
        if delivery.holds and _may_be_on(outcome):
            self._keep(delivery, lost or self._slot(delivery))
        elif lost is not None:
            self._freed.append(lost)
        if isinstance(outcome, (Settlement, Retry)) and isinstance(outcome.error, ModelCrashed):
            self._free(model)

    def came_late(self, delivery: Delivery, outcome: Outcome | None) -> None:
        """Learn that a claim was gone when its end was told: nothing was given back with it."""
        if delivery.holds and outcome is not None and not _may_be_on(outcome):
            self._freed.append(self._slot(delivery))

    def lose(self, deliveries: Iterable[Delivery]) -> None:
        """Learn that these run on without their lease: nobody else knows when their inferences end."""
        for delivery in deliveries:
            if delivery.holds:
                self._keep(delivery, self._slot(delivery))

    def server_is_away(self) -> None:
        """Learn that nothing runs any more: the server refuses connections."""
        for model in list(self._slots):
            self._free(model)

    def models_changed(self) -> None:
        """Learn that models may have died, by what any worker of their endpoint saw."""
        for model in filter(self.has_died, list(self._slots)):
            self._free(model)

    def freed(self) -> tuple[str, ...]:
        """Return, once, the slots that are to be given back."""
        freed, self._freed = tuple(self._freed), []
        return freed

    def _slot(self, delivery: Delivery) -> str:
        return f"{delivery.queue_model}\n{self._holder}/{delivery.tag}"

    def _keep(self, delivery: Delivery, slot: str) -> None:
        self._slots.setdefault(delivery.queue_model, {})[delivery.tag] = slot

    def _free(self, model: str) -> None:
        self._freed += self._slots.pop(model, {}).values()
