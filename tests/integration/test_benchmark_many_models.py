"""The benchmark of many models: that it runs, and that it says what is not as it should be."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.many_models import ROWS, START_SECONDS, Found, cases, problems

ROOT = Path(__file__).parents[2]
FOUND = Found(1.0, 500, 4, 0.5, 4.0, 100.0)


def test_a_slow_start_and_one_that_asks_too_much_are_said() -> None:
    """And nothing else is."""
    assert problems([FOUND], 500) == []
    assert problems([FOUND, replace(FOUND, start_seconds=START_SECONDS + 1)], 500) == ["a start took 6.0 s"]
    assert problems([replace(FOUND, start_requests=1500)], 500) == ["a start asked Triton 1500 times"]


def test_the_cases_differ_in_names_and_models() -> None:
    """One name, many names of as many models, and many names of one."""
    assert [(len(case.behind), len(set(case.behind.values()))) for case in cases(20)] == [(1, 1), (20, 20), (20, 1)]


@pytest.mark.long
def test_it_measures_a_few_models() -> None:
    """In seconds; every figure is there, and a look at one name of many costs no request of its own."""
    command = [sys.executable, "-m", "benchmarks.many_models", "--models", "12", "--idle-seconds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout)
    assert all(figures.keys() == ROWS.keys() for figures in found.values())
    assert found["12 names, 1 model"]["start_requests"] <= 8
    assert found["12 names, 12 models"]["gone_seconds"] is not None
