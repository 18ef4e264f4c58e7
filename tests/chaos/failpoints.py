"""Moments at which a worker ends itself, as kill -9 does: each step of a job before which, or after which, it may be killed."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tasks.delivery import Delivery
from tasks.generate import Generation
from tasks.job import GenerateJob
from worker.exchange import Exchange, ExchangeReply, Settle
from worker.intake_ports import Committer
from worker.runtime import Runtime


@dataclass(slots=True)
class Countdown:
    """Ends this process at the Nth job."""

    left: int

    def passed(self, jobs: int = 1) -> None:
        """Learn that some jobs have come to the point."""
        self.left -= jobs
        if jobs and self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class _Watched:
    """The committer, with something to do before and after each exchange."""

    committer: Committer
    before: Callable[[Exchange], None]
    after: Callable[[Exchange, ExchangeReply], None]

    def exchange(self, asked: Exchange) -> ExchangeReply:
        self.before(asked)
        reply = self.committer.exchange(asked)
        self.after(asked, reply)
        return reply


def _settles(asked: Exchange) -> int:
    return sum(isinstance(commit, Settle) for commit in asked.commits)


def _after_claim(runtime: Runtime, countdown: Countdown) -> None:
    def after(_asked: Exchange, reply: ExchangeReply) -> None:
        countdown.passed(len(reply.claimed.claims) if reply.claimed else 0)

    runtime.intake.committer = _Watched(runtime.intake.committer, lambda _: None, after)


def _before_infer(runtime: Runtime, countdown: Countdown) -> None:
    infer = runtime._inference.infer

    def counted(job: GenerateJob, request_id: str) -> Generation:
        countdown.passed()
        return infer(job, request_id)

    setattr(runtime._inference, "infer", counted)  # noqa: B010 - mypy lets no method be assigned


def _after_infer(runtime: Runtime, countdown: Countdown) -> None:
    infer = runtime._inference.infer

    def counted(job: GenerateJob, request_id: str) -> Generation:
        generation = infer(job, request_id)
        countdown.passed()
        return generation

    setattr(runtime._inference, "infer", counted)  # noqa: B010 - as above


def _before_settle(runtime: Runtime, countdown: Countdown) -> None:
    def before(asked: Exchange) -> None:
        countdown.passed(_settles(asked))

    runtime.intake.committer = _Watched(runtime.intake.committer, before, lambda *_: None)


def _after_settle(runtime: Runtime, countdown: Countdown) -> None:
    def after(asked: Exchange, _reply: ExchangeReply) -> None:
        countdown.passed(_settles(asked))

    runtime.intake.committer = _Watched(runtime.intake.committer, lambda _: None, after)


def _before_end(runtime: Runtime, countdown: Countdown) -> None:
    perform = runtime.perform

    def counted(delivery: Delivery) -> None:
        perform(delivery)
        countdown.passed()

    setattr(runtime, "perform", counted)  # noqa: B010 - as above


FAILPOINTS: Final[Mapping[str, Callable[[Runtime, Countdown], None]]] = {
    "after-claim": _after_claim,
    "before-infer": _before_infer,
    "after-infer": _after_infer,
    "before-settle": _before_settle,
    "after-settle": _after_settle,
    "before-end": _before_end,
}
"""By name; the last is where Celery would acknowledge."""


def arm(runtime: Runtime, failpoint: str) -> None:
    """Have this process end at ``NAME:N``."""
    name, _, jobs = failpoint.partition(":")
    FAILPOINTS[name](runtime, Countdown(int(jobs or 1)))
