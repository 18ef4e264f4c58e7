"""The slots are kept full, outcomes are committed with all that wait, and no job leaves this process' hands by itself."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tasks.delivery import DeadLetter, Delivery, Outcome, Retry, Return, Settlement
from tasks.errors import ConnectionLost, InvalidJob, ModelNotReady, QueueFull
from tasks.generate import end_unstarted, generate
from tasks.reading import DeadLetterReason, JobIdentity
from tasks.result import AttemptCode
from tests.committer_contract import KEYS, LONG_AGO, OTHER_MODEL, jobs
from tests.fakes import FakeClock, FakeInference
from tests.generating import ports
from tests.jobs import MAX_JOB_BYTES, MODEL, attempt, job_content, job_json
from tests.redis_model import POOL, FakeCommitter, RedisModel, ledger_of
from worker import exchange
from worker.clock import RedisClock
from worker.intake import Intake
from worker.lookout import SWEEP_MS, Lookout
from worker.reception import Reception

QUEUE = KEYS.jobs(MODEL)


@dataclass
class Observer:
    """A gate whose models are opened and shut by the test, and a journal: both remember what they were told."""

    shut: set[str] = field(default_factory=set)
    observed: list[tuple[str, Outcome]] = field(default_factory=list)
    committed_ones: list[tuple[str, Outcome | None, int]] = field(default_factory=list)

    def is_open(self, model: str) -> bool:
        """Tell whether the test left it open."""
        return model not in self.shut

    def observe(self, delivery: Delivery, outcome: Outcome) -> None:
        """Remember how a delivery ended."""
        self.observed.append((delivery.tag, outcome))

    def committed(self, delivery: Delivery, outcome: Outcome | None, word: int) -> None:
        """Remember what was committed."""
        self.committed_ones.append((delivery.tag, outcome, word))


class Bench:
    """An intake of two slots with the queue of MODEL open, beside a fake Redis."""

    def __init__(self, slots: int = 2) -> None:
        self.redis = RedisModel()
        self.committer = FakeCommitter(self.redis)
        self.observer = Observer()
        self.clock = FakeClock()
        self.told = True
        redis_clock = RedisClock(self.clock)
        redis_clock.heard(self.redis.now_ms)
        self.reception = Reception(KEYS, self.clock, redis_clock, MAX_JOB_BYTES, self.end_unstarted)
        self.intake = Intake(
            committer=self.committer,
            lookout=Lookout(self.observer.is_open, lambda: self.told),
            reception=self.reception,
            gate=self.observer,
            journal=self.observer,
            clock=self.clock,
            redis_clock=redis_clock,
            keys=KEYS,
            worker_id="triton-01",
            slots=slots,
        )
        self.intake.open_queue(QUEUE)

    def push(self, *raws: bytes, queue: str = QUEUE) -> None:
        """Enqueue as a gateway does, and let the bell ring."""
        for raw in raws:
            self.redis.push(queue, raw)
        self.intake.ring(frozenset({KEYS.model_of(queue)}))

    def work(self) -> None:
        """Do exchanges until there is nothing left to do."""
        for _ in range(50):
            if not self.intake.run_once():
                return
        pytest.fail("the intake does not come to rest")

    def taken(self) -> list[Delivery]:
        """Do what there is to do, and take what came in."""
        self.work()
        return list(self.intake.take())

    def pass_ms(self, passed: int) -> None:
        """Let time pass, here and for Redis."""
        self.clock.pass_ms(passed)
        self.redis.now_ms += passed

    def run(self, delivery: Delivery) -> Outcome:
        """Run a delivery as the worker does."""
        return generate(delivery, ports(FakeInference()))

    def end_unstarted(self, delivery: Delivery) -> Outcome | None:
        """End what needs no run as the worker does."""
        return end_unstarted(delivery, ports(FakeInference()))

    def give_all_back(self) -> None:
        """Put back what has no outcome, as a drain does."""
        for delivery in self.intake.held():
            self.intake.give_back(delivery)

    @property
    def claimed(self) -> list[str]:
        """The tags of the claims that Redis holds for this run."""
        return list(self.redis.claims[self.committer.incarnation])

    @property
    def settled(self) -> list[str]:
        """The job_ids in the settlement queue."""
        return [job_id for job_id, _ in self.redis.settlements]


def envelope(job: dict[str, Any] | None = None, **headers: Any) -> bytes:
    """Return a Celery message with a job in it."""
    message = {
        "body": json.dumps([[job_content() if job is None else job], {}, {}]),
        "content-type": "application/json",
        "headers": {"task": "speedinfer.generate", "id": "x", **headers},
        "properties": {"delivery_info": {}},
    }
    return json.dumps(message).encode()


IDENTITY = JobIdentity("a", MODEL, "f" * 32)


def test_no_more_jobs_are_claimed_than_there_are_slots() -> None:
    """The others stay in their queue, where any worker may take them."""
    bench = Bench(slots=2)
    bench.push(*jobs("a", "b", "c"))
    assert [delivery.raw for delivery in bench.taken()] == jobs("a", "b")
    assert len(bench.intake.held()) == 2
    assert bench.redis.lists[QUEUE] == jobs("c")


def test_without_slots_nothing_is_claimed() -> None:
    """A worker that has not started its pool takes no job."""
    bench = Bench(slots=0)
    bench.push(*jobs("a"))
    assert bench.taken() == []
    assert bench.claimed == []


def test_under_a_lease_that_may_be_lost_nothing_is_claimed() -> None:
    """What it took would have to go back at once; when the lease is held again, it is taken."""
    bench = Bench()
    bench.intake.is_trusted = lambda: False
    bench.push(*jobs("a"))
    assert bench.taken() == []
    assert bench.claimed == []
    bench.intake.is_trusted = lambda: True
    assert [delivery.job_id for delivery in bench.taken()] == ["a"]


def test_a_delivery_says_what_the_task_needs() -> None:
    """Its tag, its queue's model, the bytes as they came, Redis' time of the claim and this process' own."""
    bench = Bench()
    bench.clock.pass_ms(1234)
    bench.redis.now_ms += 1234
    bench.redis.attempts["a"].append(attempt())
    bench.push(*jobs("a"))
    assert bench.taken() == [
        Delivery(
            tag="1.1",
            queue_model=MODEL,
            raw=job_json(job_id="a"),
            claimed_at_ms=bench.redis.now_ms,
            received_ms=1234,
            job_id="a",
            attempts=(attempt(),),
            holds=f"{POOL} {MODEL} 0 0 - -",
        )
    ]


