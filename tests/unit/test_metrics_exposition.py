"""The text that a scrape gets, and the page that describes it."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes import FakeClock
from tests.jobs import MODEL, delivery
from worker.explain import Kind
from worker.explained import Explained, Wait
from worker.metrics.counters import Counters
from worker.metrics.families import FAMILIES, Family
from worker.metrics.samples import Exposition, Sample, Spread
from worker.metrics.server import Page, Pages
from worker.metrics.service import Health, Sources
from worker.metrics.standing import seen_samples, standing_samples, why_samples
from worker.metrics.watch import QueueSeen, Seen, Watch
from worker.pool_use import PoolUse

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
HEALTH = {
    "state": "degraded",
    "concurrency": "8",
    "pool": "gpu",
    "endpoint_id": "triton:8000",
    "version": "1.2.3",
    "config_digest": "abc",
    "models": json.dumps(
        {
            MODEL: {"state": "ready", "circuit": "half_open", "in_flight": 3, "waits": "tokens"},
            "acme/model-2": {"state": "paused", "circuit": "closed", "in_flight": 0, "waits": None},
        }
    ),
}
POOL = PoolUse(
    "gpu", slots=3, max_concurrency=8, level=4.5, requests=7, requests_limit=60, tokens=-20.0, tokens_limit=600
)
SEEN = Seen({MODEL: QueueSeen(5, 1500, is_paused=True)}, POOL, waiting=2, settlements=9, dead_letters=1)
WAITS = [Wait(MODEL, Kind.SLOTS, 3), Wait("acme/gone", Kind.NO_WORKER, 5)]


def scraped(samples: Iterable[Sample]) -> dict[str, float]:
    """Return every series of our families as a server reads it, by ``name{label="value"}`` in the order of labels' names."""
    text = Exposition(lambda: samples, lambda: None).text().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return {series: value for series, value in found.items() if series.startswith("speedinfer_")}


def test_the_figures_of_the_process_are_part_of_each_scrape() -> None:
    """Memory, CPU and open files, under the names that every dashboard of processes knows."""
    text = Exposition(list, lambda: None).text().decode()
    assert re.search(r"^process_cpu_seconds_total [0-9.e+-]+$", text, re.MULTILINE)
    assert "speedinfer_" not in text


def test_others_may_run_between_two_families() -> None:
    """A scrape of thousands of series must not hold up jobs until its end."""
    pauses: list[None] = []
    Exposition(Counters([MODEL]).samples, lambda: pauses.append(None)).text()
    assert len(pauses) >= 10


def test_a_histogram_is_cumulative() -> None:
    """Each bucket counts what is at most its bound, the last one everything."""
    (family,) = [family for family in FAMILIES if family.name == "speedinfer_pool_wait_seconds"]
    counts = [0] * (len(family.bounds) + 1)
    counts[0], counts[3], counts[-1] = 2, 1, 4
    found = scraped([Sample(family, (MODEL,), Spread(tuple(counts), 130.5))])
    assert found[f'speedinfer_pool_wait_seconds_bucket{{le="0.001",model="{MODEL}"}}'] == 2
    assert found[f'speedinfer_pool_wait_seconds_bucket{{le="0.005",model="{MODEL}"}}'] == 2
    assert found[f'speedinfer_pool_wait_seconds_bucket{{le="0.01",model="{MODEL}"}}'] == 3
    assert found[f'speedinfer_pool_wait_seconds_bucket{{le="30",model="{MODEL}"}}'] == 3
    assert found[f'speedinfer_pool_wait_seconds_bucket{{le="+Inf",model="{MODEL}"}}'] == 7
    assert found[f'speedinfer_pool_wait_seconds_count{{model="{MODEL}"}}'] == 7
    assert found[f'speedinfer_pool_wait_seconds_sum{{model="{MODEL}"}}'] == 130.5


def test_how_a_worker_stands_is_what_its_health_key_says() -> None:
    """One state of several is 1, the others 0, so that none of them is forgotten when it ends."""
    found = scraped(standing_samples("triton-01", HEALTH))
    assert {series: value for series, value in found.items() if value} == {
        'speedinfer_worker_info{config_digest="abc",endpoint_id="triton:8000",pool="gpu",version="1.2.3",worker_id="triton-01"}': 1,
        'speedinfer_worker_state{state="degraded"}': 1,
        "speedinfer_concurrency_jobs": 8,
        f'speedinfer_in_flight_jobs{{model="{MODEL}"}}': 3,
        f'speedinfer_model_state{{model="{MODEL}",state="ready"}}': 1,
        'speedinfer_model_state{model="acme/model-2",state="paused"}': 1,
        f'speedinfer_circuit_state{{model="{MODEL}",state="half_open"}}': 1,
        'speedinfer_circuit_state{model="acme/model-2",state="closed"}': 1,
        f'speedinfer_model_waits{{limit="tokens",model="{MODEL}"}}': 1,
    }
    assert found['speedinfer_worker_state{state="ready"}'] == 0
    assert found['speedinfer_model_waits{limit="slots",model="acme/model-2"}'] == 0


def test_a_worker_that_has_not_begun_is_starting() -> None:
    """Nothing else is known of it yet."""
    found = scraped(standing_samples("triton-01", {}))
    assert {series for series, value in found.items() if value} == {'speedinfer_worker_state{state="starting"}'}


