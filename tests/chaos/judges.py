"""The judges: each looks at the evidence of a run for one promise, and says what breaks it. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any, Final

from tasks.errors import ErrorCode
from tasks.result import Attempt, AttemptCode, GenerateResult
from tasks.usage import Usage
from tests.chaos.evidence import Entry, Evidence
from tests.chaos.load import Kind, Push

MOST_RERUNS: Final = 0.05
"""The share of jobs that may run more than once where workers are killed and nothing else is done."""

_SLACK_MS: Final = 1_500.0
"""How long after a fault has ended a worker may still lose what it claims: it has to learn of it first, on a busy machine."""

_TRITON_CODES: Final = frozenset(
    {ErrorCode.RUNTIME_CONNECTION_LOST, ErrorCode.RUNTIME_TIMEOUT, ErrorCode.RUNTIME_MODEL_CRASHED}
)
_LOST: Final = frozenset({AttemptCode.WORKER_LOST, AttemptCode.LEASE_LOST})
_MAX_DELIVERIES: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise: which judge found it, of which job, in words."""

    judge: str
    job_id: str
    words: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What may happen in a run."""

    triton_fails: bool
    most_reruns: float | None
    slots: int
    """How many inferences may run at once, over all workers."""
    timeout_seconds: float
    slot_ms: int
    """How long a slot may be taken at the longest."""


def judge(evidence: Evidence, terms: Terms) -> list[Finding]:
    """Return everything that is not as promised."""
    found = [Finding(name, job_id, words) for name, look in _JUDGES.items() for job_id, words in look(evidence, terms)]
    return sorted(found, key=lambda finding: (finding.judge, finding.job_id))


Words = Iterator[tuple[str, str]]


def _at_rest(evidence: Evidence, _: Terms) -> Words:
    """Everything ends: no job stays in a queue, a claim or a retry while workers are well."""
    where = evidence.whereabouts
    for place, raws in (("queue", where.queued), ("claim", where.claimed), ("retry", where.waiting)):
        for raw, times in raws.items():
            yield _id_in(evidence, raw), f"{times} x still in a {place}: {raw[:120]!r}"
    if not evidence.observed.came_to_rest:
        yield "", "the workers did not come to rest"


def _conserved(evidence: Evidence, _: Terms) -> Words:
    """Every job_id is settled exactly once; what cannot be a job is a dead letter exactly as often as it was pushed."""
    times = Counter(entry.job_id for entry in evidence.entries)
    unfinished = {_id_in(evidence, raw) for raw in evidence.whereabouts.unfinished}
    for job_id in evidence.load.by_job:
        if times[job_id] != 1 and not (times[job_id] == 0 and job_id in unfinished):
            yield job_id, f"settled {times[job_id]} times" + ("" if times[job_id] else ": lost")
    for job_id in times.keys() - evidence.load.by_job.keys():
        yield job_id, "settled, and was never pushed"


def _buried(evidence: Evidence, _: Terms) -> Words:
    """Dead letters are garbage, and jobs whose id belongs to another; each as often as it was pushed, byte for byte."""
    least, most = Counter[bytes](), Counter[bytes]()
    for push in evidence.load.pushes:
        marker = evidence.markers.get(push.job_id)
        if push.kind is Kind.GARBAGE or (marker and marker["fingerprint"] != push.fingerprint):
            least[push.raw] += 1
            most[push.raw] += evidence.observed.sends.get(push.number, 1)
    unfinished = evidence.whereabouts.unfinished
    for raw in least.keys() | evidence.dead.keys():
        times = evidence.dead[raw]
        if not least[raw] <= times + unfinished[raw] or times > most[raw]:
            yield _id_in(evidence, raw), f"{times} dead letters instead of {least[raw]}: {raw[:120]!r}"


def _told_alike(evidence: Evidence, _: Terms) -> Words:
    """Stream, result key and marker tell the same, in the words of the contract."""
    for entry in evidence.entries:
        marker = evidence.markers.get(entry.job_id, {})
        if entry.result is None:
            yield entry.job_id, f"the result breaks the contract: {entry.raw[:200]}"
        if evidence.results.get(entry.job_id) != entry.raw:
            yield entry.job_id, "the result key holds something else than the settlement"
        if (marker.get("stream_id"), marker.get("status")) != (entry.stream_id, entry.status):
            yield entry.job_id, f"the marker is not of this settlement: {marker}"
        if marker.get("fingerprint") not in {push.fingerprint for push in evidence.load.by_job.get(entry.job_id, ())}:
            yield entry.job_id, "settled for a content that was never pushed"


def _ends_as_it_must(evidence: Evidence, terms: Terms) -> Words:
    """Each job succeeds, or fails with the code of what is wrong with it; a cancelled one is never settled otherwise."""
    for entry, result, push in _settled(evidence):
        code = None if result.error is None else result.error.code
        allowed = {push.code} | (_TRITON_CODES if terms.triton_fails and push.kind is not Kind.WRONG else set())
        cancelled_ms = evidence.observed.cancelled_ms.get(entry.job_id)
        if cancelled_ms is not None and push.kind is Kind.CANCELLED_LATER:
            # Within one millisecond of the settlement, both ends are right.
            must, may = cancelled_ms < entry.at_ms, cancelled_ms <= entry.at_ms
            allowed = {ErrorCode.JOB_CANCELLED} if must else allowed | ({ErrorCode.JOB_CANCELLED} if may else set())
        if sum(attempt.code is AttemptCode.WORKER_LOST for attempt in result.attempts) >= _MAX_DELIVERIES:
            allowed |= {ErrorCode.DELIVERY_LIMIT_EXCEEDED}
        if code not in allowed:
            yield entry.job_id, f"a job of kind {push.kind} ended with {code}"
        if push.kind in {Kind.WRONG, Kind.EXPIRED, Kind.CANCELLED_BEFORE} and evidence.served.get(entry.job_id):
            yield entry.job_id, f"a job of kind {push.kind} was sent to Triton"


def _billed_right(evidence: Evidence, _: Terms) -> Words:
    """The usage of each attempt is what the model counted, and the text of a success is the model's."""
    for entry, result, push in _settled(evidence):
        right = _counted(push.content)
        spent = [result.usage, *(attempt.usage for attempt in result.attempts)]
        wrong = [usage for usage in spent if usage and usage != right]
        if wrong:
            yield entry.job_id, f"usage {wrong[0]} where the model counted {right}"
        if result.status == "succeeded" and result.text != f"echo: {push.content['prompt']}":
            yield entry.job_id, "the text is not the model's answer to this job"
        finished = sum(one.finished_at is not None for one in evidence.served.get(entry.job_id, ()))
        if sum(attempt.usage is not None for attempt in result.attempts) > finished:
            yield entry.job_id, f"more attempts with usage than the {finished} inferences that ended"