def test_a_job_of_a_priority_list_is_its_models() -> None:
    """The list that it came from is the ledger's concern."""
    bench = Bench()
    bench.push(*jobs("a"), queue=QUEUE + "\x06\x169")
    assert [delivery.queue_model for delivery in bench.taken()] == [MODEL]


def test_ready_is_set_while_there_is_something_to_take() -> None:
    """Whoever delivers waits for that, and for nothing else."""
    bench = Bench()
    assert not bench.intake.ready.is_set()
    bench.push(*jobs("a"))
    bench.work()
    assert bench.intake.ready.is_set()
    list(bench.intake.take())
    assert not bench.intake.ready.is_set()


def test_a_free_slot_is_filled_by_the_call_that_settles() -> None:
    """One round trip for both."""
    bench = Bench(slots=1)
    bench.push(*jobs("a", "b"))
    (first,) = bench.taken()
    calls = len(bench.committer.asked)
    bench.intake.finish(first, bench.run(first))
    bench.intake.run_once()
    (asked,) = bench.committer.asked[calls:]
    assert [type(commit) for commit in asked.commits] == [exchange.Settle]
    assert asked.claim is not None
    assert [delivery.raw for delivery in bench.intake.take()] == jobs("b")


def test_outcomes_that_gather_during_a_call_are_committed_by_the_next() -> None:
    """All of them by one."""
    bench = Bench(slots=4)
    bench.push(*jobs("a", "b", "c", "d"))
    one, *others = bench.taken()

    def others_end() -> None:
        while others:
            other = others.pop()
            bench.intake.finish(other, bench.run(other))

    bench.committer.meanwhile = others_end
    calls = len(bench.committer.asked)
    bench.intake.finish(one, bench.run(one))
    bench.work()
    assert [len(asked.commits) for asked in bench.committer.asked[calls:]] == [1, 3]
    assert sorted(bench.settled) == ["a", "b", "c", "d"]
    assert bench.claimed == []


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (lambda bench, delivery: bench.run(delivery), exchange.Settle),
        (lambda *_: Retry(IDENTITY, attempt(), 500, ConnectionLost()), exchange.Retry),
        (lambda *_: Return(IDENTITY, ModelNotReady()), exchange.Return),
        (lambda *_: DeadLetter(DeadLetterReason.NOT_JSON), exchange.Bury),
    ],
)
def test_each_outcome_is_committed_once_and_reported(
    outcome: Callable[[Bench, Delivery], Outcome], kind: type[exchange.Commit]
) -> None:
    """The journal hears of it with the script's word, after Redis has taken it."""
    bench = Bench()
    bench.push(*jobs("a"))
    (delivery,) = bench.taken()
    ended = outcome(bench, delivery)
    bench.observer.shut.add(MODEL)
    bench.intake.finish(delivery, ended)
    assert bench.observer.committed_ones == []
    bench.work()
    commits = [commit for asked in bench.committer.asked for commit in asked.commits]
    assert [type(commit) for commit in commits] == [kind]
    assert bench.observer.committed_ones == [("1.1", ended, 1)]
    assert bench.claimed == []
    assert len(bench.intake.held()) == 0


