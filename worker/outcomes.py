"""From a task's outcome to what the ledger is asked to do for it. Pure."""

from dataclasses import dataclass
from typing import Final, TypedDict, assert_never

from tasks import rfc3339
from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import ConnectionLost, JobCancelled, RuntimeTimeout
from tasks.generate import cancelled
from tasks.result import Attempt, AttemptCode
from tasks.usage import Units, Usage
from worker import exchange

SETTLED: Final = 1
SETTLED_BEFORE: Final = 0
CANCELLED_MEANWHILE: Final = 2
NO_OTHER: Final = 2
"""The scripts' words (worker/lua): the last two are of settling and of dropping."""


@dataclass(frozen=True, slots=True)
class Done:
    """A delivery on its way out of its claim; ``outcome`` is None for one that is put back unstarted."""

    delivery: Delivery
    outcome: Outcome | None
    commit: exchange.Commit


@dataclass(frozen=True, slots=True)
class AfterCommit:
    """What follows from a script's word: something else is to be committed instead, or a ledger is to be amended."""

    instead: Done | None = None
    amend: exchange.Amend | None = None


def follow_up(done: Done, word: int, worker_id: str) -> AfterCommit:
    """Return what a script's word leads to."""
    delivery = done.delivery
    match done.commit, done.outcome:
        case exchange.Settle(), Settlement() as settlement if word == CANCELLED_MEANWHILE:
            ended = cancelled(settlement)
            return AfterCommit(instead=Done(delivery, ended, as_commit(delivery, ended)))
        case exchange.Drop(), _ if word == NO_OTHER:
            return AfterCommit(instead=Done(delivery, None, exchange.Return(delivery.tag)))
        case ((exchange.Settle() | exchange.Retry()), outcome) if is_lost(done.commit, word):
            attempt = last_attempt(outcome)
            return AfterCommit(amend=_amendment(delivery, worker_id, attempt) if attempt else None)
    return AfterCommit()


def is_lost(commit: exchange.Commit, word: int) -> bool:
    """Tell whether a commit came too late: its claim was gone."""
    return word == (-1 if isinstance(commit, exchange.Settle) else 0)


def as_commit(delivery: Delivery, outcome: Outcome) -> exchange.Commit:
    """Return the commit that carries an outcome out."""
    match outcome:
        case Settlement(identity, result, error):
            return exchange.Settle(
                delivery.tag,
                identity.job_id,
                identity.model,
                result.status,
                identity.fingerprint,
                result.model_dump_json(),
                heed_cancel=not isinstance(error, JobCancelled),
                holds=delivery.holds,
                run=became_of(outcome),
                **_spent(result.usage),
            )
        case Retry(identity, attempt, delay_ms):
            run, spent = became_of(outcome), _spent(attempt.usage)["spent"]
            job_id, tried = identity.job_id, attempt.model_dump_json()
            return exchange.Retry(delivery.tag, job_id, identity.fingerprint, delay_ms, tried, run, spent)
        case Return():
            return exchange.Return(delivery.tag)
        case Duplicate(identity):
            return exchange.Drop(delivery.tag, identity.job_id)
        case DeadLetter(reason):
            return exchange.Bury(delivery.tag, reason)
        case _:
            assert_never(outcome)


def became_of(outcome: Settlement | Retry) -> exchange.Run:
    """Return what became of a job's inference. Triton does not cancel: one whose answer was lost may be on for all we know."""
    error = outcome.error
    if error is not None and not error.may_have_run:
        return exchange.Run.UNSTARTED
    if isinstance(error, ConnectionLost) or (isinstance(error, RuntimeTimeout) and error.upstream_status is not None):
        return exchange.Run.ON  # A timeout with a status is a proxy's: ours has its slot lapse by itself.
    return exchange.Run.OVER


class _Spent(TypedDict):
    spent: int
    prompt_tokens: int


def _spent(usage: Usage | Units | None) -> _Spent:
    if not isinstance(usage, Usage):  # Token limits do not apply to tensors.
        return {"spent": 0, "prompt_tokens": 0}
    return {"spent": usage.total_tokens, "prompt_tokens": usage.prompt_tokens}


def drained(delivery: Delivery, worker_id: str) -> Attempt:
    """Return the attempt of a job that was running when its worker had to stop."""
    return Attempt(
        worker_id=worker_id,
        started_at=rfc3339.from_ms(delivery.claimed_at_ms),
        code=AttemptCode.DRAINED,
        inference_ms=None,
        usage=None,
    )


def last_attempt(outcome: Outcome | None) -> Attempt | None:
    """Return the attempt that an outcome is about, None where nothing was tried."""
    match outcome:
        case Settlement(_, result):
            return result.attempts[-1] if result.attempts else None
        case Retry(_, attempt):
            return attempt
        case _:
            return None


def _amendment(delivery: Delivery, worker_id: str, attempt: Attempt) -> exchange.Amend | None:
    """Return what corrects the ledger of a job whose claim was lost while it ran here: the run did end, and spent this.

    The reaper wrote the attempt down as lost, in the very words that are made here again (lua/reap_if_stood_still.lua). But
    for the code and what was spent it stays as it is: by that a settlement finds it (lua/settle_if_claimed.lua).
    """
    if delivery.job_id is None:
        return None
    lost = attempt.model_copy(
        update={
            "worker_id": worker_id,
            "started_at": rfc3339.from_ms(delivery.claimed_at_ms),
            "code": AttemptCode.WORKER_LOST,
            "inference_ms": None,
            "usage": None,
        }
    )
    spent = {"code": AttemptCode.LEASE_LOST, "inference_ms": attempt.inference_ms, "usage": attempt.usage}
    was = lost.model_copy(update=spent)
    return exchange.Amend(delivery.job_id, lost.model_dump_json(), was.model_dump_json())
