"""From the replies of the scripts about claims to values. Pure."""

from collections.abc import Sequence
from typing import Any, Final

import structlog
from pydantic import ValidationError

from tasks.delivery import Standing
from tasks.result import Attempt
from worker.exchange import Claim, Claimed, ClaimRequest, Known, Limit, Postponed, Refusal
from worker.keys import Keys

_STILL_CLAIMED: Final = 1
_WAITS_FOR_TOKENS: Final = 3

log = structlog.get_logger()


def _known(holds: bytes, standing: bytes, rival: bytes, alone: int, attempts: Sequence[bytes]) -> Known:
    return Known(Standing(standing.decode()), rival, bool(alone), tuple(_readable(attempts)), holds.decode())


def _readable(items: Sequence[bytes]) -> list[Attempt]:
    attempts = []
    for item in items:
        try:
            attempts.append(Attempt.model_validate_json(item))
        except ValidationError:
            # Somebody else wrote there. A ledger with a gap is worse than none, but no reason to stop for.
            log.error("attempt.was_unreadable", bytes=len(item))
    return attempts


def opened_of(reply: list[Any]) -> Known | Postponed | None:
    """Return what was said of a job that was opened; None where its claim is gone or was set aside."""
    word, again_ms, holds, standing, rival, alone, *attempts = reply
    if word == _WAITS_FOR_TOKENS:
        return Postponed(again_ms)
    return _known(holds, standing, rival, alone, attempts) if word == _STILL_CLAIMED else None


def claimed_of(reply: list[Any], asked: ClaimRequest, keys: Keys) -> Claimed:
    """Return what was said to a claim request."""
    now_ms, next_due_ms, empty, returned, claims, held_lease, unusable, refused = reply
    models = (*asked.open, *asked.closed)
    return Claimed(
        now_ms,
        next_due_ms if next_due_ms >= 0 else None,
        frozenset(models[index - 1] for index in empty),
        frozenset(keys.model_of(queue.decode()) for queue in returned),
        tuple(_claim(claim) for claim in claims),
        bool(held_lease),
        frozenset(name.decode() for name in unusable),
        {models[index - 1]: _refusal(limit, again_ms) for index, limit, again_ms in refused},
    )


def _refusal(limit: bytes, again_ms: int) -> Refusal:
    return Refusal(Limit(limit.decode()), again_ms if again_ms >= 0 else None)


def _claim(reply: list[Any]) -> Claim:
    tag, queue, raw, job_id, claimed_ms, *known = reply
    holds, standing, rival, alone, *attempts = known
    return Claim(
        tag.decode(),
        queue.decode(),
        raw,
        job_id.decode() or None,
        claimed_ms,
        _known(holds, standing, rival, alone, attempts),
    )