def test_the_gate_learns_how_jobs_end() -> None:
    """Each as it ends, before it is committed."""
    bench = Bench(slots=2)
    bench.push(*jobs("a", "b"))
    a, b = bench.taken()
    succeeded, returned = bench.run(a), Return(IDENTITY, QueueFull())
    bench.intake.finish(a, succeeded)
    bench.intake.finish(b, returned)
    assert bench.observer.observed == [(a.tag, succeeded), (b.tag, returned)]


def test_an_outcome_of_what_is_not_held_is_dropped() -> None:
    """A job that was given back, or has ended, ends no second time."""
    bench = Bench()
    bench.push(*jobs("a"))
    (delivery,) = bench.taken()
    bench.intake.stop_claiming()
    bench.intake.give_back(delivery)
    bench.intake.finish(delivery, bench.run(delivery))
    bench.intake.give_back(delivery)
    bench.work()
    assert bench.settled == []
    assert bench.redis.lists[QUEUE] == jobs("a")
    assert bench.observer.committed_ones == [("1.1", None, 1)]
    assert bench.observer.observed == []


def test_a_job_given_back_before_it_was_taken_is_not_taken() -> None:
    """It is in its queue again, for any worker."""
    bench = Bench()
    bench.push(*jobs("a"))
    bench.work()
    bench.give_all_back()
    assert list(bench.intake.take()) == []


def test_a_returned_job_is_claimed_again_as_soon_as_its_model_opens() -> None:
    """Nothing rings for it, since Redis tells a connection nothing of its own pushes."""
    bench = Bench()
    bench.push(*jobs("a"))
    (delivery,) = bench.taken()
    bench.observer.shut.add(MODEL)
    bench.intake.finish(delivery, Return(IDENTITY, ModelNotReady()))
    bench.work()
    assert bench.redis.lists[QUEUE] == jobs("a")
    assert bench.taken() == []
    bench.observer.shut.clear()
    assert [again.raw for again in bench.taken()] == jobs("a")


def test_a_retry_is_claimed_when_it_is_due_without_a_sweep() -> None:
    """Also when nothing else was claimed since."""
    bench = Bench()
    bench.push(*jobs("a"))
    (delivery,) = bench.taken()
    bench.intake.finish(delivery, Retry(IDENTITY, attempt(), 300, ConnectionLost()))
    assert bench.taken() == []
    bench.clock.pass_ms(299)
    assert bench.taken() == []
    bench.clock.pass_ms(1)
    bench.redis.now_ms += 300
    assert [again.attempts for again in bench.taken()] == [(attempt(),)]