def test_what_was_seen_in_redis_is_shown() -> None:
    """Ages in seconds."""
    assert scraped(seen_samples("gpu", SEEN)) == {
        "speedinfer_redis_up": 1,
        f'speedinfer_queue_jobs{{model="{MODEL}"}}': 5,
        f'speedinfer_oldest_job_age_seconds{{model="{MODEL}"}}': 1.5,
        f'speedinfer_model_paused{{model="{MODEL}"}}': 1,
        "speedinfer_waiting_jobs": 2,
        "speedinfer_settlements_entries": 9,
        "speedinfer_dead_letters_entries": 1,
        'speedinfer_pool_slots_used{pool="gpu"}': 3,
        'speedinfer_pool_slots_limit{pool="gpu"}': 8,
        'speedinfer_pool_level_slots{pool="gpu"}': 4.5,
        'speedinfer_pool_requests_last_minute{pool="gpu"}': 7,
        'speedinfer_pool_requests_per_minute_limit{pool="gpu"}': 60,
        'speedinfer_pool_tokens_available{pool="gpu"}': -20,
        'speedinfer_pool_tokens_per_minute_limit{pool="gpu"}': 600,
    }


@pytest.mark.parametrize(("seen", "shown"), [(SEEN, 2), (None, 0)], ids=["answers", "away"])
def test_why_jobs_wait_is_shown_while_redis_answers(seen: Seen | None, shown: int) -> None:
    """What was found before an outage may be over, as with all that is seen in Redis."""
    explained, watch = Explained(FakeClock()), cast("Watch", SimpleNamespace(last=seen))
    explained.found(WAITS)
    sources = Sources("w-1", "gpu", Counters([]), watch, None, dict, explained)
    names = [sample.family.name for sample in sources.samples(has_triton=False)]
    assert names.count("speedinfer_model_why") == shown


def test_jobs_that_wait_are_shown_by_why() -> None:
    """Of models that this worker does not serve, too."""
    assert scraped(why_samples(WAITS)) == {
        f'speedinfer_model_why{{kind="slots",model="{MODEL}"}}': 3,
        'speedinfer_model_why{kind="no_worker",model="acme/gone"}': 5,
    }


def test_limits_that_are_off_are_not_shown() -> None:
    """Neither is the use of what is not limited."""
    seen = Seen({}, PoolUse("gpu", slots=1, max_concurrency=8, requests=7), waiting=0, settlements=0, dead_letters=0)
    names = {series.partition("{")[0] for series in scraped(seen_samples("gpu", seen))}
    assert {name for name in names if "pool" in name} == {"speedinfer_pool_slots_used", "speedinfer_pool_slots_limit"}


def test_nothing_old_is_shown_while_redis_is_away() -> None:
    """That it is away is."""
    assert scraped(seen_samples("gpu", None)) == {"speedinfer_redis_up": 0}


def test_every_family_is_exported_with_its_labels() -> None:
    """The table of families is what comes out, no more and no less."""
    counters = Counters([MODEL])
    (triton,) = [family for family in FAMILIES if family.name == "speedinfer_triton_metrics_up"]
    samples = [
        *counters.samples(),
        *standing_samples("triton-01", HEALTH),
        *seen_samples("gpu", SEEN),
        *why_samples(WAITS),
        Sample(triton, ("gpu",), 1),
    ]
    assert {sample.family for sample in samples} == set(FAMILIES)
    assert all(len(sample.labels) == len(sample.family.labels) for sample in samples)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_and_units_are_as_prometheus_wants_them(family: Family) -> None:
    """A counter ends in _total; a duration is in seconds; buckets rise; no label is one that targets have."""
    assert re.fullmatch(r"speedinfer_[a-z_]+", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert (family.kind == "histogram") == bool(family.bounds)
    assert list(family.bounds) == sorted(set(family.bounds))
    assert not {"job", "instance", "le", "namespace", "pod"} & {*family.labels}
    assert family.meaning.endswith(".")


def test_the_page_describes_every_family() -> None:
    """Name, type, labels and meaning, in the table's order, as the code has them."""
    rows = re.findall(r"^\| `(speedinfer_[a-z_]+)` \| (\w+) \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert [row[:4] for row in rows] == [
        (family.name, family.kind, ", ".join(f"`{label}`" for label in family.labels), family.meaning)
        for family in FAMILIES
    ]


def pages(health: Health = dict) -> Pages:
    """The endpoint's pages without a worker."""
    state = health().get("state", "starting")
    return Pages(lambda: b"metrics\n", lambda: (state in {"ready", "degraded"}, state))


@pytest.mark.parametrize(
    ("state", "status"),
    [("ready", 200), ("degraded", 200), ("starting", 503), ("unavailable", 503), ("draining", 503)],
)
def test_readyz_says_whether_jobs_are_taken(state: str, status: int) -> None:
    """Of one model at least; the state is the answer's text. A worker is alive whatever its state is."""
    shown = pages(lambda: {"state": state})
    answer = shown.page("GET", "/readyz")
    assert (int(answer.status.partition(" ")[0]), answer.body) == (status, f"{state}\n".encode())
    assert shown.page("GET", "/healthz") == Page("200 OK", b"alive\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 405),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("DELETE", "/x", 404),
    ],
)
def test_nothing_else_is_answered(method: str, path: str, status: int) -> None:
    """There are three pages, to be read."""
    assert int(pages().page(method, path).status.partition(" ")[0]) == status


def test_a_delivery_of_no_model_counts_nothing() -> None:
    """Its name would be a label without a bound."""
    counters = Counters([])
    counters.committed(delivery(), None, 1)
    assert all(sample.value == 0 for sample in counters.samples())
