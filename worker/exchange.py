"""What is asked of Redis in one round trip, and what it answers: the value types of the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.result import Attempt

Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Settle:
    """A job's end."""

    tag: str
    job_id: str
    model: str
    status: str
    fingerprint: str
    result: str

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for this job."""
        return self.tag, self.job_id, self.model, self.status, self.fingerprint, self.result


@dataclass(frozen=True, slots=True)
class Retry:
    """A job that waits, and what its attempt adds to its ledger."""

    tag: str
    job_id: str
    delay_ms: int
    attempt: str

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for this job."""
        return self.tag, self.job_id, self.delay_ms, self.attempt


@dataclass(frozen=True, slots=True)
class Return:
    """A job that goes back to the front of its queue."""

    tag: str

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for this job."""
        return (self.tag,)

    @property
    def place(self) -> tuple[int, int]:
        """Return the job's place among those of its incarnation: tags are ``<call>.<n>``."""
        call, _, n = self.tag.partition(".")
        return int(call), int(n)


@dataclass(frozen=True, slots=True)
class Bury:
    """Bytes that go to the dead letters."""

    tag: str
    reason: str

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for these bytes."""
        return self.tag, self.reason


@dataclass(frozen=True, slots=True)
class Open:
    """A claimed job that the claim script could not read; times in Redis' unix ms."""

    tag: str
    job_id: str
    expires_ms: int | None
    enqueued_ms: int | None


Commit = Settle | Retry | Return | Bury


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """How many jobs are wanted, of which models. ``number`` is this call's: a repeat carries the same.

    Of ``closed`` models, and of ``open`` ones once enough is taken, expired jobs at the head are claimed, at most ``most_expired``.
    """

    number: int
    wanted: int
    open: tuple[str, ...]
    closed: tuple[str, ...] = ()
    most_expired: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """All that is asked of Redis in one round trip."""

    commits: tuple[Commit, ...] = ()
    opens: tuple[Open, ...] = ()
    claim: ClaimRequest | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A job in this incarnation's hands. ``job_id`` is None where the script could not read it."""

    tag: str
    queue: str
    raw: bytes
    job_id: str | None
    expired: bool
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """What the ledger knew of an opened claim; ``held`` is False where the claim is gone."""

    held: bool
    expired: bool
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The reply to a claim. ``next_due_ms`` is when the next retry is due, by Redis' clock."""

    now_ms: int
    next_due_ms: int | None
    empty: frozenset[str]
    returned: frozenset[str]
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """``outcomes`` are the scripts' words for each commit, in order: 1 done, 0 and -1 as the scripts say."""

    outcomes: tuple[int, ...] = ()
    opened: tuple[Opened, ...] = ()
    claimed: Claimed | None = None
