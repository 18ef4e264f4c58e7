"""Gathers what a heartbeat says of this worker from the parts that know it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from settings.schema import Settings
from worker.gate import ModelState
from worker.health import Load, Outside, Process, able_models, health_fields, models_health
from worker.registration import Beat
from worker.tally import Tally


@dataclass(frozen=True, slots=True)
class Vitals:
    """Asked at each heartbeat; what a part has nothing to say of is in order."""

    settings: Settings
    process: Process
    tally: Tally
    gate: Callable[[], Mapping[str, ModelState]]
    load: Callable[[], Load]
    paused: Callable[[], Collection[str]] = frozenset
    """Public names that operators paused."""
    circuits: Callable[[], Mapping[str, str]] = dict
    """State of the circuit behind each public name, where it is not closed."""
    refusals: Callable[[], Mapping[str, str]] = dict
    """By public name, what the last claim could not be granted for."""

    def beat(self) -> Beat:
        """Return what is so now."""
        load = self.load()
        models = models_health(self.gate(), Outside(self.circuits(), self.refusals(), self.paused()), load.by_model)
        fields = health_fields(self.settings, self.process, self.tally, models, load)
        return Beat(fields, able_models(models, load))
