"""Slots that stay taken after their jobs have ended, since Triton may be busy with them still, and what frees them early."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.delivery import Delivery, Outcome, Retry, Return, Settlement
from tasks.errors import ModelCrashed
from worker.exchange import Run
from worker.outcomes import became_of
from worker.triton.failures import ServerAway


@dataclass(slots=True)
class Leftovers:
    """The slots that this run left taken, by public model. They lapse by themselves; what is known to be over is freed at once."""

    incarnation: Callable[[], str] = str
    _slots: dict[str, list[str]] = field(default_factory=dict)
    _freed: list[str] = field(default_factory=list)

    def note(self, delivery: Delivery, outcome: Outcome) -> None:
        """Learn how a delivery ended. A dead process has ended all that ran in it."""
        if isinstance(outcome, Return) and isinstance(outcome.error, ServerAway):
            self.server_is_away()
        if not isinstance(outcome, (Settlement, Retry)):
            return
        model = delivery.queue_model
        if isinstance(outcome.error, ModelCrashed):
            self._freed += self._slots.pop(model, [])
        elif delivery.holds and became_of(outcome) is Run.ON:
            self._slots.setdefault(model, []).append(f"{model}\n{self.incarnation()}/{delivery.tag}")

    def server_is_away(self) -> None:
        """Learn that nothing runs any more: the server refuses connections."""
        for slots in self._slots.values():
            self._freed += slots
        self._slots.clear()

    def freed(self) -> tuple[str, ...]:
        """Return, once, the slots that are to be given back."""
        freed, self._freed = tuple(self._freed), []
        return freed
