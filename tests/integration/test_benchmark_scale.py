"""What the benchmark of growing makes of its figures."""

import pytest

from benchmarks.figures import Window
from benchmarks.plan import ROOT
from benchmarks.scale.memory import Checked, Kept
from benchmarks.scale.page import NoPlace, filled
from benchmarks.scale.parts import Measured
from benchmarks.scale.report import Grown, sheets, targets
from benchmarks.scale.soak import Look, Soak


def window(jobs: int, *, cpu: float = 0.5, rss: int = 100_000_000) -> Window:
    """A window of a second, in which each job took 100 µs of Redis and a kilobyte of its network."""
    return Window(jobs, 1.0, cpu, rss, 10 * jobs, jobs, 1000 * jobs, jobs * 1e-4)


def step(number: int, *windows: Window, idle_redis: float | None = None) -> Measured:
    """A step of growing; of idle workers only what they ask of Redis matters."""
    idle = None if idle_redis is None else 0.1
    return Measured(number, windows, idle, idle, idle_redis)


def cells(found: Grown, name: str) -> list[str]:
    """The last row of a table."""
    return list(sheets(found)[name].rows[-1])


def test_the_deepest_queue_is_compared_with_the_one_before() -> None:
    """By its rate, and by the worker's memory."""
    found = Grown(depths=[step(1, window(9)), step(1_000, window(100)), step(1_000_000, window(96, rss=103_000_000))])
    rate, memory = targets(found)
    assert (rate.found.median, rate.is_met) == (0.96, True)
    assert (memory.found.median, memory.is_met) == (1.03, True)


def test_two_workers_are_compared_with_one_without_inferences() -> None:
    """Where inferences take time, two do twice as much anyhow."""
    found = Grown(
        workers={
            0.0: [step(1, window(100), idle_redis=0.1), step(2, window(170, cpu=0.85), idle_redis=0.2)],
            500.0: [step(1, window(10), idle_redis=0.1), step(2, window(20), idle_redis=0.2)],
        }
    )
    rate, cpu = targets(found)
    assert (rate.found.median, rate.is_met) == (1.7, True)
    assert (cpu.found.median, cpu.is_met) == (1.0, True)


def test_the_ceiling_of_one_redis_is_its_thread_less_what_idle_workers_ask() -> None:
    """4 workers that take 0.4 % of it are 10 % for 100; the rest is for jobs of 100 µs and a kilobyte each."""
    found = Grown(workers={0.0: [step(4, window(1_000), idle_redis=0.4)]})
    _, per_job, asked, jobs, gigabits = cells(found, "ceiling")
    assert (per_job, asked, jobs, gigabits) == ("100", "10.0", "9,000", "0.072")


def test_the_memory_of_a_rate_is_what_each_key_takes_for_as_long_as_it_lives() -> None:
    """Results and markers until they expire, entries until somebody has read and trimmed them."""
    kept = Kept(json_bytes=800, result=1_000, marker=300, entry=900)
    assert kept.megabytes(100, 86_400, 604_800, 60) == pytest.approx(100 * (86.4 + 181.44 + 0.054))
    assert cells(Grown(memory=[Checked(10, kept, 22_000)]), "memory")[-1] == "1.00"


def test_a_soak_compares_the_end_with_what_came_after_the_start() -> None:
    """The first fifth is warming up."""
    looks = tuple(
        Look(float(n), n, size, 0, 0) for n, size in enumerate([50, 80, 100, 100, 101, 102, 103, 104, 105, 106])
    )
    soak = Soak(500.0, 60, looks)
    assert soak.growth == 1.06
    (grown,) = targets(Grown(soak=soak))
    assert not grown.is_met


def test_what_was_not_measured_is_left_out() -> None:
    """No table of nothing."""
    assert sheets(Grown()) == {}


def test_tables_are_put_where_the_page_has_a_place_for_them() -> None:
    """What is around them stays, and so do the tables that were not measured."""
    page = "# Words\n<!-- a -->\nold a\n<!-- /a -->\nmore\n<!-- b -->\nold b\n<!-- /b -->\n"
    new = filled(page, {"a": "| new \\1 |"})
    assert new == "# Words\n<!-- a -->\n\n| new \\1 |\n\n<!-- /a -->\nmore\n<!-- b -->\nold b\n<!-- /b -->\n"
    assert filled(new, {"a": "| new \\1 |"}) == new
    with pytest.raises(NoPlace, match="<!-- c -->"):
        filled(page, {"c": "| |"})


def test_the_page_has_a_place_for_every_table() -> None:
    """Else a run of half an hour would end in an error."""
    windows = {ms: [step(1, window(10), idle_redis=0.1), step(2, window(20), idle_redis=0.1)] for ms in (0.0, 500.0)}
    look = Look(1.0, 1, 1, 1, 1)
    grown = Grown(windows[0.0], windows[0.0], windows, [Checked(1, Kept(1, 1, 1, 1), 3)], Soak(1.0, 1, (look, look)))
    page = (ROOT / "docs" / "scaling.md").read_text()
    tables = {"origin": "here", **{name: sheet.title for name, sheet in sheets(grown).items()}}
    assert len(tables) == 9
    assert filled(page, tables).count("<!-- ") == 18
