"""What a run is summed up as."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from tests.chaos.evidence import Evidence, history
from tests.chaos.judges import Finding, rerun_share
from tests.chaos.options import Options
from tests.chaos.plan import FaultKind

_FINDINGS_SHOWN: Final = 12


def summary(evidence: Evidence, options: Options, findings: Sequence[Finding]) -> list[str]:
    """Return a run in a few lines."""
    observed = evidence.observed
    statuses = Counter(
        "unreadable" if entry.result is None else entry.result.error.code.value if entry.result.error else "succeeded"
        for entry in evidence.entries
    )
    attempts = Counter(
        "ended" if attempt.code is None else str(attempt.code)
        for entry in evidence.entries
        if entry.result
        for attempt in entry.result.attempts
    )
    done = Counter(incident.kind for incident in observed.incidents)
    return [
        f"pushed          {len(evidence.load.pushes)} times, {len(evidence.load.by_job)} job ids",
        f"settled         {len(evidence.entries)}: {_counts(statuses)}",
        f"dead letters    {evidence.dead.total()}",
        f"attempts        {_counts(attempts)}",
        f"faults          {sum(done.values())}: {_counts(done)}",
        f"ran twice       {rerun_share(evidence):.2%} of the jobs",
        f"back after      {_spread(list(recoveries_ms(evidence)))} (a worker's loss to the first of its jobs run again)",
        f"Redis back to   {_spread(list(resumptions_ms(evidence)))} (its return to the next settlement)",
        f"verdict         {'content' if not findings else f'{len(findings)} promises broken'}, seed {options.seed}",
    ]


def accusation(evidence: Evidence, findings: Sequence[Finding], logs: Sequence[Path]) -> Iterator[str]:
    """Yield the findings, and everything that is known of the first job among them."""
    by_judge = Counter(finding.judge for finding in findings)
    yield f"broken: {_counts(by_judge)}"
    shown = [
        one for judge in by_judge for one in [one for one in findings if one.judge == judge][: _FINDINGS_SHOWN // 3]
    ]
    for finding in shown[:_FINDINGS_SHOWN]:
        yield f"- {finding.judge}: {finding.job_id or '(no job)'} {finding.words}"
    named = next((finding.job_id for finding in shown if finding.job_id), None)
    if named:
        yield f"history of {named}:"
        yield from (f"  {line}" for line in history(evidence, named, logs))


def recoveries_ms(evidence: Evidence) -> Iterator[float]:
    """Yield how long it took from each loss of a worker until the first of its jobs ran again."""
    for incident in evidence.observed.incidents:
        starts = [
            one.started_at * 1000 - incident.begin_ms
            for job_id in incident.victims
            for one in evidence.served.get(job_id, ())
            if one.started_at * 1000 > incident.begin_ms
        ]
        if incident.kind == FaultKind.WORKER_KILL and starts:
            yield min(starts)


def resumptions_ms(evidence: Evidence) -> Iterator[float]:
    """Yield how long it took from each return of Redis until something was settled."""
    times = sorted(entry.at_ms for entry in evidence.entries)
    for incident in evidence.observed.incidents:
        if incident.kind in {FaultKind.REDIS_KILL, FaultKind.REDIS_FREEZE}:
            after = next((at for at in times if at > incident.end_ms), None)
            if after is not None:
                yield after - incident.end_ms


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{times} {name}" for name, times in counted.most_common()) or "none"


def _spread(values: list[float]) -> str:
    if not values:
        return "not seen"
    return f"{median(values) / 1000:.2f} s in the median, {max(values) / 1000:.2f} s at most, {len(values)} times"
