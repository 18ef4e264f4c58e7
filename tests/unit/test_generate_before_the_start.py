"""What the task does with what it does not run."""

from tasks.delivery import DeadLetter, Standing
from tasks.errors import ErrorCode
from tasks.generate import generate
from tasks.reading import DeadLetterReason, ModelLimits
from tests.fakes import FakeInference
from tests.garbage import GARBAGE, WRONG_JOBS
from tests.generating import failed, ports, ran, settled
from tests.jobs import MODEL, attempt, delivery, job_json, usage


def test_garbage_is_a_dead_letter() -> None:
    """Each kind, and nothing is asked of Triton for it."""
    inference = FakeInference()
    for garbage in GARBAGE:
        assert generate(delivery(garbage.raw), ports(inference)) == DeadLetter(garbage.reason), garbage.name
    assert inference.asked == []


def test_a_wrong_job_is_settled_with_its_code() -> None:
    """Each kind, without an attempt, and nothing is asked of Triton for it."""
    inference = FakeInference()
    for wrong in WRONG_JOBS:
        outcome = generate(delivery(wrong.raw), ports(inference))
        assert failed(outcome) is wrong.code, wrong.name
        result = settled(outcome)
        assert (result.job_id, result.attempts, result.usage) == (wrong.job_id, [], None), wrong.name
    assert inference.asked == []


def test_a_wrong_job_is_echoed_to_whom_it_belongs() -> None:
    """The gateway finds the customer and the batch."""
    raw = job_json(prompt="", tenant="t", batch_id="b", custom_id="c", metadata={"a": "b"})
    result = settled(ran(of=delivery(raw)))
    assert (result.tenant, result.batch_id, result.custom_id, result.metadata) == ("t", "b", "c", {"a": "b"})


def test_an_expired_job_is_not_run() -> None:
    """The claim says so, by Redis' clock."""
    inference = FakeInference()
    assert failed(generate(delivery(standing=Standing.EXPIRED), ports(inference))) is ErrorCode.JOB_EXPIRED
    assert inference.asked == []


def test_what_is_wrong_with_a_job_comes_before_its_expiry() -> None:
    """A wrong job that expired must be told what is wrong: sending it again would not help."""
    assert failed(ran(of=delivery(job_json(prompt=""), standing=Standing.EXPIRED))) is ErrorCode.INVALID_JOB


def test_expiry_between_two_attempts_keeps_what_was_spent() -> None:
    """The ledger, and the usage of the last attempt."""
    earlier = (attempt(ErrorCode.RUNTIME_CONNECTION_LOST, usage(5, 1)), attempt(ErrorCode.INTERNAL_ERROR, usage(5, 7)))
    result = settled(ran(of=delivery(standing=Standing.EXPIRED, attempts=earlier)))
    assert (tuple(result.attempts), result.usage) == (earlier, usage(5, 7))


def test_an_undeclared_model_is_not_run() -> None:
    """Whatever Triton has loaded."""
    inference = FakeInference()
    assert failed(generate(delivery(), ports(inference, limits={}))) is ErrorCode.MODEL_NOT_SUPPORTED
    assert inference.asked == []


def test_each_queue_has_its_models_limits() -> None:
    """Those of the queue's model, not of another."""
    limits = {MODEL: ModelLimits(max_prompt_bytes=1024), "acme/model-2": ModelLimits(max_prompt_bytes=4)}
    assert settled(ran(limits=limits)).status == "succeeded"
    other = delivery(job_json(model="acme/model-2"), queue_model="acme/model-2")
    assert failed(ran(of=other, limits=limits)) is ErrorCode.INVALID_JOB


def test_the_size_limit_is_the_workers() -> None:
    """What is over it is a dead letter."""
    assert ran(max_job_bytes=10) == DeadLetter(DeadLetterReason.TOO_LARGE)
