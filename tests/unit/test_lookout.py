"""Which queues are looked at, and when: nothing is waited for that is there, nothing is asked for that cannot be."""

from collections import Counter

import pytest

from tests.jobs import CLAIMED_AT_MS
from worker.exchange import Claimed, ClaimRequest, Limit, Refusal
from worker.lookout import SWEEP_MS, UNTRACKED_SWEEP_MS, Lookout

A, B, C = "acme/a", "acme/b", "acme/c"


class Table:
    """A lookout over models A and B, or those given, all open and listened to, after its first sweep found them empty."""

    def __init__(self, *models: str) -> None:
        self.shut: set[str] = set()
        self.told = True
        self.lookout = Lookout(lambda model: model not in self.shut, lambda: self.told)
        for model in models or (A, B):
            self.lookout.open(model)
        self.found_empty(self.asked(0), 0)

    def asked(self, now_ms: float, wanted: int = 1) -> ClaimRequest:
        """Return what is asked for now, which must be something."""
        request = self.lookout.request(now_ms, wanted)
        assert request is not None
        return request

    def found_empty(
        self,
        request: ClaimRequest,
        now_ms: float,
        *,
        returned: frozenset[str] = frozenset(),
        next_due_ms: int | None = None,
    ) -> None:
        """Let all that was asked for be empty."""
        empty = frozenset((*request.open, *request.closed))
        self.lookout.learn(Claimed(CLAIMED_AT_MS, next_due_ms, empty, returned, ()), now_ms)


STILL_FILLED = Claimed(CLAIMED_AT_MS, None, frozenset(), frozenset(), ())
"""The reply to a claim that left something in each queue."""


def test_every_queue_is_looked_at_first() -> None:
    """What was pushed before the start has rung no bell."""
    lookout = Lookout(lambda _: True, lambda: True)
    lookout.open(A)
    lookout.open(B)
    assert lookout.request(0.0, 4) == ClaimRequest(1, 4, (A, B), (), most_ended=100, quotas=(4, 4))


def test_a_queue_found_empty_is_not_asked_for_again() -> None:
    """Until its bell rings, a sweep is due, or a retry is."""
    assert Table().lookout.request(1, 1) is None


@pytest.mark.parametrize(
    ("rung", "asked"),
    [(frozenset({A}), (A,)), (frozenset({A, B}), (A, B)), (None, (A, B)), (frozenset({"else"}), None)],
)
def test_a_bell_says_which_queues_to_ask_for(rung: frozenset[str] | None, asked: tuple[str, ...] | None) -> None:
    """None of them in particular means any; a name that is not ours means none."""
    table = Table()
    table.lookout.ring(rung)
    request = table.lookout.request(1, 3)
    assert (request and tuple(sorted(request.open))) == asked


def test_without_a_free_slot_a_bell_is_remembered() -> None:
    """Nothing is asked for then, and the queue is asked for as soon as a slot is free."""
    table = Table()
    table.lookout.ring(frozenset({A}))
    assert table.lookout.request(1, 0) is None
    assert table.asked(2).open == (A,)


def test_a_bell_during_a_call_is_not_forgotten() -> None:
    """The script may have found the queue empty just before the push that rang."""
    table = Table()
    table.lookout.ring(frozenset({A}))
    request = table.asked(1)
    table.lookout.ring(frozenset({A}))
    table.found_empty(request, 2)
    assert table.asked(3).open == (A,)


def test_a_queue_with_more_in_it_is_asked_for_again() -> None:
    """It was not named among the empty ones."""
    table = Table()
    table.lookout.ring(frozenset({A}))
    table.asked(1)
    table.lookout.learn(STILL_FILLED, 2)
    assert table.asked(3).open == (A,)


def test_a_shut_model_is_not_claimed_from_and_its_bell_is_remembered() -> None:
    """It is asked for when it opens."""
    table = Table()
    table.shut.add(A)
    table.lookout.ring(frozenset({A}))
    assert table.lookout.request(1, 1) is None
    table.shut.clear()
    assert table.asked(2).open == (A,)


def test_a_queue_that_is_no_longer_ours_is_not_asked_for() -> None:
    """Nor after its bell rings; opened again it is looked at once."""
    table = Table()
    table.lookout.close(A)
    table.lookout.close(A)
    table.lookout.ring(frozenset({A}))
    assert table.lookout.request(1, 1) is None
    table.lookout.open(A)
    table.lookout.open(A)
    assert table.asked(2).open == (A,)


