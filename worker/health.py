"""What a worker says of itself in Redis (docs/wire-contract.md, section 5). Pure."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from settings.runtime import RuntimeConfig
from settings.schema import Settings
from tasks.reading import ModelLimits
from tasks.tensor_limits import TensorLimits
from worker.gate import ModelState, Standing
from worker.tally import Tally

CLOSED: Final = "closed"
OPEN: Final = "open"
_CIRCUITS: Final = (CLOSED, "half_open", OPEN)
"""From good to bad."""

BY_OPERATOR: Final = "operator"
"""The reason of a model that an operator paused; other reasons are codes of errors."""


class WorkerState(StrEnum):
    """The state of a worker as routing reads it."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Process:
    """What does not change while a worker runs."""

    version: str
    config_digest: str
    hostname: str
    pid: int
    started_at: str


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """How a model stands with a worker, all causes together.

    ``reason`` is the code that paused it, or BY_OPERATOR; ``cause`` says more of it where the code does not say enough. ``waits`` is
    what the last claim could not be granted for, None where nothing was refused.
    """

    state: Standing
    reason: str | None = None
    cause: str | None = None
    circuit: str = CLOSED
    in_flight: int = 0
    waits: str | None = None

    @property
    def is_able(self) -> bool:
        """Whether the worker takes jobs of it: of a half-open circuit it does, since those are what closes it."""
        return self.state is Standing.READY and self.circuit != OPEN


@dataclass(frozen=True, slots=True)
class Outside:
    """What others than the worker's gate say of its models, each by public name; nothing said is nothing wrong."""

    circuits: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    paused: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What changes with every job; ``at`` is Redis' time as RFC 3339. ``consuming`` is False where claims have stood still."""

    in_flight: int
    slots: int
    at: str
    draining: bool
    consuming: bool = True
    by_model: Mapping[str, int] = field(default_factory=dict)
    """Jobs in flight by public name, where there are any."""


def models_health(
    gate: Mapping[str, ModelState], outside: Outside, in_flight: Mapping[str, int]
) -> dict[str, ModelHealth]:
    """Return how each model stands; an operator's pause comes before what the gate says."""
    return {name: _model_health(name, state, outside, in_flight.get(name, 0)) for name, state in gate.items()}


def _model_health(name: str, gate: ModelState, outside: Outside, in_flight: int) -> ModelHealth:
    circuit, waits = outside.circuits.get(name, CLOSED), outside.refusals.get(name)
    if name in outside.paused:
        return ModelHealth(Standing.PAUSED, BY_OPERATOR, None, circuit, in_flight, waits)
    return ModelHealth(gate.standing, gate.reason, gate.cause, circuit, in_flight, waits)


def worker_state(models: Mapping[str, ModelHealth], *, draining: bool, consuming: bool = True) -> WorkerState:
    """Return degraded when some models are out of order, unavailable when all are, or when nothing is being consumed."""
    if draining:
        return WorkerState.DRAINING
    if not consuming:
        return WorkerState.UNAVAILABLE
    able = sum(model.is_able for model in models.values())
    if able == len(models):
        return WorkerState.READY
    if able:
        return WorkerState.DEGRADED
    is_new = all(model.state is Standing.STARTING for model in models.values())
    return WorkerState.STARTING if is_new else WorkerState.UNAVAILABLE


def able_models(models: Mapping[str, ModelHealth], load: Load) -> frozenset[str]:
    """Return the public names that the worker takes jobs of now."""
    if load.draining or not load.consuming:
        return frozenset()
    return frozenset(name for name, model in models.items() if model.is_able)


def health_fields(
    settings: Settings, process: Process, tally: Tally, models: Mapping[str, ModelHealth], load: Load
) -> dict[str, str]:
    """Return the fields of the health key; what is not known is an empty string."""
    pool = settings.gpu_pool
    return {
        "state": worker_state(models, draining=load.draining, consuming=load.consuming),
        "circuit": max((model.circuit for model in models.values()), key=_CIRCUITS.index, default=CLOSED),
        "consecutive_failures": str(tally.consecutive_failures),
        "succeeded_total": str(tally.succeeded_total),
        "failed_total": str(tally.failed_total),
        "retried_total": str(tally.retried_total),
        "returned_total": str(tally.returned_total),
        "dead_lettered_total": str(tally.dead_lettered_total),
        "duplicates_total": str(tally.duplicates_total),
        "claims_lost_total": str(tally.claims_lost_total),
        "claims_reaped_total": str(tally.claims_reaped_total),
        "wasted_tokens_total": str(tally.wasted_tokens_total),
        "last_error_code": tally.last_error_code or "",
        "last_error_at": tally.last_error_at or "",
        "last_success_at": tally.last_success_at or "",
        "in_flight": str(load.in_flight),
        "concurrency": str(load.slots),
        "pool": settings.pool_name,
        "pool_max_concurrency": str(pool.max_concurrency),
        "pool_requests_per_minute": str(pool.requests_per_minute or ""),
        "pool_tokens_per_minute": str(pool.tokens_per_minute or ""),
        "pool_adaptive": str(int(pool.adaptive)),
        "models": json.dumps(
            {name: _as_json(model, settings.runtime_for(name)) for name, model in models.items()},
            separators=(",", ":"),
        ),
        "endpoint_id": settings.endpoint_id,
        "runtime_endpoint": str(settings.runtime_endpoint),
        "worker_type": settings.worker_type,
        "runtime": settings.runtime,
        "version": process.version,
        "config_digest": process.config_digest,
        "hostname": process.hostname,
        "pid": str(process.pid),
        "started_at": process.started_at,
        "heartbeat_at": load.at,
    }


def _as_json(model: ModelHealth, config: RuntimeConfig) -> dict[str, str | int | None]:
    return {
        "state": model.state,
        "reason": model.reason,
        "cause": model.cause,
        "circuit": model.circuit,
        "in_flight": model.in_flight,
        "waits": model.waits,
        "triton_model": config.model_name,
        "triton_version": config.model_version,
    }


def declarations(settings: Settings, limits: Mapping[str, object]) -> dict[str, str]:
    """Return what a gateway needs to check jobs, by public name, as JSON objects without their closing brace.

    ``limits`` is what the worker itself checks them by. The script that writes a declaration adds ``since``, when it was first
    written so.
    """
    remembered = settings.settled_ttl_seconds
    return {name: _declaration(settings.runtime_for(name), its, remembered) for name, its in limits.items()}


def _declaration(config: RuntimeConfig, limits: object, settled_ttl_seconds: int) -> str:
    # Of tensors there is no prompt, and are no tokens.
    text = limits if isinstance(limits, ModelLimits) else None
    tensors = limits if isinstance(limits, TensorLimits) else None
    parameters = tensors.inference_parameters if tensors else text.parameters if text else None
    content = {
        "kind": config.kind,
        "max_tokens_limit": text and text.max_tokens_limit,
        "max_prompt_bytes": text and text.max_prompt_bytes,
        "max_input_bytes": tensors and tensors.max_input_bytes,
        "parameters": None if parameters is None else sorted(parameters),
        "chat_template": config.chat_template,
        "settled_ttl_seconds": settled_ttl_seconds,
    }
    return json.dumps(content, separators=(",", ":")).removesuffix("}")