def test_expired_jobs_end_without_a_slot() -> None:
    """They never reach the pool, and are settled by the next call."""
    bench = Bench(slots=1)
    bench.push(*jobs("a"), *(job_json(job_id=f"late-{n}", expires_at=LONG_AGO) for n in range(3)))
    assert [delivery.raw for delivery in bench.taken()] == jobs("a")
    bench.clock.pass_ms(SWEEP_MS)
    assert bench.taken() == []
    assert bench.settled == ["late-0", "late-1", "late-2"]
    assert [type(outcome) for _, outcome, _ in bench.observer.committed_ones] == [Settlement] * 3


def test_expired_jobs_of_a_shut_model_are_settled_by_a_sweep() -> None:
    """Their model may be out of order for long."""
    bench = Bench(slots=1)
    bench.observer.shut.add(MODEL)
    bench.push(job_json(job_id="late", expires_at=LONG_AGO), *jobs("a"))
    bench.clock.pass_ms(SWEEP_MS)
    assert bench.taken() == []
    assert bench.settled == ["late"]
    assert bench.redis.lists[QUEUE] == jobs("a")


class TestEnvelopes:
    """Jobs in Celery messages: opened by one more call, with what only Redis knows of them."""

    def test_its_job_is_delivered_with_its_attempts(self) -> None:
        """The task sees the job alone; the claim keeps the message."""
        bench = Bench()
        bench.redis.attempts["j-1"].append(attempt())
        bench.push(envelope())
        (delivery,) = bench.taken()
        assert json.loads(delivery.raw) == job_content()
        assert delivery.attempts == (attempt(),)
        assert [len(asked.opens) for asked in bench.committer.asked] == [0, 1]

    def test_one_at_a_resting_head_is_read_and_ends_or_goes_back(self) -> None:
        """Nothing is taken from a closed model's queue but what has ended."""
        bench = Bench()
        bench.observer.shut.add(MODEL)
        bench.push(envelope(job_content(job_id="late", expires_at=LONG_AGO)), envelope(job_content(job_id="in-time")))
        for _ in range(3):
            bench.clock.pass_ms(SWEEP_MS)
            assert bench.taken() == []
        assert bench.settled == ["late"]
        assert bench.redis.lists[QUEUE] == [envelope(job_content(job_id="in-time"))]
        assert bench.claimed == []

    def test_it_takes_its_slot_while_it_is_opened(self) -> None:
        """So there are never more jobs than slots."""
        bench = Bench(slots=1)
        bench.push(envelope(), *jobs("a"))
        bench.intake.run_once()
        assert len(bench.intake.held()) == 1
        assert len(bench.taken()) == 1
        assert bench.redis.lists[QUEUE] == jobs("a")

    def test_an_expired_one_ends_without_being_delivered(self) -> None:
        """By Redis' clock, as bare ones do."""
        bench = Bench()
        bench.push(envelope(job_content(expires_at=LONG_AGO)))
        assert bench.taken() == []
        assert bench.settled == ["j-1"]

    def test_a_refused_one_is_a_dead_letter_byte_for_byte(self) -> None:
        """With the message, not the job."""
        bench = Bench()
        raw = envelope(eta="2030-01-01T00:00:00Z")
        bench.push(raw)
        assert bench.taken() == []
        assert bench.redis.dead_letters == [(QUEUE, "bad_envelope", raw)]

    def test_one_given_back_while_it_is_opened_is_not_delivered(self) -> None:
        """It is in its queue again, whole."""
        bench = Bench()
        raw = envelope()
        bench.push(raw)
        bench.intake.run_once()
        bench.intake.stop_claiming()
        bench.give_all_back()
        assert bench.taken() == []
        assert bench.redis.lists[QUEUE] == [raw]
        assert len(bench.intake.held()) == 0

    def test_one_given_back_during_the_call_that_opens_it_is_not_delivered(self) -> None:
        """The reply may still say that it is held."""
        bench = Bench()
        bench.push(envelope())
        bench.intake.run_once()

        def give_it_back() -> None:
            bench.committer.meanwhile = lambda: None
            bench.observer.shut.add(MODEL)
            bench.give_all_back()

        bench.committer.meanwhile = give_it_back
        assert bench.taken() == []
        assert bench.redis.lists[QUEUE] == [envelope()]

    def test_one_whose_claim_is_gone_is_not_delivered(self) -> None:
        """Somebody else has it by now."""
        bench = Bench()
        bench.push(envelope())
        bench.intake.run_once()
        bench.redis.claims.clear()
        assert bench.taken() == []
        assert len(bench.intake.held()) == 0

    def test_one_opened_after_the_stop_goes_back(self) -> None:
        """It was claimed before, and is not started any more."""
        bench = Bench()
        raw = envelope()
        bench.push(raw)
        bench.intake.run_once()
        bench.intake.stop_claiming()
        assert bench.taken() == []
        assert bench.redis.lists[QUEUE] == [raw]

    def test_garbage_is_left_to_the_task(self) -> None:
        """What it becomes is told by one function for all."""
        bench = Bench()
        bench.push(b"\xff")
        (delivery,) = bench.taken()
        bench.intake.finish(delivery, bench.run(delivery))
        bench.work()
        assert bench.redis.dead_letters == [(QUEUE, "not_json", b"\xff")]


