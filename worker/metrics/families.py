"""Every metric family a worker exports: name, type, labels, meaning. docs/metrics.md shows the same, and a test holds both together.

Names have their units in them. Labels are bounded by the configuration and the contract, whatever jobs contain: ``model`` is one
of `supported_models`, in WHY of those of the whole fleet, ``code`` one of the contract's, and nothing that a customer writes becomes
a label.
"""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Family:
    """One family; a histogram has the upper bounds of its buckets, in seconds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


OK: Final = "ok"
"""The ``code`` of a job that succeeded."""

UNSTARTED: Final = "none"
"""The ``code`` of a claim that was returned without a failure: the worker stopped, or had no use for it."""

JOBS: Final = Family(
    "speedinfer_jobs_total",
    "counter",
    "Jobs that this worker settled; the code is ok or the error's.",
    ("model", "code"),
)
TOKENS: Final = Family(
    "speedinfer_tokens_total",
    "counter",
    "Tokens in the settlements that this worker wrote: what is billed. Kind is prompt or completion.",
    ("model", "kind"),
)
WASTED_TOKENS: Final = Family(
    "speedinfer_wasted_tokens_total",
    "counter",
    "Tokens spent on attempts of which nothing was settled, where the runtime said how many.",
    ("model",),
)
RETRIES: Final = Family(
    "speedinfer_retries_total",
    "counter",
    "Attempts that failed with this code and after which the job waits for another.",
    ("model", "code"),
)
CLAIMS_RETURNED: Final = Family(
    "speedinfer_claims_returned_total",
    "counter",
    "Claimed jobs that went back to the front of their queue, uncharged; the code is the error's, or none.",
    ("model", "code"),
)
CLAIMS_LOST: Final = Family(
    "speedinfer_claims_lost_total",
    "counter",
    "Outcomes that came too late: this worker had been declared dead, and the job is another's.",
    ("model",),
)
DUPLICATES: Final = Family(
    "speedinfer_duplicates_dropped_total",
    "counter",
    "What was there a second time and changed nothing: a job (kind job) or a settlement (kind settlement).",
    ("model", "kind"),
)
DEAD_LETTERS: Final = Family(
    "speedinfer_dead_letters_total",
    "counter",
    "What was taken from the model's queue and cannot become a job, by the reason of the dead letter.",
    ("model", "reason"),
)
INFERENCE_ERRORS: Final = Family(
    "speedinfer_inference_errors_total",
    "counter",
    "Inferences that Triton failed or did not answer, by code, retried ones included.",
    ("model", "code"),
)
WORKERS_DECLARED_DEAD: Final = Family(
    "speedinfer_workers_declared_dead_total",
    "counter",
    "Other runs of workers that showed no life and that this worker ended.",
)
CLAIMS_REAPED: Final = Family(
    "speedinfer_claims_reaped_total",
    "counter",
    "Jobs of runs declared dead that this worker put back into their queues.",
)
REDIS_ERRORS: Final = Family(
    "speedinfer_redis_errors_total",
    "counter",
    "Calls to Redis without an answer (kind unavailable), or with a refusal (kind refused), on any of the worker's connections.",
    ("kind",),
)

QUEUE_SECONDS: Final = Family(
    "speedinfer_queue_seconds",
    "histogram",
    "From the job's enqueued_at to its last claim, of jobs settled that say when they were enqueued.",
    ("model",),
    (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
)
POOL_WAIT_SECONDS: Final = Family(
    "speedinfer_pool_wait_seconds",
    "histogram",
    "From the last claim to the start of the inference, of jobs settled that ran.",
    ("model",),
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
)
INFERENCE_SECONDS: Final = Family(
    "speedinfer_inference_seconds",
    "histogram",
    "One inference, answered or not, retried ones included.",
    ("model",),
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600),
)

WORKER_INFO: Final = Family(
    "speedinfer_worker_info",
    "gauge",
    "Always 1: who this worker is, which pool and endpoint it belongs to, and the digest of its configuration.",
    ("worker_id", "pool", "endpoint_id", "version", "config_digest"),
)
WORKER_STATE: Final = Family(
    "speedinfer_worker_state",
    "gauge",
    "1 for the state the worker is in, as its health key shows it, 0 for the others.",
    ("state",),
)
CONCURRENCY: Final = Family("speedinfer_concurrency_jobs", "gauge", "Jobs that this worker runs at once at the most.")
IN_FLIGHT: Final = Family(
    "speedinfer_in_flight_jobs", "gauge", "Claimed jobs in this worker's hands that have not ended.", ("model",)
)
MODEL_STATE: Final = Family(
    "speedinfer_model_state",
    "gauge",
    "1 for the state of the model with this worker, as the health key shows it, 0 for the others.",
    ("model", "state"),
)
CIRCUIT_STATE: Final = Family(
    "speedinfer_circuit_state",
    "gauge",
    "1 for the state of the model's circuit, 0 for the others.",
    ("model", "state"),
)
WAITS: Final = Family(
    "speedinfer_model_waits",
    "gauge",
    "1 for the limit that the last claim of the model met, 0 for the others; all 0 where it met none.",
    ("model", "limit"),
)

REDIS_UP: Final = Family(
    "speedinfer_redis_up",
    "gauge",
    "1 if Redis answered the last look at queues and pool, else 0; then the families below are not there.",
)
QUEUE_JOBS: Final = Family("speedinfer_queue_jobs", "gauge", "Jobs in the model's queue.", ("model",))
OLDEST_JOB_SECONDS: Final = Family(
    "speedinfer_oldest_job_age_seconds",
    "gauge",
    "Age of the job next in line, 0 where none is: since its enqueued_at, or at least since it was first seen at the head.",
    ("model",),
)
MODEL_PAUSED: Final = Family(
    "speedinfer_model_paused", "gauge", "1 if an operator paused the model, else 0.", ("model",)
)
WHY: Final = Family(
    "speedinfer_model_why",
    "gauge",
    "Jobs in the queue of a model whose jobs wait, by kind of reason; of all models, from the worker that looked last.",
    ("model", "kind"),
)
WAITING_JOBS: Final = Family("speedinfer_waiting_jobs", "gauge", "Jobs of all models that wait for a retry.")
SETTLEMENTS: Final = Family(
    "speedinfer_settlements_entries", "gauge", "Entries in the settlement queue that were not trimmed yet."
)
DEAD_LETTER_ENTRIES: Final = Family(
    "speedinfer_dead_letters_entries", "gauge", "Entries in the dead letters of the namespace."
)
POOL_SLOTS: Final = Family(
    "speedinfer_pool_slots_used", "gauge", "Inferences of all workers of the pool that hold a slot.", ("pool",)
)
POOL_SLOTS_LIMIT: Final = Family(
    "speedinfer_pool_slots_limit", "gauge", "Slots that the pool has: its max_concurrency.", ("pool",)
)
POOL_LEVEL: Final = Family(
    "speedinfer_pool_level_slots", "gauge", "Slots that an adaptive pool allows itself now.", ("pool",)
)
POOL_REQUESTS: Final = Family(
    "speedinfer_pool_requests_last_minute",
    "gauge",
    "Inferences that the pool granted in the last 60 seconds, where it limits them.",
    ("pool",),
)
POOL_REQUESTS_LIMIT: Final = Family(
    "speedinfer_pool_requests_per_minute_limit", "gauge", "The limit of that, where there is one.", ("pool",)
)
POOL_TOKENS: Final = Family(
    "speedinfer_pool_tokens_available",
    "gauge",
    "Tokens that the pool would grant at once, where it limits them; below 0 where more was used than was reserved.",
    ("pool",),
)
POOL_TOKENS_LIMIT: Final = Family(
    "speedinfer_pool_tokens_per_minute_limit", "gauge", "Tokens by which that fills up in a minute.", ("pool",)
)
TRITON_METRICS_UP: Final = Family(
    "speedinfer_triton_metrics_up",
    "gauge",
    "1 if Triton's own metrics are part of this scrape, else 0; only with pass_through_triton_metrics.",
    ("pool",),
)

FAMILIES: Final[tuple[Family, ...]] = tuple(it for it in tuple(globals().values()) if isinstance(it, Family))
"""All of them, in the order in which they stand here and are exported."""
