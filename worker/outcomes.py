"""From a task's outcome to what the ledger is asked to do for it. Pure."""

from typing import assert_never

from tasks.generate import DeadLetter, Delivery, Outcome, Retry, Return, Settlement
from worker import exchange


def as_commit(delivery: Delivery, outcome: Outcome) -> exchange.Commit:
    """Return the commit that carries an outcome out."""
    match outcome:
        case Settlement(identity, result):
            return exchange.Settle(
                delivery.tag,
                identity.job_id,
                identity.model,
                result.status,
                identity.fingerprint,
                result.model_dump_json(),
            )
        case Retry(identity, attempt, delay_ms):
            return exchange.Retry(delivery.tag, identity.job_id, delay_ms, attempt.model_dump_json())
        case Return():
            return exchange.Return(delivery.tag)
        case DeadLetter(reason):
            return exchange.Bury(delivery.tag, reason)
        case _:
            assert_never(outcome)