class TestSuspects:
    """Jobs that crashed before: the intake says which of them runs here, so that no other is begun beside it."""

    LOST = (attempt(AttemptCode.WORKER_LOST),) * 2

    def test_while_one_runs_no_other_is_claimed(self) -> None:
        """It waits for a moment, and is claimed when the first one has ended."""
        bench = Bench(slots=4)
        bench.redis.attempts |= {"a": list(self.LOST), "b": list(self.LOST)}
        bench.push(*jobs("a", "b"))
        (first,) = bench.taken()
        assert (first.job_id, first.alone) == ("a", True)
        bench.pass_ms(1000)
        assert bench.taken() == []
        bench.intake.finish(first, bench.run(first))
        bench.pass_ms(1000)
        assert [(delivery.job_id, delivery.alone) for delivery in bench.taken()] == [("b", True)]

    def test_while_one_runs_no_other_is_opened(self) -> None:
        """Though it came in a message, which the claim could not read."""
        bench = Bench(slots=4)
        bench.redis.attempts |= {"a": list(self.LOST), "j-1": list(self.LOST)}
        bench.push(*jobs("a"), envelope())
        (first,) = bench.taken()
        assert first.job_id == "a"
        assert len(bench.intake.held()) == 1
        bench.intake.finish(first, bench.run(first))
        bench.pass_ms(1000)
        assert [(delivery.job_id, delivery.alone) for delivery in bench.taken()] == [("j-1", True)]

    def test_while_a_message_is_opened_no_suspect_is_claimed(self) -> None:
        """It may turn out to be one itself."""
        bench = Bench(slots=4)
        bench.redis.attempts |= {"a": list(self.LOST), "j-1": list(self.LOST)}
        bench.push(envelope())
        bench.intake.run_once()
        bench.push(*jobs("a"))
        assert [(delivery.job_id, delivery.alone) for delivery in bench.taken()] == [("j-1", True)]

    def test_a_message_does_not_wait_for_itself(self) -> None:
        """Its bytes crashed workers before they were opened, and its job did after: nobody else runs here."""
        bench = Bench()
        bench.redis.attempts |= {"j-1": list(self.LOST), ledger_of(None, envelope()): list(self.LOST)}
        bench.push(envelope())
        assert [(delivery.job_id, delivery.alone) for delivery in bench.taken()] == [("j-1", True)]


