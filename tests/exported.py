"""What a worker's scrape has: every series by its name, with its labels and the values that these may have."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from worker.explain import Kind, Reason
from worker.explained import Wait
from worker.metrics.counters import Counters
from worker.metrics.families import FAMILIES, Family
from worker.metrics.samples import Sample
from worker.metrics.standing import standing_samples, why_samples

_FREE: Final = {"model", "pool", "worker_id", "endpoint_id", "version", "config_digest"}
"""Labels whose values are the configuration's."""

TRITON_ON_CPU: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            *("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"),
            *(
                "nv_inference_request_duration_us",
                "nv_inference_queue_duration_us",
                "nv_inference_compute_infer_duration_us",
            ),
            "nv_inference_pending_request_count",
        ),
        frozenset({"pool", "model", "version"}),
    ),
    "nv_inference_request_failure": frozenset({"pool", "model", "version", "reason"}),
}
"""Families of Triton's that every one of them shows; a test looks at a real one."""

TRITON_ON_GPU: Final = dict.fromkeys(
    ("nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"), frozenset({"pool", "gpu_uuid"})
)
"""Those that only a Triton with a GPU shows, by Triton's own documentation."""

PROCESS: Final = ("process_resident_memory_bytes", "process_cpu_seconds_total")


def series_names(family: Family) -> tuple[str, ...]:
    """Return the names of a family's series."""
    suffixes = ("_bucket", "_count", "_sum") if family.kind == "histogram" else ("",)
    return tuple(family.name + suffix for suffix in suffixes)


def exported() -> dict[str, dict[str, frozenset[str] | None]]:
    """Return all of it, from what the code gives for a worker of one model."""
    health = {"state": "ready", "models": json.dumps({"m": {}})}
    # A worker cannot say that Redis takes no writes: its look begins with one.
    waits = [Wait("m", kind, 1) for kind in Kind if Reason(kind).waits and kind is not Kind.NO_WRITES]
    values = _values([*Counters(["m"]).samples(), *standing_samples("w", health), *why_samples(waits)])
    found: dict[str, dict[str, frozenset[str] | None]] = {name: {} for name in PROCESS}
    for family in FAMILIES:
        for name in series_names(family):
            found[name] = {label: None if label in _FREE else values[family, label] for label in family.labels}
            if name.endswith("_bucket"):
                found[name]["le"] = None
    for name, labels in {**TRITON_ON_CPU, **TRITON_ON_GPU}.items():
        found[name] = dict.fromkeys(labels)
    return found


def _values(samples: Iterable[Sample]) -> Mapping[Any, frozenset[str]]:
    values: dict[tuple[Family, str], frozenset[str]] = {}
    for sample in samples:
        for label, value in zip(sample.family.labels, sample.labels, strict=True):
            values[sample.family, label] = values.get((sample.family, label), frozenset()) | {value}
    return values
