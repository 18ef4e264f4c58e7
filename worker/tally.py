"""What this run of the worker has done so far: the counters of its health key, and the log lines of single jobs."""

from dataclasses import dataclass
from logging import INFO
from typing import Any

import structlog

from tasks.delivery import DeadLetter, Delivery, Duplicate, Outcome, Retry, Return, Settlement
from tasks.errors import ErrorCode, JobError
from tasks.reading import JobIdentity
from tasks.tensor_result import Result
from tasks.usage import Spent, Usage
from worker.clock import RedisClock
from worker.outcomes import SETTLED, SETTLED_BEFORE

log = structlog.get_logger()


@dataclass(slots=True)
class Tally:
    """Counts outcomes once Redis has taken them."""

    redis_clock: RedisClock
    succeeded_total: int = 0
    failed_total: int = 0
    retried_total: int = 0
    returned_total: int = 0
    dead_lettered_total: int = 0
    duplicates_total: int = 0
    """Jobs that were there a second time, and settlements that changed nothing."""
    claims_lost_total: int = 0
    """Outcomes that came too late: this run had been declared dead."""
    claims_reaped_total: int = 0
    """Jobs of dead runs that went back to their queues."""
    wasted_tokens_total: int = 0
    """Tokens that were spent on attempts of which nothing was settled."""
    consecutive_failures: int = 0
    last_error_code: ErrorCode | None = None
    last_error_at: str | None = None
    last_success_at: str | None = None

    def committed(self, delivery: Delivery, outcome: Outcome | None, word: int) -> None:
        """Count one outcome, with the script's word for it; None is a job put back unstarted."""
        match outcome:
            case Settlement(identity, result, error) if word == SETTLED:
                self._settled(error)
                if log.is_enabled_for(INFO):  # There is one for each job: nobody gathers what nobody reads.
                    log.info("job.settled", **_about(delivery, identity), **_figures(result))
            case Settlement(identity, result):
                self._wasted(result.attempts[-1].usage if result.attempts else None)
                self._unsettled(_about(delivery, identity), word)
            case Retry(identity, attempt) if word != SETTLED:
                self._wasted(attempt.usage)
                self._claim_lost(_about(delivery, identity))
            case Retry(identity, attempt, delay_ms, error):
                self.retried_total += 1
                self._wasted(attempt.usage)
                self._failed(error)
                log.info("job.delayed", **_about(delivery, identity), code=attempt.code, delay_ms=delay_ms)
            case Return(identity, error):
                self.returned_total += 1
                self._failed(error)
                log.info("job.returned", **_about(delivery, identity), code=error.code)
            case Duplicate(identity):
                self.duplicates_total += 1
                log.info("job.was_dropped", **_about(delivery, identity))
            case DeadLetter(reason):
                self.dead_lettered_total += 1
                log.warning("job.dead_lettered", **_about(delivery), reason=reason)
            case None:
                self.returned_total += 1
                log.info("job.returned", **_about(delivery), code=None)

    def reaped(self, jobs: int) -> None:
        """Count the jobs of a dead run that went back to their queues."""
        self.claims_reaped_total += jobs

    def _settled(self, error: JobError | None) -> None:
        if error is None:
            self.succeeded_total += 1
            self.consecutive_failures = 0
            self.last_success_at = self.redis_clock.now()
        else:
            self.failed_total += 1
            self._failed(error)

    def _unsettled(self, about: dict[str, str], word: int) -> None:
        if word == SETTLED_BEFORE:
            self.duplicates_total += 1
            log.warning("job.was_settled_before", **about)
        else:
            self._claim_lost(about)

    def _claim_lost(self, about: dict[str, str]) -> None:
        self.claims_lost_total += 1
        log.warning("claim.was_lost", **about)

    def _failed(self, error: JobError) -> None:
        self.last_error_code = error.code
        self.last_error_at = self.redis_clock.now()
        if error.counts_for_circuit:
            self.consecutive_failures += 1

    def _wasted(self, usage: Spent | None) -> None:
        self.wasted_tokens_total += usage.total_tokens if isinstance(usage, Usage) else 0


def _about(delivery: Delivery, identity: JobIdentity | None = None) -> dict[str, str]:
    known = {"model": delivery.queue_model, "tag": delivery.tag}
    return known if identity is None else {**known, "job_id": identity.job_id}


def _figures(result: Result) -> dict[str, Any]:
    usage, timings = result.usage, result.timings
    return {
        "status": result.status,
        "usage": usage.model_dump() if usage else None,
        "queued_ms": timings.queued_ms,
        "pool_wait_ms": timings.pool_wait_ms,
        "inference_ms": timings.inference_ms,
    }
