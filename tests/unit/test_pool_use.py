"""What a pool's keys say of its use and its limits."""

import pytest

from worker.pool_use import PoolUse, pool_use

NOW_MS = 1_000_000
FIELDS = {
    "max_concurrency": "8",
    "requests_per_minute": "600",
    "tokens_per_minute": "6000",
    "adaptive": "0",
    "level": "",
    "set_by": "w-1",
}


def use(**changes: str) -> PoolUse:
    """Return the use of a pool with these fields changed, of which 3 slots are taken and 7 requests were granted."""
    return pool_use("gpu-a", FIELDS | changes, 3, 7, NOW_MS)


def test_use_stands_beside_the_limits() -> None:
    """Of slots and requests as they are counted."""
    found = use()
    assert (found.slots, found.slots_limit, found.requests, found.requests_limit) == (3, 8, 7, 600)
    assert (found.tokens_limit, found.level, found.set_by) == (6000, None, "w-1")


def test_what_is_off_has_no_limit() -> None:
    """Nor has anything of a pool that nobody has set yet."""
    off = use(requests_per_minute="", tokens_per_minute="")
    assert (off.requests_limit, off.tokens_limit, off.tokens) == (None, None, None)
    assert pool_use("gpu-a", {}, 0, 0, NOW_MS) == PoolUse("gpu-a")


@pytest.mark.parametrize(("level", "limit"), [("2.7", 2), ("0.4", 1), ("8", 8), ("20", 8), ("", 8), ("nonsense", 8)])
def test_an_adaptive_pools_limit_is_where_it_stands(level: str, limit: int) -> None:
    """At least one slot, at most what is configured."""
    assert use(level=level).slots_limit == limit


@pytest.mark.parametrize(("until_ms", "limit"), [(NOW_MS + 1, 2), (NOW_MS, 8)])
def test_a_level_that_nobody_goes_on_with_is_none(until_ms: int, limit: int) -> None:
    """The script that grants takes no notice of it either."""
    found = use(level="2", level_until_ms=str(until_ms))
    assert (found.slots_limit, found.level is None) == (limit, limit == 8)


@pytest.mark.parametrize(
    ("level", "passed_ms", "tokens"),
    [("0", 0, 0.0), ("0", 1000, 100.0), ("-500", 1000, -400.0), ("0", 60_000, 1000.0), ("1500", 1000, 1500.0)],
)
def test_tokens_are_refilled_all_the_time(level: str, passed_ms: int, tokens: float) -> None:
    """Up to ten seconds' worth; what was given back beyond it is not lost."""
    assert use(tokens_level=level, tokens_at_ms=str(NOW_MS - passed_ms)).tokens == pytest.approx(tokens)


def test_before_anything_was_taken_the_tokens_of_ten_seconds_are_there() -> None:
    """The claim script begins with them too."""
    assert use().tokens == pytest.approx(1000)


def test_a_worker_that_is_configured_otherwise_is_named_with_both() -> None:
    """And with who set what is in force."""
    same = {f"pool_{name}": FIELDS[name] for name in FIELDS}
    assert list(use().differences(same)) == []
    other = {**same, "pool_max_concurrency": "4", "pool_requests_per_minute": ""}
    assert list(use().differences(other)) == [
        "max_concurrency 4 (in force: 8, set by w-1)",
        "requests_per_minute off (in force: 600, set by w-1)",
    ]


def test_what_either_does_not_say_is_no_difference() -> None:
    """A worker of an earlier release says less, and nothing is in force before somebody set it."""
    assert list(use().differences({"pool_max_concurrency": "8"})) == []
    assert list(PoolUse("gpu-a").differences({"pool_max_concurrency": "4"})) == []
