"""Whose CPU time a stack is, and how the counts are told."""

import pytest

from benchmarks.cpu import layers
from benchmarks.cpu_layers import HUB, LAYERS, layer_of
from benchmarks.plan import ROOT

SITE = "/venv/lib/python3.11/site-packages"
STD = "/usr/lib/python3.11"


@pytest.mark.parametrize(
    ("stack", "word"),
    [
        (
            [
                f"{STD}/socket.py",
                f"{SITE}/gevent/_socketcommon.py",
                f"{SITE}/redis/connection.py",
                "/app/worker/ledger.py",
            ],
            "Redis",
        ),
        ([f"{SITE}/gevent/_socketcommon.py", "/app/worker/triton/http.py", "/app/worker/runtime.py"], "Triton"),
        ([f"{STD}/json/encoder.py", "/app/tasks/fingerprint.py", "/app/worker/runtime.py"], "jobs"),
        (["/app/worker/lookout.py", "/app/worker/intake.py"], "claims"),
        ([f"{SITE}/gevent/hub.py"], HUB),
        ([], HUB),
    ],
)
def test_the_innermost_frame_of_a_layer_counts(stack: list[str], word: str) -> None:
    """What lies beneath it is done for it."""
    assert layer_of(iter(stack)).startswith(word)


def test_every_layer_can_be_found() -> None:
    """Each of ours names a module that is there."""
    own = [part for part, _ in LAYERS if part.startswith("/worker/")]
    assert all(list(ROOT.glob(f"{part.lstrip('/').rstrip('/')}*")) for part in own)


def test_the_shares_are_those_of_what_a_job_takes() -> None:
    """The largest first; the microseconds are the job's."""
    sheet = layers({"small": 1, "large": 3}, 2000.0, 300.0)
    assert sheet.rows == [("large", "75 %", "225"), ("small", "25 %", "75")]
