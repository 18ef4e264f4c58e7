"""Samples of the families, and a scrape's text made of them: the one importer of prometheus_client."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from worker.metrics.families import FAMILIES, Family

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The classic text format: in OpenMetrics a counter's name ends in _total, and those of Triton do not."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What a histogram holds: a count for each bucket and one for what is above the last, and the sum in seconds."""

    counts: tuple[int, ...]
    total_seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of a family now, with its labels' values in the family's order."""

    family: Family
    labels: tuple[str, ...]
    value: float | Spread


class Exposition:
    """Writes samples as Prometheus reads them, together with the figures of this process (``process_…``)."""

    def __init__(self, samples: Callable[[], Iterable[Sample]], pause: Callable[[], None]) -> None:
        """Take where the samples come from; ``pause`` lets others run between two families."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(samples, pause))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return a scrape's text, of CONTENT_TYPE."""
        return generate_latest(self._registry)


class _Families(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]], pause: Callable[[], None]) -> None:
        self._samples = samples
        self._pause = pause

    def collect(self) -> Iterator[Metric]:
        """Give each family that has samples, in the table's order."""
        found: dict[Family, list[Sample]] = defaultdict(list)
        for sample in self._samples():
            found[sample.family].append(sample)
        for family in FAMILIES:
            if family in found:
                yield _metric(family, found[family])
                # Thousands of series take a while; a job must not wait for all of them.
                self._pause()


def _metric(family: Family, samples: Iterable[Sample]) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
        for sample in samples:
            if isinstance(sample.value, Spread):
                histogram.add_metric(
                    sample.labels, _cumulative(family, sample.value.counts), sample.value.total_seconds
                )
        return histogram
    metric: CounterMetricFamily | GaugeMetricFamily
    if family.kind == "counter":
        metric = CounterMetricFamily(family.name, family.meaning, labels=family.labels)
    else:
        metric = GaugeMetricFamily(family.name, family.meaning, labels=family.labels)
    for sample in samples:
        if not isinstance(sample.value, Spread):
            metric.add_metric(sample.labels, sample.value)
    return metric


def _cumulative(family: Family, counts: Iterable[int]) -> list[tuple[str, float]]:
    bounds = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
    total, buckets = 0, []
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
