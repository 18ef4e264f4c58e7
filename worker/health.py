"""What a worker says of itself in Redis (docs/wire-contract.md, section 5). Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from settings.schema import Settings
from worker.gate import ModelState, Standing
from worker.tally import Tally


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


def worker_state(models: Mapping[str, ModelState], *, draining: bool, consuming: bool = True) -> WorkerState:
    """Return degraded when some models are out of order, unavailable when all are, or when nothing is being consumed."""
    standings = {state.standing for state in models.values()}
    if draining:
        return WorkerState.DRAINING
    if not consuming:
        return WorkerState.UNAVAILABLE
    if standings == {Standing.READY}:
        return WorkerState.READY
    if Standing.READY in standings:
        return WorkerState.DEGRADED
    return WorkerState.STARTING if standings == {Standing.STARTING} else WorkerState.UNAVAILABLE


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


def health_fields(
    settings: Settings, process: Process, tally: Tally, models: Mapping[str, ModelState], load: Load
) -> dict[str, str]:
    """Return the fields of the health key; what is not known is an empty string."""
    return {
        "state": worker_state(models, draining=load.draining, consuming=load.consuming),
        "circuit": "closed",
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
        "pool_max_concurrency": str(settings.gpu_pool.max_concurrency),
        "models": json.dumps(
            {name: _model(state, load.by_model.get(name, 0)) for name, state in models.items()}, separators=(",", ":")
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


def _model(state: ModelState, in_flight: int) -> dict[str, str | int | None]:
    return {"state": state.standing, "reason": state.reason, "circuit": "closed", "in_flight": in_flight}
