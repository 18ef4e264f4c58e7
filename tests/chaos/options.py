"""What a run is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.load import SHARES, Kind
from tests.chaos.plan import TRITON_FAULTS, FaultKind


@dataclass(frozen=True, slots=True)
class Options:
    """A run: the same options draw the same load and the same faults."""

    seed: int
    seconds: float
    jobs: int
    workers: int = 3
    producers: int = 2
    faults: frozenset[FaultKind] = frozenset(FaultKind)
    every: float = 6.0
    """How many seconds lie between a fault and the next, about, of those that happen to workers."""
    calm_seconds: float = 0.0
    """How long jobs are still pushed after the last fault has begun."""
    lease_seconds: float = 3.0
    failpoints: tuple[str, ...] = ()
    """``NAME:N`` each: the workers in the first place come to them one after the other."""
    mutation: str | None = None
    shares: Mapping[Kind, float] = field(default_factory=lambda: dict(SHARES))
    most_reruns: float | None = None
    patience_seconds: float = 30.0
    """How long nothing may change before a run is taken to have come to a stop."""

    @property
    def triton_fails(self) -> bool:
        """Tell whether jobs may fail since Triton does."""
        return bool(self.faults & TRITON_FAULTS)
