"""What the scripts about claims are told of the configuration."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.scripts import Argument


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """A pool as this worker's configuration has it; None is no limit. ``kept_slots`` is by public name, 1 for all others."""

    name: str
    max_concurrency: int
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    kept_slots: Mapping[str, int] = field(default_factory=dict)
    adaptive: bool = False
    limits: tuple[Argument, ...] = field(init=False)
    """What the scripts take where the pool has no limits yet: they are told with each claim."""

    def __post_init__(self) -> None:
        """Write the limits down once."""
        kept = json.dumps(dict(self.kept_slots), separators=(",", ":"))
        limits = (self.max_concurrency, self.requests_per_minute or "", self.tokens_per_minute or "", kept)
        object.__setattr__(self, "limits", limits)


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """What a model's claims depend on: ``slot_ms`` bounds how long its slot is taken, from the grant to its timeout's end."""

    circuit: str
    slot_ms: int
    half_open_calls: int


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """What the scripts need to know of the configuration. A job with ``crashes_to_run_alone`` behind it runs alone among such."""

    worker_id: str
    result_ttl_seconds: int
    settled_ttl_seconds: int
    max_job_bytes: int
    max_queue_ms: int | None
    crashes_to_run_alone: int
    pool: PoolTerms
    models: Mapping[str, ModelTerms]
    """By public name."""
