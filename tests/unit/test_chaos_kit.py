"""What the chaos kit draws and what it breaks on purpose, without a server."""

from itertools import pairwise

import pytest

from tests.chaos.load import Kind, draw_load
from tests.chaos.mutations import CONTROLS, MUTATIONS, provoking
from tests.chaos.options import Options
from tests.chaos.plan import FaultKind
from tests.chaos.run import plan_of
from worker import lua

SEED_7 = Options(seed=7, seconds=120, jobs=3000)


def test_the_same_seed_draws_the_same_faults_and_another_seed_others() -> None:
    """A run that failed can be repeated from its seed."""
    assert plan_of(SEED_7) == plan_of(Options(seed=7, seconds=120, jobs=3000))
    assert plan_of(SEED_7) != plan_of(Options(seed=8, seconds=120, jobs=3000))


def test_a_plan_holds_every_kind_of_fault_and_one_at_a_time_for_each_target() -> None:
    """Two minutes are enough for all kinds; what is frozen is not killed before it has thawed."""
    plan = plan_of(SEED_7)
    assert {fault.kind for fault in plan} == set(FaultKind)
    for track in {fault.track for fault in plan}:
        faults = [fault for fault in plan if fault.track == track]
        assert all(one.at + one.seconds <= other.at for one, other in pairwise(faults))


def test_the_same_seed_draws_the_same_load_with_every_kind_of_job() -> None:
    """Producers are processes of their own, and draw it again."""
    load = draw_load(7, 3000, 120)
    assert load == draw_load(7, 3000, 120)
    assert {push.kind for push in load.pushes} == set(Kind)
    parts = [load.part(index, 3) for index in range(3)]
    assert sum(len(part) for part in parts) == len(load.pushes) + len(load.cancels)


@pytest.mark.parametrize("name", [*MUTATIONS, *CONTROLS])
def test_each_mutation_fits_the_scripts_as_they_are(name: str) -> None:
    """A script that has changed under its mutation is told of here, and not by a worker that does not start."""
    for edit in {**MUTATIONS, **CONTROLS}[name].edits:
        assert edit.apply(_source(edit.script)) != _source(edit.script)
    assert provoking(name, seed=1).mutation == name


def _source(script: str) -> str:
    return lua.load(script)
