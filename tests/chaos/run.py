"""One run of the kit from its options to its verdict."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.crew import SLOTS, TIMEOUT_SECONDS
from tests.chaos.evidence import Evidence, gather
from tests.chaos.faults import Faults
from tests.chaos.judges import MOST_RERUNS, Finding, Terms, judge
from tests.chaos.load import draw_load
from tests.chaos.options import Options
from tests.chaos.plan import Fault, FaultKind, draw_faults
from tests.chaos.report import accusation, summary
from tests.chaos.stage import Servers, Stage
from worker.connections import redis_client

_PRODUCERS_START_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run went."""

    options: Options
    evidence: Evidence
    findings: Sequence[Finding]
    logs: Sequence[Path]

    def lines(self) -> list[str]:
        """Return it in words."""
        told = summary(self.evidence, self.options, self.findings)
        return told + (list(accusation(self.evidence, self.findings, self.logs)) if self.findings else [])


def plan_of(options: Options) -> tuple[Fault, ...]:
    """Return the faults that these options draw."""
    return draw_faults(
        options.seed,
        options.seconds - options.calm_seconds,
        options.faults,
        workers=options.workers,
        lease_seconds=options.lease_seconds,
        every=options.every,
    )


def run(options: Options, servers: Servers, directory: Path, say: Callable[[str], None]) -> Verdict:
    """Run the plan on servers that are up, and judge it; logs and journals are in ``directory``."""
    load = draw_load(options.seed, options.jobs, options.seconds, options.shares)
    servers.emptied()
    stage = Stage(options, servers, directory)
    faults = Faults(stage, say)
    with stage.manned():
        start = time.time() + _PRODUCERS_START_SECONDS
        producers = stage.produce(start)
        try:
            faults.happen(plan_of(options), start)
            stage.mend()
            came_to_rest = stage.come_to_rest(producers)
        finally:
            for producer in producers:
                producer.close()
        stage.dismiss()
    observed = stage.observed(faults.incidents, came_to_rest=came_to_rest)
    with redis_client(servers.valkey.url) as client:
        evidence = gather(client, load, observed, servers.witness, stage.logs)
    return Verdict(options, evidence, judge(evidence, _terms(options)), stage.logs)


def _terms(options: Options) -> Terms:
    kills_only = options.faults == {FaultKind.WORKER_KILL}
    most = options.most_reruns if options.most_reruns is not None else MOST_RERUNS if kills_only else None
    slot_ms = round((TIMEOUT_SECONDS + options.lease_seconds) * 1000)
    return Terms(options.triton_fails, most, SLOTS, TIMEOUT_SECONDS, slot_ms)
