"""What Prometheus would see of a worker process."""

import urllib.error
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.fleet import WorkerProcess

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def page(worker: WorkerProcess, path: str) -> tuple[int, str]:
    """Return status and text of one of the worker's pages, at the address that its log tells."""
    address = worker.wait_for_event("metrics.were_served")["address"]
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(worker: WorkerProcess) -> Series:
    """Return every series by its name and labels. A counter's name is as it is exported."""
    status, text = page(worker, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float | None:
    """Return the sum of the series of this name that have these labels, None where there is none."""
    wanted = set(labels.items())
    found = [number for (each, has), number in series.items() if each == name and wanted <= has]
    return sum(found) if found else None
