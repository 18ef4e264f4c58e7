"""The chaos kit: short runs whose judges must be content, and runs of broken workers that they must not be content with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.failpoints import FAILPOINTS
from tests.chaos.mutations import CONTROLS, MUTATIONS, provoking
from tests.chaos.options import Options
from tests.chaos.plan import FaultKind
from tests.chaos.run import Verdict, run
from tests.chaos.stage import Servers

Run = Callable[[Options], Verdict]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A Valkey and a Triton that may be killed."""
    with Servers(tmp_path_factory.mktemp("servers")) as both:
        yield both


@pytest.fixture
def chaos(servers: Servers, tmp_path: Path) -> Run:
    """Runs the kit."""
    return lambda options: run(options, servers, tmp_path, lambda _: None)


def assert_content(verdict: Verdict) -> None:
    """Fail with everything that is known, unless every promise was kept."""
    assert not verdict.findings, "\n".join(verdict.lines())


def test_a_worker_that_is_killed_at_any_step_of_a_job_loses_none_and_settles_none_twice(chaos: Run) -> None:
    """One worker after the other ends itself at each boundary: after the claim, around the inference, the settlement, the end."""
    failpoints = tuple(f"{name}:3" for name in FAILPOINTS)
    verdict = chaos(Options(seed=11, seconds=16, jobs=320, workers=2, faults=frozenset(), failpoints=failpoints))
    assert_content(verdict)
    assert len(verdict.evidence.observed.exits) == len(failpoints) + 2


def test_a_short_run_under_all_faults_keeps_every_promise(chaos: Run) -> None:
    """Kills, freezes, drains, cut, held and slow lines, lost replies, and outages of Redis and Triton."""
    verdict = chaos(Options(seed=7, seconds=14, jobs=280, every=2.0))
    assert_content(verdict)
    assert {incident.kind for incident in verdict.evidence.observed.incidents} >= {
        FaultKind.WORKER_KILL,
        FaultKind.WORKER_FREEZE,
        FaultKind.REDIS_KILL,
        FaultKind.TRITON_KILL,
    }


@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_judges_find_each_fault_that_is_put_into_the_workers(chaos: Run, name: str) -> None:
    """A judge that finds nothing proves nothing."""
    assert chaos(provoking(name, seed=1)).findings


@pytest.mark.long
@pytest.mark.parametrize("name", CONTROLS)
def test_the_judges_are_content_with_workers_that_are_only_slow(chaos: Run, name: str) -> None:
    """What makes some of those faults likely to do harm is none itself."""
    assert_content(chaos(provoking(name, seed=1)))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_workers_make_few_jobs_run_twice(chaos: Run) -> None:
    """At most one job in twenty, where workers are killed and nothing else happens."""
    assert_content(chaos(Options(seed=5, seconds=60, jobs=1500, faults=frozenset({FaultKind.WORKER_KILL}))))
