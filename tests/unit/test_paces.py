"""What the time of an inference is measured by: the shortest of its kind."""

import pytest

from tasks.usage import Units, Usage
from tests.jobs import usage
from worker.paces import KNOWN_FOR_MS, MOST_ASKED, Paces, kind_and_pace


def learned(*ms: float, kind: str = "m") -> Paces:
    """What is known after such times."""
    paces = Paces()
    for each in ms:
        paces.times(kind, each)
    return paces


class TestKinds:
    @pytest.mark.parametrize(
        ("spent", "taken_ms", "ms"),
        [
            (usage(5, 32), 640, 20.0),
            (usage(5, 1), 640, 640.0),
            (usage(5, 0), 640, 640.0),
            (usage(5, 32), 0, 1 / 32),
            (Units.of({"pixels": 7}), 640, 640.0),
            (None, 640, 640.0),
        ],
    )
    def test_a_text_is_measured_by_the_token_and_the_rest_by_the_call(
        self, spent: Usage | Units | None, taken_ms: int, ms: float
    ) -> None:
        """A long text takes longer, and is no slower for it."""
        assert kind_and_pace("m", spent, taken_ms)[1] == ms

    def test_models_are_not_compared_with_each_other(self) -> None:
        """A large model beside a small one makes neither slow."""
        paces = learned(*[1.0] * 5, kind=kind_and_pace("small", usage(5, 32), 32)[0])
        assert paces.times(*kind_and_pace("large", usage(5, 32), 32_000)) == 1.0

    def test_lengths_are_told_apart_by_powers_of_two(self) -> None:
        """A long prompt before a short text takes longer by the token, and is no slower for it."""
        kinds = {kind_and_pace("m", usage(prompt, text), 100)[0] for prompt in (64, 127) for text in (16, 31)}
        others = {kind_and_pace("m", usage(*tokens), 100)[0] for tokens in ((63, 16), (128, 16), (64, 15), (64, 32))}
        assert len(kinds) == 1
        assert len(others - kinds) == 4


class TestTimes:
    def test_an_answer_is_measured_by_the_shortest_median(self) -> None:
        """Nothing is said of the first few; one lucky answer is not what all others are held against."""
        paces = Paces()
        assert [paces.times("m", ms) for ms in (90.0, 100.0)] == [1.0, 1.0]
        assert paces.times("m", 110.0) == 1.1
        assert paces.times("m", 1.0) == 1.0  # The median is 95 by now.
        assert [round(paces.times("m", ms)) for ms in (190.0, 285.0, 380.0)] == [2, 3, 4]

    def test_it_gets_shorter_and_not_longer(self) -> None:
        """A busy hour is not what a quiet one is measured by."""
        paces = learned(*[100.0] * 5, *[500.0] * 50, *[50.0] * 5)
        assert paces.times("m", 200.0) == 4.0

    def test_an_era_forgets(self) -> None:
        """Once: the worker that began it says it to itself as well."""
        paces = learned(*[100.0] * 5)
        paces.begin(1)
        assert paces.to_tell(0.0) == {}
        assert paces.times("m", 300.0) == 1.0
        paces.begin(1)
        assert list(paces.to_tell(0.0)) == ["1 m"]


class TestSharing:
    def test_what_others_have_found_shorter_counts(self) -> None:
        """A worker that starts while the server is busy measures by what was known before it."""
        paces = learned(*[300.0] * 5)
        told = paces.to_tell(0.0)
        assert told == {"0 m": 300.0}
        paces.heard(told, {"0 m": 100.0}, 0.0)
        assert paces.times("m", 300.0) == 3.0

    def test_news_is_told_once_and_asked_about_now_and_then(self) -> None:
        """What is told costs nothing more while nothing changes, and what nobody runs is not asked about."""
        paces = learned(*[300.0] * 5)
        paces.heard(paces.to_tell(0.0), {"0 m": 300.0}, 0.0)
        assert paces.to_tell(KNOWN_FOR_MS) == {}
        paces.times("m", 310.0)
        assert paces.to_tell(KNOWN_FOR_MS - 1) == {}
        assert paces.to_tell(KNOWN_FOR_MS) == {"0 m": None}

    def test_a_kind_is_asked_about_before_anything_is_known_of_it(self) -> None:
        """So that its first answers can be judged."""
        paces = learned(300.0)
        paces.heard(paces.to_tell(0.0), {"0 m": 100.0}, 0.0)
        assert paces.times("m", 300.0) == 3.0

    def test_what_was_found_while_the_last_was_told_is_told_next(self) -> None:
        """Nothing is taken for told that was not."""
        paces = learned(*[300.0] * 5)
        told = paces.to_tell(0.0)
        for _ in range(5):
            paces.times("m", 200.0)
        paces.heard(told, {"0 m": 300.0}, 0.0)
        assert paces.to_tell(0.0) == {"0 m": 200.0}

    def test_an_answer_of_an_era_that_is_over_says_nothing(self) -> None:
        """It was on its way when the era ended."""
        paces = learned(*[300.0] * 5)
        told = paces.to_tell(0.0)
        paces.begin(1)
        paces.heard(told, {"0 m": 1.0}, 0.0)
        assert [paces.times("m", 300.0) for _ in range(5)] == [1.0] * 5

    @pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf")])
    def test_nonsense_is_not_believed(self, ms: float) -> None:
        """Somebody's slip in Redis does not make all answers slow for ever."""
        paces = learned(*[300.0] * 5)
        paces.heard(paces.to_tell(0.0), {"0 m": ms}, 0.0)
        assert paces.times("m", 300.0) == 1.0

    def test_hundreds_of_kinds_are_told_in_parts(self) -> None:
        """No one call grows with them."""
        paces = Paces()
        for n in range(MOST_ASKED + 10):
            for _ in range(3):
                paces.times(f"m {n}", 100.0)
        first = paces.to_tell(0.0)
        paces.heard(first, {}, 0.0)
        assert (len(first), len(paces.to_tell(0.0))) == (MOST_ASKED, 10)
