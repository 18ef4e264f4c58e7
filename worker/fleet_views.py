"""A model over the whole fleet, as values: who runs it, how it stands with each, and what waits for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from worker.fleet import ABLE_TO_WORK
from worker.gate import Standing
from worker.health import OPEN
from worker.pool_use import PoolUse


@dataclass(frozen=True, slots=True)
class CircuitView:
    """A circuit as its key shows it; times in Redis' unix ms, None where they are not known.

    ``reason`` is the code that opened it, or the words of the operator who forced it.
    """

    endpoint_id: str
    triton_model: str
    state: str = "closed"
    reason: str = ""
    failures: int = 0
    opened_ms: int | None = None
    retry_ms: int | None = None
    is_forced: bool = False
    forced_by: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's pause; who adds a name by hand leaves no reason."""

    reason: str = ""
    by: str = ""
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Runner:
    """A live worker that declares the model: how it is itself, and how the model stands with it.

    ``triton_version`` is the version that its configuration pins, None where Triton chooses.
    """

    worker_id: str
    state: str
    in_flight: int
    concurrency: int
    runtime_endpoint: str
    pool: PoolUse
    circuit: CircuitView
    standing: str = Standing.READY
    reason: str | None = None
    cause: str | None = None
    waits: str | None = None
    model_in_flight: int = 0
    triton_version: str | None = None

    @property
    def is_able(self) -> bool:
        """Whether the worker takes jobs of the model, as far as no limit is in the way."""
        return self.state in ABLE_TO_WORK and self.standing == Standing.READY and self.circuit.state != OPEN


@dataclass(frozen=True, slots=True)
class ModelView:
    """A model over the whole fleet. ``oldest_ms`` is the age of the job that is next in line, None where it does not say."""

    model: str
    queued: int = 0
    oldest_ms: int | None = None
    runners: Sequence[Runner] = ()
    pause: Pause | None = None
    lost: Sequence[str] = field(default_factory=tuple)
    """Workers of the fleet that show life no more: which models were theirs is not known."""

    @property
    def running(self) -> int:
        """How many jobs of it are in the hands of live workers."""
        return sum(runner.model_in_flight for runner in self.runners)

    @property
    def able(self) -> int:
        """How many live workers take its jobs now, as far as nothing but a limit is in their way."""
        return 0 if self.pause is not None else sum(runner.is_able for runner in self.runners)

    @property
    def circuits(self) -> list[CircuitView]:
        """The circuits of its endpoints, each once."""
        return list(
            {(its.endpoint_id, its.triton_model): its for its in (one.circuit for one in self.runners)}.values()
        )
