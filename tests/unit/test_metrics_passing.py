"""Triton's metrics on their way through a worker: what is passed, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from worker.metrics.passing import NoMetrics, labelled

TRITON = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="text_generation",version="1"} 3
nv_inference_request_success{model="a\\"b\\\\c\\nd",version="1",} 4 1796032800000
# HELP nv_cpu_utilization
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.25
nv_gpu_power_usage{gpu_uuid="GPU-1"} 1.5e+02
# a comment of no family
vllm:num_requests_running{model="m",pool="theirs"} NaN
go_goroutines 12
"""


def test_each_series_gets_the_label_and_keeps_what_it_has() -> None:
    """Types and help stay; a label that has our name is kept under another; what is no family of Triton's goes."""
    assert labelled(TRITON, "pool", 'a"b') == (
        "# HELP nv_inference_request_success Number of successful inference requests, all batch sizes\n"
        "# TYPE nv_inference_request_success counter\n"
        'nv_inference_request_success{pool="a\\"b",model="text_generation",version="1"} 3\n'
        'nv_inference_request_success{pool="a\\"b",model="a\\"b\\\\c\\nd",version="1"} 4\n'
        "# HELP nv_cpu_utilization\n"
        "# TYPE nv_cpu_utilization gauge\n"
        'nv_cpu_utilization{pool="a\\"b"} 0.25\n'
        'nv_gpu_power_usage{pool="a\\"b",gpu_uuid="GPU-1"} 1.5e+02\n'
        'vllm:num_requests_running{pool="a\\"b",model="m",exported_pool="theirs"} NaN\n'
    )


@pytest.mark.parametrize(
    "line",
    [
        "<html>",
        "nv_a",
        "nv_a one",
        'nv_a{model="x} 1',
        "nv_a{model=x} 1",
        'nv_a{model="x" version="1"} 1',
        "nv_a{,} 1",
        "nv_a 1 2 3",
        "nv-a 1",
        "# TYPE nv_a",
        "# HELP",
        'nv_a{model="\\x"} 1',
    ],
)
def test_a_line_that_is_no_metric_stops_all_of_it(line: str) -> None:
    """A server that scrapes us would throw the worker's own metrics away with it."""
    with pytest.raises(NoMetrics):
        labelled(f"{TRITON}{line}\n", "pool", "gpu")


@given(st.text())
def test_whatever_comes_is_passed_as_metrics_or_not_at_all(text: str) -> None:
    """What is passed can be read, and nothing but the families of Triton is in it."""
    try:
        passed = labelled(text, "pool", "gpu")
    except NoMetrics:
        return
    for family in text_string_to_metric_families(passed):
        assert family.name.startswith(("nv_", "vllm:"))


# Names that begin with two underscores are Prometheus' own.
_NAMES = st.from_regex(r"\A(?!__)[a-z_][a-z0-9_]{0,8}\Z").filter(lambda name: name != "pool")
_VALUES = st.text(max_size=10).map(lambda text: text.replace("\r", ""))


@given(st.dictionaries(_NAMES, _VALUES, max_size=4), _VALUES, st.floats(allow_nan=False))
def test_what_is_read_of_it_is_what_was_there(labels: dict[str, str], pool: str, value: float) -> None:
    """Whatever is in the labels' values."""

    def written(text: str) -> str:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

    line = "nv_a{" + ",".join(f'{name}="{written(text)}"' for name, text in labels.items()) + f"}} {value!r}"
    ((sample,),) = [
        family.samples for family in text_string_to_metric_families(labelled(line.replace("inf", "Inf"), "pool", pool))
    ]
    assert sample.labels == {"pool": pool, **labels}
    assert sample.value == value
