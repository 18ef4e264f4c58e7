"""What the benchmarks of pools make of what they measured. Nothing here says how fast anything is."""

import pytest

from benchmarks.isolation import Isolation
from benchmarks.pool import Row, most_in_a_minute


@pytest.mark.parametrize(
    ("alone", "beside", "is_kept"),
    [(2.0, 7.0, True), (2.0, 7.5, False), (100.0, 110.0, True), (100.0, 111.0, False), (10.0, 8.0, True)],
)
def test_isolation_is_kept_within_a_tenth_or_five_milliseconds(alone: float, beside: float, is_kept: bool) -> None:
    """Whichever is more; the report says which it is, beside both figures and their ratio."""
    found = Isolation(1, [alone] * 40, [beside] * 40, 31)
    assert found.is_kept is is_kept
    *_, figures = report = [*found.lines()]
    assert f"{beside / alone:.2f}" in figures
    assert ("NOT KEPT" in figures) is not is_kept
    assert [f"p95 {time:6.1f} ms" in line for time, line in zip((alone, beside), report[1:], strict=False)] == [
        True
    ] * 2


def test_a_slow_job_in_twenty_is_what_the_percentile_is_about() -> None:
    """Rarer ones do not count."""
    assert Isolation(1, [1.0] * 100, [1.0] * 96 + [50.0] * 4, 31).is_kept
    assert not Isolation(1, [1.0] * 100, [1.0] * 90 + [50.0] * 10, 31).is_kept


def test_a_minute_is_that_of_the_limit() -> None:
    """What is granted a whole minute after another is not in the same one."""
    assert most_in_a_minute([0.0, 1.0, 59_999.0]) == 3
    assert most_in_a_minute([0.0, 1.0, 60_000.0]) == 2
    assert most_in_a_minute([]) == 0


def test_a_row_says_which_part_of_the_ideal_it_is() -> None:
    """Beside both figures."""
    assert Row("what", 14.25, 15.0, "jobs/s").line.split() == ["what", "14.2", "15.0", "jobs/s", "95.0%"]
