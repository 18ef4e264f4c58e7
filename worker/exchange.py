"""What is asked of Redis in one round trip, and what it answers: the value types of the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tasks.delivery import Standing
from tasks.result import Attempt
from worker.scripts import Argument


class Run(StrEnum):
    """What became of a claim's inference, and so of what it holds of its pool (lua/claims.lua)."""

    UNSTARTED = "unstarted"
    """It never ran, and costs nothing."""
    OVER = "over"
    """It has ended, and spent what it spent."""
    ON = "on"
    """The runtime may still be busy with it: its slot stays taken until it lapses."""


class Limit(StrEnum):
    """Why jobs of a model were not claimed though some may wait."""

    SLOTS = "slots"
    REQUESTS = "requests"
    TOKENS = "tokens"
    TURN = "turn"
    """There is room, for another worker that has waited longer."""
    CIRCUIT = "circuit"
    PROBES = "probes"
    """The circuit is half open, and as many jobs run as it lets through."""
    PAUSED = "paused"
    OPENING = "opening"
    """One of its jobs is being opened, to learn what tokens it needs."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which limit stood in the way, and when to ask again; None: a change rings."""

    limit: Limit
    ask_again_ms: int | None


@dataclass(frozen=True, slots=True)
class Settle:
    """A job's end. ``holds`` is what its claim held; ``spent`` and ``prompt_tokens`` are true counts, 0 where there are none."""

    tag: str
    job_id: str
    model: str
    status: str
    fingerprint: str
    result: str = field(repr=False)
    heed_cancel: bool = True
    """Whether the job is left alone if it was cancelled meanwhile: then its end is another."""
    holds: str = ""
    run: Run = Run.UNSTARTED
    spent: int = 0
    prompt_tokens: int = 0

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for this job."""
        job = (self.tag, self.job_id, self.model, self.status, self.fingerprint, self.result, int(self.heed_cancel))
        return *job, self.holds, self.run, self.spent, self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Retry:
    """A job that waits, and what its attempt adds to its ledger."""

    tag: str
    job_id: str
    fingerprint: str
    delay_ms: int
    attempt: str
    run: Run = Run.OVER
    spent: int = 0

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for this job."""
        return self.tag, self.job_id, self.fingerprint, self.delay_ms, self.attempt, self.run, self.spent


@dataclass(frozen=True, slots=True)
class Return:
    """A job that goes back to the front of its queue; ``attempt`` is JSON for one that may have reached the runtime."""

    tag: str
    attempt: str = ""

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for this job."""
        return self.tag, self.attempt

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
class Drop:
    """A job that is there a second time."""

    tag: str
    job_id: str

    def arguments(self) -> Sequence[Argument]:
        """Return what the script takes for this job."""
        return self.tag, self.job_id


@dataclass(frozen=True, slots=True)
class Amend:
    """An attempt that was written down as lost, and what it was: both as JSON."""

    job_id: str
    lost: str
    was: str


@dataclass(frozen=True, slots=True)
class Open:
    """A claimed job that the claim script could not read; times in Redis' unix ms. Without tokens, ``max_tokens`` is 0."""

    tag: str
    job_id: str
    fingerprint: str
    expires_ms: int | None
    enqueued_ms: int | None
    model: str
    prompt_bytes: int = 0
    max_tokens: int = 0


Commit = Settle | Retry | Return | Bury | Drop


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """How many jobs are wanted, of which models. ``number`` is this call's: a repeat carries the same.

    Of ``closed`` models, and of ``open`` ones once enough is taken, heads that have expired or were cancelled are claimed, at most
    ``most_ended``. ``one_runs_alone`` tells whether a job that must run alone among its like runs here now. ``quotas`` bounds how
    many jobs of each open model are taken, none where it is empty; ``opening`` are models of which a job is being opened.
    """

    number: int
    wanted: int
    open: tuple[str, ...]
    closed: tuple[str, ...] = ()
    most_ended: int = 0
    one_runs_alone: bool = False
    quotas: tuple[int, ...] = ()
    opening: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Exchange:
    """All that is asked of Redis in one round trip. ``one_runs_alone`` is about ``opens``, as a claim's is about itself."""

    commits: tuple[Commit, ...] = ()
    amends: tuple[Amend, ...] = ()
    opens: tuple[Open, ...] = ()
    claim: ClaimRequest | None = None
    one_runs_alone: bool = False
    freed: tuple[str, ...] = ()
    """Slots that were left taken, and whose inferences are known to be over."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of a job. ``rival`` is bytes where it is held elsewhere, else a fingerprint.

    ``holds`` is what it was granted of its pool: without that it must not be run.
    """

    standing: Standing
    rival: bytes = field(repr=False)
    alone: bool
    attempts: tuple[Attempt, ...]
    holds: str = ""


@dataclass(frozen=True, slots=True)
class Postponed:
    """A job that went back to the front while it was opened: its tokens are not there."""

    ask_again_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A job in this incarnation's hands. ``job_id`` is None where the script could not read it."""

    tag: str
    queue: str
    raw: bytes = field(repr=False)
    job_id: str | None
    claimed_ms: int
    """When it was claimed, by Redis' clock."""

    known: Known


@dataclass(frozen=True, slots=True)
class Claimed:
    """The reply to a claim. ``next_due_ms`` is when the next retry is due, by Redis' clock."""

    now_ms: int
    next_due_ms: int | None
    empty: frozenset[str]
    returned: frozenset[str]
    claims: tuple[Claim, ...]
    held_lease: bool = True
    """False where this incarnation's lease is gone, and so nothing was claimed."""

    unusable: frozenset[str] = frozenset()
    """Keys in the place of queues that are no lists."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Models whose jobs were left where they are."""


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """``outcomes`` are the scripts' words for each commit, in order: 1 done, others as the scripts say."""

    outcomes: tuple[int, ...] = ()
    opened: tuple[Known | Postponed | None, ...] = ()
    """None where the claim is gone, or was set aside since another job runs alone here."""

    claimed: Claimed | None = None
