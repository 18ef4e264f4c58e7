"""The benchmark's own arithmetic, and that a page says what was measured. Nothing here says how fast anything is."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.figures import AddedTime, Idle, Rounds, Spread, Window
from benchmarks.machine import Machine
from benchmarks.plan import FULL, SECTIONS, UnknownSection, chosen, turns
from benchmarks.report import Findings, page, sheets
from benchmarks.sides import DIRECT, OURS, PREFORK, RIVALS, STOCK
from benchmarks.stage import turns_of
from benchmarks.targets import FAR, NEAR, Target, of_load

ROOT = Path(__file__).parents[2]
MACHINE = Machine("2026-11-30 10:00 UTC", 2, "a processor", 8.0, "Linux", 0.4, {"Python": "3.11.7"})


def window(jobs: int, seconds: float = 2.0, *, cpu: float = 1.0, commands: int | None = None) -> Window:
    """A window with so many jobs."""
    return Window(jobs, seconds, cpu, 100_000_000, commands, commands, commands)


def rounds(ours: list[Window], direct: list[Window]) -> Rounds:
    """Rounds of all sides, stock Celery at a fifth of ours."""
    stock = tuple(window(one.jobs // 5) for one in ours)
    return Rounds({OURS: tuple(ours), DIRECT: tuple(direct), **dict.fromkeys(STOCK.values(), stock)})


def test_a_ratio_is_taken_within_a_round() -> None:
    """A machine that is slow for a whole round does not move the ratio."""
    measured = rounds([window(900), window(90)], [window(1000), window(100)])
    assert measured.ratio(OURS, DIRECT, figures.jobs_per_second) == Spread(0.9, 0.9, 0.9)


def test_a_spread_is_the_median_between_the_extremes() -> None:
    """One bad round moves the spread and not the figure."""
    assert Spread.of([5.0, 1.0, 4.0]) == Spread(4.0, 1.0, 5.0)


@pytest.mark.parametrize(
    ("figure", "found"),
    [
        (figures.jobs_per_second, 50.0),
        (figures.cpu_microseconds, 5_000.0),
        (figures.redis_commands, 3.0),
        (figures.redis_round_trips, 3.0),
        (figures.redis_kilobytes, 0.003),
        (figures.redis_cpu_microseconds, None),
        (figures.megabytes, 100.0),
    ],
)
def test_a_window_gives_figures_a_job(figure: Callable[[Window], float | None], found: float | None) -> None:
    """What was used is divided by the jobs done, and what a side does not use is unknown, not zero."""
    assert figure(window(100, cpu=0.5, commands=300)) == found


def test_a_side_that_did_nothing_has_no_figures_a_job() -> None:
    """A stalled side shows no jobs a second, and no division by them."""
    assert figures.jobs_per_second(window(0)) == 0
    assert figures.cpu_microseconds(window(0)) is None
    assert rounds([window(10)], [window(0)]).ratio(OURS, DIRECT, figures.jobs_per_second) is None


def test_added_time_is_what_the_inference_does_not_take() -> None:
    """The median of the inference alone is taken off both percentiles."""
    added = AddedTime.of([float(ms) for ms in range(3, 104)], [1.0, 2.0, 9.0])
    assert (added.p50, added.p99, added.inference, added.jobs) == (51.0, 100.0, 2.0, 101)


def test_each_side_comes_first_in_its_turn() -> None:
    """What the first of a round has to bear (cold caches, the backlog of others) is borne by all."""
    orders = [turns(("a", "b", "c"), number) for number in range(3)]
    assert {order[0] for order in orders} == {"a", "b", "c"}
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_sections_are_chosen_by_name() -> None:
    """None named means all; an unknown one is refused with the known ones."""
    assert chosen(()) == SECTIONS
    assert [section.name for section in chosen(["batch-8"])] == ["batch-8"]
    with pytest.raises(UnknownSection, match="batch-8"):
        chosen(["fast"])


def test_every_side_takes_part_in_the_plain_workloads() -> None:
    """And one that cannot be had is left out."""
    makers = (DIRECT, OURS, *STOCK.values(), PREFORK, *RIVALS)
    (section,) = chosen(["empty"])
    assert {turn.side for turn in turns_of(section, makers)} == set(makers)
    assert "rq" not in {turn.side for turn in turns_of(section, makers[:-5])}


def test_a_side_takes_part_once_for_each_distance_of_redis() -> None:
    """Under a name that says how far."""
    (section,) = chosen(["empty-away"])
    names = [turn.name for turn in turns_of(section, (DIRECT, OURS))]
    assert names == [NEAR, f"{OURS}, 0.5 ms", FAR]


def test_jobs_that_finish_in_waves_are_measured_for_half_a_minute_at_least() -> None:
    """Of those sides that a target is about."""
    for name in ("half-second", "half-second-away"):
        (section,) = chosen([name])
        assert FULL.window_seconds(section, OURS) >= 30


@pytest.mark.parametrize(("found", "bound", "at", "met"), [(0.9, 0.9, "least", True), (1.6, 1.5, "most", False)])
def test_a_target_is_met_or_missed_by_its_median(found: float, bound: float, at: str, met: bool) -> None:
    """No target is rounded to be met."""
    target = Target("a figure", Spread(found, 0.0, 2.0), bound, "least" if at == "least" else "most")
    assert target.is_met is met


def test_the_empty_model_is_compared_with_the_better_stock_celery() -> None:
    """Of two prefetch multipliers, the one that does worse against ours is not the one that is quoted."""
    measured = Rounds(
        {OURS: (window(400),), DIRECT: (window(800),), STOCK[1]: (window(100),), STOCK[4]: (window(200),)}
    )
    (against,) = [target for target in of_load({"empty": measured}) if "stock" in target.words]
    assert against.found.median == 2.0


def test_redis_far_away_is_compared_with_redis_near_by() -> None:
    """Within a round."""
    measured = Rounds({NEAR: (window(100), window(10)), FAR: (window(80), window(8))})
    (against,) = of_load({"empty-away": measured})
    assert (against.found.median, against.is_met) == (0.8, True)


def test_the_page_holds_every_table_that_is_shown() -> None:
    """What is printed is what is written, with the machine it was measured on."""
    added = {"everysec": {OURS: AddedTime(1.0, 2.0, 0.5, 200)}}
    idle = [Idle(50, 0.5, 4.0, 2.0, 90_000_000)]
    loads = {"empty": rounds([window(900), window(800)], [window(1000), window(1000)])}
    found = Findings(MACHINE, quick=False, loads=loads, added=added, idle=idle)
    text = page(found)
    assert [sheet.title in text for sheet in sheets(found)] == [True] * 4
    assert "a processor, 2 cores" in text
    assert "fsync everysec" in text
    assert "quick run" not in text


def test_a_quick_run_says_so() -> None:
    """Figures of windows that are too short cannot be mistaken for others."""
    assert "quick run" in page(Findings(MACHINE, quick=True))


def test_a_run_on_a_busy_machine_says_so() -> None:
    """Figures that others' work has touched cannot be mistaken for clean ones."""
    assert "other work" in page(Findings(replace(MACHINE, load_before=0.6), quick=False))
    assert "other work" not in page(Findings(MACHINE, quick=False))


def test_a_run_that_left_a_side_out_says_so() -> None:
    """A side that is not there was not beaten."""
    assert "rq, arq" in page(Findings(MACHINE, quick=False, left_out=("rq", "arq")))


def test_a_run_without_figures_has_no_tables() -> None:
    """What was not measured is left out, not shown as nothing."""
    assert sheets(Findings(MACHINE, quick=False)) == []


def test_the_command_refuses_what_it_does_not_know() -> None:
    """Wrong usage ends before anything is started, with the names there are."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--only", "fast"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "batch-64" in ended.stderr