def _ledger_complete(evidence: Evidence, _: Terms) -> Words:
    """Each inference that the witness saw is an attempt in the job's ledger."""
    ledgers = {entry.job_id: len(result.attempts) for entry, result, _ in _settled(evidence)}
    settled = {entry.job_id for entry in evidence.entries}
    for job_id, served in evidence.served.items():
        if job_id in settled and len(served) > ledgers.get(job_id, 0):
            yield job_id, f"the witness saw {len(served)} inferences, the ledger holds {ledgers.get(job_id, 0)}"


def _lost_with_cause(evidence: Evidence, _: Terms) -> Words:
    """A worker loses what it has claimed only where something was done to it."""
    for entry, result, _push in _settled(evidence):
        ends = [*(_ms(attempt.started_at) for attempt in result.attempts[1:]), float(entry.at_ms)]
        for attempt, end_ms in zip(result.attempts, ends, strict=False):
            if attempt.code in _LOST and not _has_cause(evidence, attempt, end_ms):
                yield entry.job_id, f"{attempt.worker_id} lost its claim of {attempt.started_at} without a cause"


def _has_cause(evidence: Evidence, attempt: Attempt, end_ms: float) -> bool:
    claimed_ms = _ms(attempt.started_at)
    return any(
        incident.begin_ms <= end_ms + _SLACK_MS and claimed_ms <= incident.end_ms + _SLACK_MS
        for incident in evidence.observed.incidents
        if incident.target == attempt.worker_id
    )


