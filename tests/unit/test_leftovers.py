"""Slots that stay taken after their jobs have ended, and what frees them early."""

import pytest

from tasks.delivery import Outcome, Retry, Return, Settlement
from tasks.errors import ConnectionLost, JobError, ModelCrashed, ModelException, RuntimeTimeout, RuntimeUnavailable
from tasks.reading import JobIdentity
from tests.generating import ran, settled
from tests.jobs import MODEL, attempt, delivery
from worker.leftovers import Leftovers
from worker.triton.failures import ServerAway

IDENTITY = JobIdentity("j-1", MODEL, "f" * 32)
OTHER = "acme/model-2"
HOLDS = "pool acme/model-1 0 0 - -"


def leftovers() -> Leftovers:
    """Return those of a run that has claimed jobs, without any."""
    left = Leftovers(lambda: "triton-01:a")
    left.claimed()
    return left


def retry(error: JobError) -> Outcome:
    """Return the outcome of a job that is tried again."""
    return Retry(IDENTITY, attempt(), 100, error)


def lost(tag: str, model: str = MODEL) -> tuple[Leftovers, str]:
    """Return what one lost connection leaves, and its slot."""
    left = leftovers()
    left.note(delivery(tag=tag, queue_model=model, holds=HOLDS), retry(ConnectionLost()))
    return left, f"{model}\ntriton-01:a/{tag}"


def test_a_lost_connection_leaves_its_slot_taken() -> None:
    """Nothing is freed before it is known to be over."""
    left, _ = lost("1.1")
    assert left.freed() == ()


def test_a_server_that_refuses_connections_runs_nothing() -> None:
    """All is freed, once."""
    left, slot = lost("1.1")
    left.note(delivery(tag="1.2", holds=HOLDS), Return(IDENTITY, ServerAway()))
    assert left.freed() == (slot,)
    assert left.freed() == ()


def test_a_look_that_is_refused_says_so_too() -> None:
    """Without a job at stake."""
    left, slot = lost("1.1")
    left.server_is_away()
    assert left.freed() == (slot,)


def test_one_that_is_only_unavailable_may_be_busy_still() -> None:
    """Such as one that does not answer in time, or says 503."""
    left, _ = lost("1.1")
    left.note(delivery(tag="1.2", holds=HOLDS), Return(IDENTITY, RuntimeUnavailable()))
    assert left.freed() == ()


def test_a_dead_process_has_ended_what_ran_in_it() -> None:
    """Of its own model, and of no other."""
    left, slot = lost("1.1")
    left.note(delivery(tag="1.2", queue_model=OTHER, holds=HOLDS), retry(ConnectionLost()))
    left.note(delivery(tag="1.3", holds=HOLDS), retry(ModelCrashed()))
    assert left.freed() == (slot,)


def test_a_process_whose_death_others_saw_has_ended_it_too() -> None:
    """By the model's circuit, which all workers of the endpoint share."""
    dead = set[str]()
    left = Leftovers(lambda: "triton-01:a", dead.__contains__)
    left.claimed()
    left.note(delivery(tag="1.1", holds=HOLDS), retry(ConnectionLost()))
    left.models_changed()
    assert left.freed() == ()
    dead.add(OTHER)
    left.models_changed()
    assert left.freed() == ()
    dead.add(MODEL)
    left.models_changed()
    assert left.freed() == (f"{MODEL}\ntriton-01:a/1.1",)


class TestALostLease:
    """The slots of its jobs are nobody's; they carry the name under which they were claimed, whatever this run is called now."""

    @pytest.fixture
    def left(self) -> Leftovers:
        """A run that was declared dead with two jobs in its hands."""
        names = iter(["triton-01:a", "triton-01:b"])
        left = Leftovers(lambda: next(names))
        left.claimed()
        left.lose([delivery(tag=tag, holds=HOLDS) for tag in ("1.1", "1.2")])
        left.claimed()
        return left

    @pytest.mark.parametrize(
        "outcome",
        [
            Settlement(IDENTITY, settled(ran()), None),
            Settlement(IDENTITY, settled(ran()), RuntimeTimeout()),
            Return(IDENTITY, RuntimeUnavailable()),
        ],
        ids=["an answer", "no answer in time", "never ran"],
    )
    def test_an_inference_whose_end_is_heard_frees_its_slot(self, left: Leftovers, outcome: Outcome) -> None:
        """Its own; the settlement is refused, and gives nothing back."""
        assert left.freed() == ()
        left.note(delivery(tag="1.1", holds=HOLDS), outcome)
        assert left.freed() == (f"{MODEL}\ntriton-01:a/1.1",)

    def test_one_that_is_lost_yet_another_way_stays_taken(self, left: Leftovers) -> None:
        """Until the server is known to be gone; others may still be on then."""
        left.note(delivery(tag="1.1", holds=HOLDS), retry(ConnectionLost()))
        assert left.freed() == ()
        left.server_is_away()
        assert sorted(left.freed()) == [f"{MODEL}\ntriton-01:a/{tag}" for tag in ("1.1", "1.2")]

    def test_an_end_that_is_told_before_the_loss_is_noticed_frees_its_slot_too(self) -> None:
        """The ledger says that the claim is gone; of one that was broken off nobody knows when it ends."""
        left = leftovers()
        for tag, outcome in (("1.1", Settlement(IDENTITY, settled(ran()), None)), ("1.2", retry(ConnectionLost()))):
            left.note(delivery(tag=tag, holds=HOLDS), outcome)
            left.came_late(delivery(tag=tag, holds=HOLDS), outcome)
        left.came_late(delivery(tag="1.3", holds=HOLDS), None)
        assert left.freed() == (f"{MODEL}\ntriton-01:a/1.1",)


@pytest.mark.parametrize("error", [None, ModelException(), RuntimeTimeout()])
def test_what_is_over_leaves_nothing(error: JobError | None) -> None:
    """It was given back with its end."""
    left = leftovers()
    outcome = Settlement(IDENTITY, settled(ran()), error)
    left.note(delivery(holds=HOLDS), outcome)
    left.server_is_away()
    assert left.freed() == ()


def test_what_was_granted_nothing_leaves_nothing() -> None:
    """There is no slot."""
    left = leftovers()
    left.note(delivery(), retry(ConnectionLost()))
    left.server_is_away()
    assert left.freed() == ()
