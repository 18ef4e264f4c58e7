"""From the settings to what each part needs to know of them. Pure."""

from collections.abc import Callable
from typing import Final

from settings.schema import Settings
from tasks.generate import Clock, Inference, Ports
from tasks.reading import Limits, ModelLimits
from tasks.retry import RetryPolicy
from tasks.tensor_limits import TensorLimits
from worker.circuit import CircuitTerms
from worker.health import declarations
from worker.lease_keeper import LeaseTerms
from worker.ledger_terms import LedgerTerms, ModelTerms, PoolTerms
from worker.registration import Registration

_SUSPICIOUS_CRASHES: Final = 2
"""One crash is chance: a worker that is killed takes all it runs along. Whoever was there twice runs alone among such."""


def ports_of(settings: Settings, inference: Inference, clock: Clock, draw: Callable[[], float]) -> Ports:
    """Return what the generate task needs of this process."""
    retry = settings.retry
    return Ports(
        worker_id=settings.worker_id,
        inference=inference,
        clock=clock,
        draw=draw,
        limits={model: _limits(settings, model) for model in settings.supported_models},
        retry=RetryPolicy(retry.max_attempts, retry.base_seconds, retry.max_seconds),
        max_job_bytes=settings.max_job_bytes,
        # A job is given up only after it crashed alone, so one crash more than it takes to have it run alone.
        max_deliveries=max(settings.max_deliveries, _crashes_to_run_alone(settings) + 1),
    )


def ledger_terms(settings: Settings) -> LedgerTerms:
    """Return what the scripts about claims need to know."""
    return LedgerTerms(
        worker_id=settings.worker_id,
        result_ttl_seconds=settings.result_ttl_seconds,
        settled_ttl_seconds=settings.settled_ttl_seconds,
        max_job_bytes=settings.max_job_bytes,
        max_queue_ms=None if settings.max_queue_seconds is None else round(settings.max_queue_seconds * 1000),
        crashes_to_run_alone=_crashes_to_run_alone(settings),
        pool=pool_terms(settings),
        models={model: _model_terms(settings, model) for model in settings.supported_models},
    )


def pool_terms(settings: Settings) -> PoolTerms:
    """Return the pool's limits as this worker's configuration has them."""
    pool = settings.gpu_pool
    return PoolTerms(
        settings.pool_name,
        pool.max_concurrency,
        pool.requests_per_minute,
        pool.tokens_per_minute,
        dict(pool.kept_slots),
        pool.adaptive,
    )


def lease_terms(settings: Settings) -> LeaseTerms:
    """Return what the scripts about leases need to know."""
    return LeaseTerms(settings.worker_id, settings.lease_seconds, settings.settled_ttl_seconds)


def registration_of(settings: Settings, ports: Ports) -> Registration:
    """Return what the heartbeat writes of a worker: what it checks jobs by is what it tells gateways."""
    return Registration(settings.worker_id, declarations(settings, ports.limits), settings.heartbeat_seconds)


def circuit_terms(settings: Settings) -> CircuitTerms:
    """Return the figures by which circuits open and close."""
    circuit = settings.circuit
    return CircuitTerms(
        consecutive_failures=circuit.consecutive_failures,
        failure_rate=circuit.failure_rate,
        window=circuit.window,
        minimum_calls=circuit.minimum_calls,
        slow_call_ms=None if circuit.slow_call_seconds is None else circuit.slow_call_seconds * 1000,
        open_ms=circuit.open_seconds * 1000,
        max_open_ms=circuit.max_open_seconds * 1000,
        half_open_calls=circuit.half_open_calls,
    )


def _crashes_to_run_alone(settings: Settings) -> int:
    return max(1, min(_SUSPICIOUS_CRASHES, settings.max_deliveries - 1, settings.retry.max_attempts - 1))


def _model_terms(settings: Settings, model: str) -> ModelTerms:
    config = settings.runtime_for(model)
    return ModelTerms(
        circuit=f"{settings.endpoint_id}:{config.model_name}",
        # What is claimed is started while the lease is trusted, and ends at its timeout.
        slot_ms=round((settings.lease_seconds + config.timeout_seconds) * 1000),
        half_open_calls=settings.circuit.half_open_calls,
    )


def _limits(settings: Settings, model: str) -> Limits:
    config = settings.runtime_for(model)
    if config.kind == "tensors":
        rules = config.tensors
        return TensorLimits(
            rules.max_input_bytes, frozenset(rules.inference_parameters), frozenset(rules.shared_memory_regions)
        )
    return ModelLimits(
        max_prompt_bytes=config.max_prompt_bytes,
        max_tokens_limit=config.max_tokens_limit,
        parameters=config.parameters,
    )
