"""What the notes of a worker say of a single job's steps."""

import pytest

from benchmarks.load import Span
from benchmarks.one_job import STEPS, NotPlain, steps_of

PLAIN = [name for name, _ in STEPS[:-1]]


def notes(began_ns: int, names: list[str]) -> list[tuple[int, str]]:
    """One note each microsecond."""
    return [(began_ns + 1000 * n, name) for n, name in enumerate(names, 1)]


def test_the_steps_lie_between_the_notes() -> None:
    """From the push to the first note, and from the last to the settlement; what is not asked for is left out."""
    noted = notes(0, [PLAIN[0], "other>", "other<", *PLAIN[1:]])

    assert steps_of([Span(0, 20_000)], noted) == [1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 12.0]


def test_the_median_is_that_of_the_jobs_that_went_the_plain_way() -> None:
    """A job that was claimed twice is none of them."""
    spans = [Span(start, start + 50_000) for start in (0, 100_000, 200_000)]
    noted = [*notes(0, PLAIN), *notes(100_000, [PLAIN[0], *PLAIN]), *notes(200_000, PLAIN)]

    assert steps_of(spans, noted)[:-1] == [1.0] * len(PLAIN)


def test_too_few_plain_jobs_are_no_figure() -> None:
    """Something else was under way."""
    with pytest.raises(NotPlain):
        steps_of([Span(0, 50_000), Span(100_000, 150_000), Span(200_000, 250_000)], notes(0, PLAIN))
