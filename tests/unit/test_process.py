"""This process: how it collects its garbage."""

import gc
from collections.abc import Iterator

import pytest

from worker.process import collect_garbage_seldom


@pytest.fixture
def _collected_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("_collected_as_before")
def test_what_the_start_made_is_looked_through_no_more() -> None:
    """And cycles that jobs leave are still found, if later."""
    gc.collect()
    started_with = len(gc.get_objects())
    collect_garbage_seldom()
    assert len(gc.get_objects()) < started_with / 10
    assert gc.isenabled()
    assert 1_000 < gc.get_threshold()[0] < 100_000
