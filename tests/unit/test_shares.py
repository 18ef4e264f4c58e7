"""How a worker shares its own slots among its models."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.shares import RECENTLY_MS, Shares

SLOW, FAST, RARE = "acme/slow", "acme/fast", "acme/rare"


def quotas(shares: Shares, free: int, held: dict[str, int], now_ms: float = 0.0) -> dict[str, int]:
    """Return the quotas of the two models that have jobs waiting."""
    return shares.quotas([SLOW, FAST], free, Counter(held), now_ms)


def test_a_model_that_is_alone_may_take_all() -> None:
    """Nothing is kept for models that had no work."""
    assert quotas(Shares(slots=8), 8, {}) == {SLOW: 8, FAST: 8}


def test_a_model_that_had_work_lately_has_a_slot_kept() -> None:
    """The other may take all but that; it may take what is idle, and its own."""
    shares = Shares(slots=8)
    quotas(shares, 7, {FAST: 1})
    assert quotas(shares, 4, {SLOW: 4}) == {SLOW: 3, FAST: 4}
    assert quotas(shares, 1, {SLOW: 7}) == {SLOW: 0, FAST: 1}


def test_a_claim_is_work() -> None:
    """Also of a job that had ended before anybody asked for more."""
    shares = Shares(slots=8)
    shares.had_work(FAST, 0.0)
    assert quotas(shares, 4, {SLOW: 4})[SLOW] == 3


def test_its_slot_is_lent_after_a_while_without_work() -> None:
    """A minute."""
    shares = Shares(slots=8)
    quotas(shares, 7, {FAST: 1}, 0.0)
    assert quotas(shares, 4, {SLOW: 4}, RECENTLY_MS - 1)[SLOW] == 3
    assert quotas(shares, 4, {SLOW: 4}, RECENTLY_MS + 1)[SLOW] == 4


@pytest.mark.parametrize(("kept", "left"), [({FAST: 3}, 1), ({FAST: 0}, 4)])
def test_shares_are_configurable(kept: dict[str, int], left: int) -> None:
    """More than one slot, or none."""
    shares = Shares(slots=8, kept=kept)
    quotas(shares, 7, {FAST: 1})
    assert quotas(shares, 4, {SLOW: 4})[SLOW] == left


def test_a_quarter_can_always_be_borrowed() -> None:
    """However many models had work lately."""
    shares = Shares(slots=8)
    quotas(shares, 0, {f"acme/{n}": 1 for n in range(50)})
    assert quotas(shares, 8, {SLOW: 1})[SLOW] == 2


@given(
    slots=st.integers(1, 12),
    recent=st.lists(st.sampled_from([SLOW, FAST, RARE])),
    held=st.dictionaries(st.sampled_from([SLOW, FAST, RARE]), st.integers(0, 6)),
    kept=st.dictionaries(st.sampled_from([SLOW, FAST, RARE]), st.integers(0, 4)),
)
def test_quotas_are_within_what_is_free_and_leave_nobody_out(
    slots: int, recent: list[str], held: dict[str, int], kept: dict[str, int]
) -> None:
    """Where one slot is free, a model below its share may take it; and somebody may take something."""
    shares = Shares(slots=slots, kept=kept)
    for model in recent:
        shares.quotas([], 0, Counter({model: 1}), 0.0)
    free = max(0, slots - sum(held.values()))
    given_out = quotas(shares, free, held)
    assert all(0 <= quota <= free for quota in given_out.values())
    for model, quota in given_out.items():
        if held.get(model, 0) < kept.get(model, 1):
            assert quota >= min(free, 1)