def test_a_sweep_asks_for_everything_with_shut_models_apart() -> None:
    """Of the shut ones only heads that have ended are wanted; a sweep needs no free slot, since those need none."""
    table = Table()
    table.shut.add(B)
    request = table.asked(SWEEP_MS, wanted=0)
    assert (request.wanted, request.open, request.closed, request.most_ended) == (0, (A,), (B,), 100)


def test_only_sweeps_look_for_ended_heads() -> None:
    """They cost the server a look into each list."""
    table = Table()
    table.lookout.ring(frozenset({A}))
    request = table.asked(1)
    assert (request.closed, request.most_ended) == ((), 0)


@pytest.mark.parametrize(("told", "every"), [(True, SWEEP_MS), (False, UNTRACKED_SWEEP_MS)])
def test_sweeps_are_as_far_apart_as_listening_allows(told: bool, every: float) -> None:
    """Where the server does not tell of pushes, a sweep is all there is."""
    table = Table()
    table.told = told
    table.found_empty(table.asked(SWEEP_MS), SWEEP_MS)
    assert table.lookout.next_look_ms() == SWEEP_MS + every
    assert table.lookout.request(SWEEP_MS + every - 1, 1) is None
    assert set(table.asked(SWEEP_MS + every).open) == {A, B}


def test_a_retry_is_looked_for_when_it_is_due() -> None:
    """By what Redis' clock said was left of its time; it needs no free slot to get back into its queue."""
    table = Table()
    table.lookout.ring(frozenset({A}))
    table.found_empty(table.asked(10), 20, next_due_ms=CLAIMED_AT_MS + 300)
    assert table.lookout.next_look_ms() == 320
    assert table.lookout.request(319, 1) is None
    assert table.asked(320, wanted=0).open == ()


def test_a_retry_that_is_overdue_is_looked_for_at_once() -> None:
    """As when more were due than one call takes."""
    table = Table()
    table.lookout.ring(frozenset({A}))
    table.found_empty(table.asked(10), 20, next_due_ms=CLAIMED_AT_MS - 300)
    assert table.lookout.next_look_ms() == 20


def test_a_queue_that_got_a_retry_back_is_asked_for() -> None:
    """The server tells a connection nothing of its own pushes."""
    table = Table()
    request = table.asked(SWEEP_MS)
    table.found_empty(request, SWEEP_MS, returned=frozenset({B}))
    assert table.asked(SWEEP_MS + 1).open == (B,)


def test_a_retry_of_ones_own_is_expected() -> None:
    """Also when the call that made it claimed nothing, and so brought no news of what is due."""
    table = Table()
    table.lookout.expect_retry(700)
    table.lookout.expect_retry(500)
    table.lookout.expect_retry(600)
    assert table.lookout.next_look_ms() == 500
    table.found_empty(table.asked(500), 501)
    assert table.lookout.next_look_ms() == SWEEP_MS


def test_numbers_of_calls_never_repeat() -> None:
    """The script tells a repeat of a call by its number."""
    table = Table()
    numbers = [table.asked(n * SWEEP_MS).number for n in range(1, 20)]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("models", [(A, B), (A, C, B), (A, B, C), (C, A, B)])
@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_models_that_are_full_take_turns_whatever_the_idle_ones_do(models: tuple[str, ...], wanted: int) -> None:
    """Each comes first equally often, also when slots become free one by one and other models have nothing to do."""
    table = Table(*models)
    table.lookout.ring(frozenset({A, B}))
    first = Counter[str]()
    for n in range(20):
        first[table.asked(n + 1, wanted).open[0]] += 1
        table.lookout.learn(STILL_FILLED, n + 1)
    assert first == {A: 10, B: 10}


def test_shut_models_take_no_turn() -> None:
    """A shut model between two open ones gives its turn to neither."""
    table = Table(A, C, B)
    table.shut.add(C)
    table.lookout.ring(None)
    first = Counter[str]()
    for n in range(20):
        first[table.asked(n + 1).open[0]] += 1
        table.lookout.learn(STILL_FILLED, n + 1)
    assert first == {A: 10, B: 10}


