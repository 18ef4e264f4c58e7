"""A look says whether a model can run jobs, and whether it was loaded again since the last one."""

from dataclasses import replace

import pytest

from tasks.errors import ContractMismatch, JobError, ModelNotReady, RuntimeUnavailable
from worker.looks import Looks
from worker.triton.model_contract import ContractReport
from worker.triton.server import Statistics

A, B = "acme/a", "acme/b"
RAN = Statistics(inferences=10, succeeded=9, failed=1, last_inference_ms=1_796_000_000_000)
FRESH = Statistics()


class Runtime:
    """A runtime that says what the test says."""

    def __init__(self) -> None:
        self.ready = True
        self.said: dict[str, Statistics | JobError] = {A: RAN, B: RAN}
        self.looks = Looks(lambda _: self.ready, self._check, self._statistics)

    def was_loaded_again(self, *said: Statistics | JobError) -> list[bool]:
        """What looks at A give, one after the other."""
        found = []
        for self.said[A] in said:
            found.append(self.looks.was_loaded_again(A))
        return found

    def _check(self, model: str) -> ContractReport:
        raise NotImplementedError

    def _statistics(self, model: str) -> Statistics:
        said = self.said[model]
        if isinstance(said, JobError):
            raise said
        return said


def test_a_model_that_is_not_ready_is_not_checked() -> None:
    """There would be nothing to check."""
    runtime = Runtime()
    runtime.ready = False
    with pytest.raises(ModelNotReady):
        runtime.looks.look(A)


class TestStatistics:
    @pytest.mark.parametrize(
        "now",
        [
            FRESH,
            replace(RAN, failed=0),
            replace(RAN, inferences=9),
            replace(RAN, succeeded=8),
            replace(RAN, last_inference_ms=RAN.last_inference_ms - 1),
            Statistics(100, 100, 0, RAN.last_inference_ms + 5),
        ],
    )
    def test_any_that_went_backwards_show_a_reload(self, now: Statistics) -> None:
        """A crash counts as a failure, so a reload after one always shows, even if others have used the model since."""
        assert Runtime().was_loaded_again(RAN, now) == [False, True]

    @pytest.mark.parametrize("now", [RAN, replace(RAN, failed=2), Statistics(20, 18, 2, RAN.last_inference_ms + 1)])
    def test_others_show_none(self, now: Statistics) -> None:
        """Somebody else may use the model too."""
        assert Runtime().was_loaded_again(RAN, now) == [False, False]

    def test_what_was_before_it_was_begun_does_not_matter(self) -> None:
        """Nor does what another model does."""
        runtime = Runtime()
        runtime.was_loaded_again(RAN)
        runtime.looks.begin(A)
        assert runtime.was_loaded_again(FRESH, RAN) == [False, False]
        runtime.said[B] = replace(RAN, failed=5)
        assert not runtime.looks.was_loaded_again(B)

    @pytest.mark.parametrize("error", [RuntimeUnavailable(), ContractMismatch()])
    def test_where_triton_does_not_say_it_is_none(self, error: JobError) -> None:
        """What it said before still counts."""
        assert Runtime().was_loaded_again(error, RAN, error, FRESH) == [False, False, False, True]

    def test_a_second_reload_shows_like_the_first(self) -> None:
        """Each begins at nothing."""
        again = replace(RAN, inferences=20, succeeded=19, last_inference_ms=RAN.last_inference_ms + 9)
        assert Runtime().was_loaded_again(RAN, FRESH, again, FRESH, FRESH) == [False, True, False, True, False]

    def test_servers_that_answer_in_turns_show_none(self) -> None:
        """Behind one address may be several, each with figures of its own: found out after the first turn."""
        other = Statistics(3, 3, 0, RAN.last_inference_ms - 1000)
        runtime = Runtime()
        assert runtime.was_loaded_again(RAN, other, RAN, other, RAN, other) == [False, True, *[False] * 4]
        runtime.looks.begin(A)
        assert runtime.was_loaded_again(RAN, other, RAN) == [False] * 3

    def test_a_server_that_has_run_nothing_is_found_out_too(self) -> None:
        """By the other one that comes back."""
        assert Runtime().was_loaded_again(RAN, FRESH, RAN, FRESH, RAN) == [False, True, False, False, False]
