"""What producers put into the queues: drawn from the seed up front, so that a run can be repeated. Pure."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from tasks.errors import ErrorCode
from tasks.fingerprint import fingerprint
from tasks.job import TASK_NAME
from tests.garbage import GARBAGE
from tests.jobs import MODEL
from worker.keys import PRIORITIES

RAISING_MODEL: Final = "acme/faulty"
"""The public name of the model whose inferences fail when their prompt says so."""

_LONGEST_GARBAGE: Final = 20_000


class Kind(StrEnum):
    """What a job is, which says how it has to end."""

    PLAIN = "plain"
    LONG = "long"
    CELERY = "celery"
    RAISING = "raising"
    TWICE = "twice"
    CONFLICT = "conflict"
    GARBAGE = "garbage"
    WRONG = "wrong"
    CANCELLED_BEFORE = "cancelled-before"
    CANCELLED_LATER = "cancelled-later"
    EXPIRED = "expired"


SHARES: Final[Mapping[Kind, float]] = {
    Kind.PLAIN: 64,
    Kind.LONG: 6,
    Kind.CELERY: 6,
    Kind.RAISING: 3,
    Kind.TWICE: 6,
    Kind.CONFLICT: 3,
    Kind.GARBAGE: 4,
    Kind.WRONG: 3,
    Kind.CANCELLED_BEFORE: 1,
    Kind.CANCELLED_LATER: 3,
    Kind.EXPIRED: 1,
}
"""Of a hundred jobs."""

_WRONG: Final[tuple[tuple[dict[str, Any], ErrorCode], ...]] = (
    ({"max_tokens": 0}, ErrorCode.INVALID_JOB),
    ({"surprise": 1}, ErrorCode.INVALID_JOB),
    ({"stream": True}, ErrorCode.STREAMING_NOT_SUPPORTED),
    ({"model": "acme/another"}, ErrorCode.MODEL_NOT_SUPPORTED),
)


@dataclass(frozen=True, slots=True)
class Push:
    """Bytes for the back of a list, ``at`` seconds after the start. One that is not ``careful`` is sent again after a lost reply."""

    number: int
    at: float
    kind: Kind
    job_id: str
    queue: str
    raw: bytes
    content: Mapping[str, Any]
    careful: bool = True
    cancel_first: bool = False
    code: ErrorCode | None = None
    """What it has to fail with, None where it has to succeed."""

    @property
    def fingerprint(self) -> str:
        """Return what the ledger tells its content by."""
        return fingerprint(dict(self.content))


@dataclass(frozen=True, slots=True)
class Cancel:
    """A cancellation, ``at`` seconds after the start."""

    at: float
    job_id: str


@dataclass(frozen=True)
class Load:
    """Everything that producers do, in time order."""

    pushes: tuple[Push, ...]
    cancels: tuple[Cancel, ...]

    @cached_property
    def by_job(self) -> Mapping[str, tuple[Push, ...]]:
        """Return the pushes of each job_id; garbage has none."""
        found: dict[str, list[Push]] = {}
        for push in self.pushes:
            if push.job_id:
                found.setdefault(push.job_id, []).append(push)
        return {job_id: tuple(pushes) for job_id, pushes in found.items()}

    def part(self, index: int, of: int) -> list[Push | Cancel]:
        """Return what one of several producers does, in time order."""
        whole: list[Push | Cancel] = [*self.pushes, *self.cancels]
        return sorted(whole, key=lambda one: one.at)[index::of]


def draw_load(seed: int, jobs: int, seconds: float, shares: Mapping[Kind, float] = SHARES) -> Load:
    """Return the load of a run: ``jobs`` jobs spread over ``seconds``, and what is sent twice beside them."""
    drawing = _Drawing(random.Random(f"{seed}/load"), shares)
    for number in range(jobs):
        drawing.add(number, (number + drawing.draw.random()) * seconds / jobs)
    pushes = sorted(drawing.pushes, key=lambda push: push.at)
    return Load(tuple(pushes), tuple(sorted(drawing.cancels, key=lambda cancel: cancel.at)))


@dataclass(slots=True)
class _Drawing:
    draw: random.Random
    shares: Mapping[Kind, float]
    pushes: list[Push] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)

    def add(self, number: int, at: float) -> None:
        (kind,) = self.draw.choices([*self.shares], [*self.shares.values()])
        job_id = f"job-{number:06}"
        if kind is Kind.GARBAGE:
            small = [garbage.raw for garbage in GARBAGE if len(garbage.raw) <= _LONGEST_GARBAGE]
            self._push(at, kind, "", {}, raw=self.draw.choice(small))
        elif kind is Kind.WRONG:
            changes, code = self.draw.choice(_WRONG)
            self._push(at, kind, job_id, {**self._content(job_id, kind), **changes}, code=code)
        else:
            self._push(at, kind, job_id, self._content(job_id, kind))
            self._follow(kind, job_id, at)

    def _follow(self, kind: Kind, job_id: str, at: float) -> None:
        later = at + self.draw.choice((0.0, self.draw.uniform(0.0, 3.0)))
        if kind is Kind.TWICE:
            self._push(later, kind, job_id, self.pushes[-1].content)
        elif kind is Kind.CONFLICT:
            self._push(later, kind, job_id, self._content(job_id, kind, "another"))
        elif kind is Kind.CANCELLED_LATER:
            self.cancels.append(Cancel(at + self.draw.uniform(0.1, 1.0), job_id))

    def _push(
        self,
        at: float,
        kind: Kind,
        job_id: str,
        content: Mapping[str, Any],
        *,
        raw: bytes | None = None,
        code: ErrorCode | None = None,
    ) -> None:
        if raw is None:
            raw = _celery(content) if kind is Kind.CELERY else json.dumps(content).encode()
        model = RAISING_MODEL if kind is Kind.RAISING else MODEL
        codes = {
            Kind.RAISING: ErrorCode.TRITON_INFERENCE_FAILED,
            Kind.CANCELLED_BEFORE: ErrorCode.JOB_CANCELLED,
            Kind.EXPIRED: ErrorCode.JOB_EXPIRED,
        }
        plain = kind in {Kind.PLAIN, Kind.TWICE}
        self.pushes.append(
            Push(
                number=len(self.pushes),
                at=at,
                kind=kind,
                job_id=job_id,
                queue=model + (self.draw.choice(PRIORITIES) if self.draw.random() < 0.1 else ""),
                raw=raw,
                content=content,
                careful=not plain or self.draw.random() < 0.5,
                cancel_first=kind is Kind.CANCELLED_BEFORE,
                code=code or codes.get(kind),
            )
        )

    def _content(self, job_id: str, kind: Kind, word: str = "one") -> dict[str, Any]:
        words = " ".join([word, *["more"] * self.draw.randrange(12)])
        long = kind in {Kind.LONG, Kind.CANCELLED_LATER}
        seconds = self.draw.uniform(0.8, 2.2) if long else self.draw.choice((0, 0.01, 0.05, 0.2))
        prompt = f"sleep={seconds:.2f} {job_id} {words}" if seconds else f"{job_id} {words}"
        content: dict[str, Any] = {"job_id": job_id, "model": MODEL, "prompt": prompt}
        content["max_tokens"] = self.draw.randrange(1, 200)
        if kind is Kind.RAISING:
            content |= {"model": RAISING_MODEL, "prompt": f"raise {job_id}"}
        if kind is Kind.EXPIRED:
            content["expires_at"] = "2020-01-01T00:00:00Z"
        if self.draw.random() < 0.2:
            content["metadata"] = {"origin": "chaos"}
        return content


def _celery(content: Mapping[str, Any]) -> bytes:
    """Return a job in a Celery message, as any language can write one."""
    job_id = content["job_id"]
    message = {
        "body": json.dumps([[content], {}, {}]),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": TASK_NAME, "id": job_id},
        "properties": {"body_encoding": "utf-8", "delivery_tag": job_id, "delivery_info": {"exchange": ""}},
    }
    return json.dumps(message).encode()