class TestStopping:
    """A worker that is told to stop starts nothing more, and leaves nothing in its claims."""

    def test_nothing_more_is_claimed(self) -> None:
        """Whatever rings, falls due or becomes free."""
        bench = Bench()
        bench.intake.stop_claiming()
        bench.push(*jobs("a"))
        bench.clock.pass_ms(SWEEP_MS)
        assert bench.taken() == []
        assert all(asked.claim is None for asked in bench.committer.asked)

    def test_what_a_call_under_way_brings_goes_back(self) -> None:
        """To the front, in the order it had."""
        bench = Bench(slots=2)
        bench.push(*jobs("a", "b", "c"))
        bench.committer.meanwhile = bench.intake.stop_claiming
        assert bench.taken() == []
        assert bench.redis.lists[QUEUE][::-1] == jobs("a", "b", "c")
        assert bench.claimed == []

    def test_what_nobody_has_taken_goes_back_at_once(self) -> None:
        """Celery may have stopped taking, as while it connects anew: no job waits for that until the time to drain is over."""
        bench = Bench(slots=2)
        bench.push(*jobs("a", "b"))
        bench.work()
        bench.intake.stop_claiming()
        assert bench.taken() == []
        assert bench.redis.lists[QUEUE][::-1] == jobs("a", "b")
        assert len(bench.intake.held()) == 0

    def test_running_jobs_are_settled(self) -> None:
        """They have their time to end; then all is quiet."""
        bench = Bench()
        bench.push(*jobs("a"))
        (delivery,) = bench.taken()
        bench.intake.stop_claiming()
        idle = bench.intake.idle()
        bench.work()
        assert not idle.is_set()
        bench.intake.finish(delivery, bench.run(delivery))
        bench.work()
        assert idle.is_set()
        assert bench.settled == ["a"]

    def test_it_is_idle_only_when_all_is_committed(self) -> None:
        """An outcome that Redis has not taken is not safe."""
        bench = Bench()
        bench.push(*jobs("a"))
        (delivery,) = bench.taken()
        bench.intake.stop_claiming()
        bench.intake.finish(delivery, bench.run(delivery))
        idle = bench.intake.idle()
        bench.committer.meanwhile = lambda: pytest.fail("idle too early") if idle.is_set() else None
        bench.work()
        assert idle.is_set()

    def test_whoever_waits_for_jobs_is_woken(self) -> None:
        """Celery's loop is to see that it has to stop."""
        bench = Bench()
        bench.work()
        bench.intake.stop_claiming()
        assert bench.intake.ready.is_set()


def test_a_closed_queue_is_not_claimed_from() -> None:
    """What is in it stays there, until it is opened again."""
    bench = Bench()
    bench.work()
    bench.intake.close_queue(QUEUE)
    bench.push(*jobs("a"))
    assert bench.taken() == []
    bench.intake.open_queue(QUEUE)
    assert len(bench.taken()) == 1


def test_two_models_share_the_slots_in_turn() -> None:
    """A full queue does not keep the other's jobs out."""
    bench = Bench(slots=1)
    bench.intake.open_queue(KEYS.jobs(OTHER_MODEL))
    bench.push(*jobs("a1", "a2", "a3"))
    bench.push(*jobs("b1", "b2", "b3"), queue=KEYS.jobs(OTHER_MODEL))
    order = []
    for _ in range(6):
        (delivery,) = bench.taken()
        order.append(json.loads(delivery.raw)["job_id"])
        bench.intake.finish(delivery, DeadLetter(DeadLetterReason.NOT_JSON))
    assert {*order[:2]} == {"a1", "b1"}
    assert {*order[2:4]} == {"a2", "b2"}


def test_redis_time_is_learned_from_each_claim() -> None:
    """Dead letters and counters are dated by it."""
    bench = Bench()
    bench.redis.now_ms = 1_796_032_899_000
    bench.work()
    assert bench.intake.redis_clock.now_ms() == 1_796_032_899_000


def test_a_wrong_job_is_settled_by_its_task() -> None:
    """It has an id, so the intake treats it as any other."""
    bench = Bench()
    bench.push(job_json(max_tokens=0))
    (delivery,) = bench.taken()
    outcome = bench.run(delivery)
    assert isinstance(outcome, Settlement)
    assert isinstance(outcome.error, InvalidJob)
    bench.intake.finish(delivery, outcome)
    bench.work()
    assert bench.settled == ["j-1"]