def _dead_settle_nothing(evidence: Evidence, _: Terms) -> Words:
    """An incarnation that was declared dead settles nothing any more."""
    for entry in evidence.entries:
        claim = evidence.markers.get(entry.job_id, {}).get("claim", "")
        dead_ms = evidence.deaths_ms.get(claim.rpartition("/")[0])
        # Its death was logged after it had come about, so no slack is needed but for the log line itself.
        if dead_ms is not None and entry.at_ms > dead_ms + 1:
            yield entry.job_id, f"settled under {claim} {entry.at_ms - dead_ms:.0f} ms after that was declared dead"


def _clean(evidence: Evidence, _: Terms) -> Words:
    """Nothing stays in Redis without an end, no claim, and no lease of a worker that has stopped."""
    for key in evidence.leftovers:
        yield "", f"left in Redis: {key}"


def _ended_well(evidence: Evidence, _: Terms) -> Words:
    """Workers that are told to stop end with 0, none ends by itself, and every failpoint was come to."""
    for one in evidence.observed.exits:
        if one.code != one.expected:
            wanted = "was not to end" if one.expected is None else f"instead of {one.expected}"
            yield "", f"{one.worker_id} ended with {one.code}, {wanted} ({one.note})"
    for failpoint in evidence.observed.unmet:
        yield "", f"no worker came to the failpoint {failpoint}"


def _seldom_twice(evidence: Evidence, terms: Terms) -> Words:
    """Few jobs run more than once."""
    share = rerun_share(evidence)
    if terms.most_reruns is not None and share > terms.most_reruns:
        yield "", f"{share:.1%} of the jobs ran more than once, more than {terms.most_reruns:.0%}"


def _within_the_pool(evidence: Evidence, terms: Terms) -> Words:
    """No more run at once than the pool has slots, and no slot is taken longer than its inference may take."""
    changes = list[tuple[float, int]]()
    for one in (one for served in evidence.served.values() for one in served):
        # One that has no end died with Triton. A slot is taken until the inference's timeout, whatever Triton goes on with.
        if one.finished_at is not None:
            changes += [(one.started_at, 1), (min(one.finished_at, one.started_at + terms.timeout_seconds), -1)]
    running = list(accumulate(change for _, change in sorted(changes)))
    if max(running, default=0) > terms.slots:
        yield "", f"{max(running)} inferences ran at once where there are {terms.slots} slots"
    for slot, left_ms in evidence.slots_ms.items():
        if left_ms > terms.slot_ms:
            yield "", f"the slot {slot} is taken for another {left_ms} ms, longer than any inference"


def rerun_share(evidence: Evidence) -> float:
    """Return the share of jobs that ran more than once, of those that are not to be tried again by themselves."""
    jobs = [job_id for job_id, pushes in evidence.load.by_job.items() if pushes[0].kind is not Kind.RAISING]
    return sum(len(evidence.served.get(job_id, ())) > 1 for job_id in jobs) / max(1, len(jobs))


_JUDGES: Final[Mapping[str, Callable[[Evidence, Terms], Words]]] = {
    "at rest": _at_rest,
    "conserved": _conserved,
    "buried": _buried,
    "told alike": _told_alike,
    "ends as it must": _ends_as_it_must,
    "billed right": _billed_right,
    "ledger complete": _ledger_complete,
    "lost with cause": _lost_with_cause,
    "dead settle nothing": _dead_settle_nothing,
    "clean": _clean,
    "ended well": _ended_well,
    "seldom twice": _seldom_twice,
    "within the pool": _within_the_pool,
}


def _settled(evidence: Evidence) -> Iterator[tuple[Entry, GenerateResult, Push]]:
    """Yield each readable settlement with the push that it is of."""
    for entry in evidence.entries:
        pushes: Sequence[Push] = evidence.load.by_job.get(entry.job_id, ())
        settled_as = evidence.markers.get(entry.job_id, {}).get("fingerprint")
        push = next((push for push in pushes if push.fingerprint == settled_as), None)
        if entry.result is not None and push is not None:
            yield entry, entry.result, push


def _counted(content: Mapping[str, Any]) -> Usage:
    """Return the counts that the model gives: the words of the prompt, and max_tokens."""
    return Usage.of(prompt_tokens=max(1, len(content["prompt"].split())), completion_tokens=content["max_tokens"])


def _id_in(evidence: Evidence, raw: bytes) -> str:
    return next((push.job_id for push in evidence.load.pushes if push.raw == raw), "")


def _ms(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() * 1000