class TestRefusals:
    def refused(self, table: Table, now_ms: float, limit: Limit, again_ms: int | None, model: str = A) -> None:
        """Let a job come in for a model, and be refused."""
        table.lookout.ring(frozenset({model}))
        assert model in table.asked(now_ms).open
        refusal = Refusal(limit, again_ms)
        table.lookout.learn(
            Claimed(CLAIMED_AT_MS, None, frozenset({A, B} - {model}), frozenset(), (), refused={model: refusal}), now_ms
        )

    @pytest.mark.parametrize("limit", [Limit.SLOTS, Limit.REQUESTS, Limit.TOKENS, Limit.TURN, Limit.PROBES])
    def test_who_is_refused_asks_again_when_it_was_told_to(self, limit: Limit) -> None:
        """And not before: waiting costs no round trips."""
        table = Table()
        self.refused(table, 10, limit, 300)
        assert table.lookout.request(11, 1) is None
        assert table.lookout.next_look_ms() == 310
        assert table.asked(310).open == (A,)

    @pytest.mark.parametrize("limit", [Limit.CIRCUIT, Limit.PAUSED, Limit.OPENING])
    def test_what_rings_when_it_changes_is_not_asked_for(self, limit: Limit) -> None:
        """But with the sweep."""
        table = Table()
        self.refused(table, 10, limit, None)
        assert table.lookout.request(SWEEP_MS - 1, 1) is None
        assert set(table.asked(SWEEP_MS).open) == {A, B}

    def test_more_jobs_of_a_refused_model_are_no_reason_to_ask(self) -> None:
        """They wait behind the first."""
        table = Table()
        self.refused(table, 10, Limit.REQUESTS, 30_000)
        table.lookout.ring(frozenset({A}))
        assert table.lookout.request(11, 1) is None

    def test_a_change_is(self) -> None:
        """Of a turn, a circuit or a pause."""
        table = Table()
        self.refused(table, 10, Limit.TURN, None)
        table.lookout.recall()
        assert table.asked(11).open == (A,)

    @pytest.mark.parametrize(
        ("limit", "asks"), [(Limit.SLOTS, True), (Limit.TOKENS, True), (Limit.PROBES, True), (Limit.REQUESTS, False)]
    )
    def test_an_end_of_its_own_gives_back_what_it_held(self, limit: Limit, asks: bool) -> None:
        """A slot or tokens; a request stays spent."""
        table = Table()
        self.refused(table, 10, limit, 30_000)
        table.lookout.job_ended()
        assert (table.lookout.request(11, 1) is not None) is asks

    def test_who_is_refused_is_asked_for_together_with_others(self) -> None:
        """Else it would lose its place in the line, or miss a chance that costs nothing."""
        table = Table()
        self.refused(table, 10, Limit.SLOTS, 30_000)
        table.lookout.ring(frozenset({B}))
        assert set(table.asked(11).open) == {A, B}

    def test_who_is_granted_something_is_refused_no_more(self) -> None:
        """Whoever it was asked for together with."""
        table = Table()
        self.refused(table, 10, Limit.CIRCUIT, None)
        table.lookout.ring(frozenset({B}))
        table.asked(11)
        table.lookout.learn(Claimed(CLAIMED_AT_MS, None, frozenset({B}), frozenset(), ()), 11)
        assert table.lookout.refusals() == {}
        assert table.asked(12).open == (A,)

    def test_what_stood_in_the_way_can_be_told(self) -> None:
        """Until a job is granted, or there is none."""
        table = Table()
        self.refused(table, 10, Limit.SLOTS, 100)
        assert table.lookout.refusals() == {A: Limit.SLOTS}
        table.found_empty(table.asked(110), 110)
        assert table.lookout.refusals() == {}

    def test_a_job_that_went_back_for_its_tokens_lets_its_model_rest(self) -> None:
        """It was opened, and would be opened again at once."""
        table = Table()
        table.lookout.ring(frozenset({A}))
        table.lookout.rest(A, 500)
        assert table.lookout.request(499, 1) is None
        assert table.lookout.refusals() == {A: Limit.TOKENS}
        assert table.asked(500).open == (A,)

    def test_it_is_asked_for_again_though_its_queue_was_found_empty(self) -> None:
        """While the only job there was in this worker's hands; of its going back no bell rings here."""
        table = Table()
        table.lookout.ring(frozenset({A}))
        table.found_empty(table.asked(1), 2)
        table.lookout.rest(A, 500)
        assert table.lookout.next_look_ms() == 500
        assert table.asked(500).open == (A,)

    def test_a_model_without_a_share_of_this_worker_is_not_asked_for(self) -> None:
        """Its slots are kept for others."""
        table = Table()
        table.lookout.shares.slots = 4
        table.lookout.request(1, 0, held=Counter({B: 1}))
        table.lookout.ring(frozenset({A}))
        assert table.lookout.request(2, 1, held=Counter({A: 3})) is None
        request = table.lookout.request(3, 2, held=Counter({A: 2}))
        assert request is not None
        assert request.quotas == (1,)
