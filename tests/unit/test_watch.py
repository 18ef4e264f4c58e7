"""The watch over what the runtime has: which models it has looked at, and that it goes on."""

from structlog.testing import capture_logs

from worker.watch import Watch


def test_what_may_have_changed_is_looked_at_where_jobs_of_it_are_taken() -> None:
    """What is shut is looked at anyhow."""
    looked: list[list[str]] = []
    watch = Watch(
        lambda: frozenset("abc"), {"a", "c"}.__contains__, lambda models: looked.append([*models]), lambda: 0.5
    )
    watch.watch()
    assert looked == [["a", "c"]]


def test_a_fault_of_ours_does_not_end_it() -> None:
    """It is logged, and nothing is looked at."""

    def fail() -> frozenset[str]:
        raise ZeroDivisionError

    looked: list[list[str]] = []
    watch = Watch(fail, lambda _: True, lambda models: looked.append([*models]), lambda: 0.5)
    with capture_logs() as logs:
        watch.watch()
    assert ([line["event"] for line in logs], looked) == (["models.watch_failed"], [])
