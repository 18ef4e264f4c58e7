"""What a heartbeat writes: all of it where nothing is known of what Redis has, else what changed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.registration import Beat, Entry, Registration

DECLARED = {name: f'{{"kind":"{name}"' for name in "abcde"}


def beat(*able: str, **fields: str) -> Beat:
    """Return what is said with these models able."""
    return Beat({"state": "ready", **fields}, frozenset(able))


def told(*said: Beat) -> Registration:
    """Return a registration of five models whose beats, these, were all written."""
    registration = Registration("w", DECLARED, 5.0)
    for one in said:
        registration.entry(one)
        registration.wrote(one)
    return registration


def test_the_first_beat_writes_everything() -> None:
    """It takes the worker out of the registries that it may still be in from an earlier run."""
    entry = told().entry(beat("a", "b", at="1"))
    assert entry == Entry(True, {"state": "ready", "at": "1"}, ("a", "b"), ("c", "d", "e"), DECLARED)


def test_the_next_one_writes_what_changed() -> None:
    """And the models whose registries are to be kept fresh."""
    entry = told(beat("a", "b", at="1")).entry(beat("a", "b", at="2"))
    assert (entry.whole, entry.fields, entry.able, entry.leaving) == (False, {"at": "2"}, ("a", "b"), ())


def test_a_model_that_is_able_no_more_leaves() -> None:
    """Once: the next beat does not name it again."""
    registration = told(beat("a", "b"))
    now = beat("b", "c")
    entry = registration.entry(now)
    assert (entry.able, entry.leaving) == (("b", "c"), ("a",))
    registration.wrote(now)
    assert registration.entry(now).leaving == ()


def test_after_a_beat_without_an_answer_everything_is_written() -> None:
    """It may have been written or not."""
    registration = told(beat("a"))
    registration.entry(beat("b"))
    assert registration.entry(beat("a")) == Entry(True, {"state": "ready"}, ("a",), ("b", "c", "d", "e"), DECLARED)


@pytest.mark.parametrize(("beat_seconds", "beats"), [(0.05, 20), (5.0, 20), (60.0, 10), (600.0, 1), (3600.0, 1)])
def test_in_a_round_every_model_is_declared_anew(beat_seconds: float, beats: int) -> None:
    """As few in a beat as do, and each in twenty beats or ten minutes."""
    declared = {f"m{n:03}": "{" for n in range(500)}
    registration = Registration("w", declared, beat_seconds)
    rounds = []
    for _ in range(2 * beats + 1):
        rounds.append(registration.entry(beat()).declared)
        registration.wrote(beat())
    first, *later = rounds
    assert first == declared
    assert {len(one) for one in later} == {500 // beats}
    assert sorted(name for one in later[:beats] for name in one) == sorted(declared)
    assert later[:beats] == later[beats:]


beats = st.builds(
    Beat,
    st.fixed_dictionaries({"state": st.sampled_from("xy"), "at": st.sampled_from("123")}),
    st.frozensets(st.sampled_from("abcde")),
)


@given(st.lists(st.tuples(beats, st.booleans(), st.booleans()), max_size=12))
def test_whatever_arrives_redis_has_what_was_said_last(said: list[tuple[Beat, bool, bool]]) -> None:
    """Each beat may arrive or not, and if it does its answer may be lost: a beat with an answer leaves all as it says."""
    registration = Registration("w", DECLARED, 5.0)
    fields: dict[str, str] = {}
    listed: set[str] = {"a", "e"}
    for one, arrives, is_answered in said:
        entry = registration.entry(one)
        if arrives:
            fields = {**({} if entry.whole else fields), **entry.fields}
            listed = (listed | set(entry.able)) - set(entry.leaving)
        if arrives and is_answered:
            registration.wrote(one)
            assert fields == one.fields
            assert listed == one.able


def test_a_worker_of_one_model_declares_it_in_each_beat() -> None:
    """There is no beat of which nothing is left."""
    registration = Registration("w", {"a": "{"}, 5.0)
    entries = []
    for _ in range(4):
        entries.append(registration.entry(beat("a")))
        registration.wrote(beat("a"))
    assert all(left.declared == right.declared == {"a": "{"} for left, right in pairwise(entries))
