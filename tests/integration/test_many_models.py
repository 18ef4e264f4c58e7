"""Many models on a real Triton: what looking at them costs, and how changes are noticed with nothing at stake."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import gevent
import pytest

from benchmarks import ensembles
from tests.inferences import all_at_once, infer, settings_for
from tests.triton_http import call, load, model_state, unload
from tests.waiting import wait_until
from tests.witness import WITNESS_VARIABLE, Witness
from worker.clock import MonotonicClock
from worker.gate import ModelGate, Standing
from worker.looks import Looks
from worker.recovery import Recovery
from worker.sandbox.triton_server import TritonServer
from worker.triton.adapter import TritonInference
from worker.triton.http import Answer, HttpClients, Limits, Request
from worker.watch import Watch

COUNT: Final = 60
NAMES: Final = ensembles.names(COUNT)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of many models, to write in."""
    return ensembles.repository(tmp_path_factory.mktemp("many"), COUNT)


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Witness:
    """What the step of all of them was really asked."""
    return Witness(tmp_path_factory.mktemp("reached") / "requests.jsonl")


@pytest.fixture(scope="module")
def server(repository: Path, reached: Witness) -> Iterator[TritonServer]:
    """A Triton with all of them."""
    environment = {WITNESS_VARIABLE: str(reached.path)}
    with TritonServer(repository, control="explicit", models=["*"], environment=environment) as running:
        yield running


class Counted(HttpClients):
    """Clients that count what is asked of Triton."""

    def __init__(self, clients: HttpClients) -> None:
        self._inner = clients
        self.asked: Counter[str] = Counter()

    def exchange(self, request: Request, limits: Limits) -> Answer:
        """Count it by the last word of its path."""
        self.asked[request.path.rpartition("/")[2]] += 1
        return self._inner.exchange(request, limits)

    def close(self) -> None:
        """Close those that were there before."""
        self._inner.close()


class Rig:
    """An adapter for two public names of each model, with a gate, looks at it, and a watch that is run by hand."""

    def __init__(self, url: str) -> None:
        self.names = [f"{team}/{name}" for name in NAMES for team in ("acme", "other")]
        models = {public: {"model_name": public.partition("/")[2]} for public in self.names}
        fields: dict[str, Any] = {"supported_models": self.names, "models": models}
        self.adapter = TritonInference.of(settings_for(url, NAMES[0], **fields))
        self.probes = self.adapter._probes = Counted(self.adapter._probes)
        self.gate = ModelGate(self.names, MonotonicClock(), lambda: 0.0, self._changed)
        looks = Looks(self.adapter.model_ready, self.adapter.look, self.adapter.statistics)
        self.recovery = Recovery(self.gate, looks.look, self.gate.looked_at, lambda: None)
        self.watch = Watch(self.adapter.changed, self.gate.is_open, self.recovery.look_now, lambda: 0.5)
        self._greenlet = gevent.spawn(self.recovery.run)

    def close(self) -> None:
        """End the looks."""
        self._greenlet.kill()
        self.recovery.close()
        self.adapter.close()

    def wait_until(self, standing: Standing, *names: str) -> None:
        """Wait for the standing of these names, or all."""

        def reached() -> bool:
            gevent.sleep(0.005)
            return all(self.gate.states()[name].standing is standing for name in names or self.names)

        wait_until(reached, description=f"{names or 'all'} are {standing}", interval=0)

    def stop_the_clock(self) -> None:
        """Let what Triton said stay new, however long the machine stands still."""
        now = time.monotonic()
        self.adapter._catalog._monotonic = lambda: now

    def until_looked(self) -> None:
        """Wait until no look is under way."""

        def is_done() -> bool:
            gevent.sleep(0.005)
            return not self.recovery._looking

        wait_until(is_done, description="all looks have ended", interval=0)

    def _changed(self) -> None:
        self.recovery.look_again()


@pytest.fixture
def rig(server: TritonServer) -> Iterator[Rig]:
    """All models looked at and open, and a first watch behind it."""
    made = Rig(server.url)
    try:
        made.wait_until(Standing.READY)
        yield made
    finally:
        made.close()


def test_a_start_asks_once_for_each_model(server: TritonServer) -> None:
    """Its configuration, however many public names it has; readiness and versions of all are one request while that is new."""
    rig = Rig(server.url)
    rig.stop_the_clock()
    try:
        rig.wait_until(Standing.READY)
        assert COUNT <= rig.probes.asked["config"] <= COUNT + 4  # a look may begin before another has ended
        assert rig.probes.asked["index"] <= 4  # as many as look at once
        assert set(rig.probes.asked) == {"config", "index"}
    finally:
        rig.close()


def test_watching_costs_the_same_whatever_there_is(rig: Rig) -> None:
    """Two requests about all models, and a look at the few whose turn it is."""
    rig.stop_the_clock()
    rig.watch.watch()
    rig.until_looked()
    rig.probes.asked.clear()
    rig.watch.watch()
    rig.until_looked()
    assert rig.probes.asked["index"] <= 2
    assert rig.probes.asked["stats"] == 1
    assert rig.probes.asked["config"] <= 4
    assert rig.probes.asked.total() <= 8


def test_a_model_that_vanishes_is_shut_and_one_that_comes_back_is_open(
    server: TritonServer, reached: Witness, rig: Rig
) -> None:
    """Both its names, without a job; what was running on it ends as if nothing were; the others are left alone."""
    name = NAMES[7]
    both = (f"acme/{name}", f"other/{name}")
    rig.watch.watch()
    reached.clear()

    def slow() -> Any:
        return infer(rig.adapter, "sleep=0.6 x", model=both[0])

    def vanish() -> None:
        with gevent.Timeout(30):
            while not reached.count():
                gevent.sleep(0.01)
            call(server.url, "POST", f"/v2/repository/models/{name}/unload")
            while model_state(server.url, name) == "READY":
                gevent.sleep(0.01)
        gevent.sleep(0.3)  # what an index may be old
        rig.watch.watch()
        rig.wait_until(Standing.PAUSED, *both)

    answer, _ = all_at_once([slow, vanish])
    assert answer.text == "echo: sleep=0.6 x"
    others = [public for public in rig.names if public not in both]
    assert all(rig.gate.is_open(public) for public in others)
    # A load before it is gone would change nothing.
    wait_until(lambda: model_state(server.url, name) != "UNLOADING", description=f"{name} is unloaded")
    load(server.url, name)
    rig.wait_until(Standing.READY)


def test_a_model_that_is_loaded_anew_is_held_against_its_configuration(
    server: TritonServer, repository: Path, rig: Rig
) -> None:
    """It was ready all the while; now its names are others. When they are right again, so is its standing."""
    name, public = NAMES[9], f"acme/{NAMES[9]}"
    infer(rig.adapter, model=public)
    path = f"/v2/models/{name}/stats"
    wait_until(
        lambda: call(server.url, "GET", path)["model_stats"][0]["inference_count"], description="the inference counts"
    )
    rig.watch.watch()
    try:
        ensembles.write(repository, name, prompt_tokens="tokens_in")
        load(server.url, name)
        gevent.sleep(0.3)
        rig.watch.watch()
        rig.wait_until(Standing.PAUSED, public)
        assert rig.gate.states()[public].reason == "runtime_contract_mismatch"
    finally:
        ensembles.write(repository, name)
        load(server.url, name)
    rig.wait_until(Standing.READY)
    assert infer(rig.adapter, model=public).text == "echo: Hello"


def test_a_model_whose_limits_changed_is_asked_as_it_is_now(server: TritonServer, repository: Path, rig: Rig) -> None:
    """A batch dimension less, in a model that nothing was run on: its turn comes, or the first job finds out and is not lost."""
    name, public = NAMES[11], f"acme/{NAMES[11]}"
    ensembles.write(repository, name, max_batch_size=8)
    load(server.url, name)
    assert infer(rig.adapter, model=public).text == "echo: Hello"
    for _ in range(COUNT):
        if rig.adapter._catalog.describe_for_a_look(rig.adapter._paths[public]).max_batch_size == 8:
            break
        rig.watch.watch()
        gevent.sleep(0.05)
    assert rig.adapter.look(public).model is not None


def test_a_server_that_went_away_shuts_all_models(tmp_path: Path) -> None:
    """At the next watch, without a job; one request tells it, not one a model."""
    with TritonServer(ensembles.repository(tmp_path / "models", 12)) as server:
        names = ensembles.names(12)
        adapter = TritonInference.of(settings_for(server.url, names[0], **ensembles.behind(names)))
        probes = adapter._probes = Counted(adapter._probes)
        adapter.changed()
        server.kill()
        probes.asked.clear()
        assert len(adapter.changed()) == 12
        assert adapter.changed() == frozenset()
        assert probes.asked.total() == 2
        adapter.close()


def test_statistics_of_a_model_are_of_all_its_versions(server: TritonServer) -> None:
    """By name, as they are asked for one by one."""
    with_few = TritonInference.of(settings_for(server.url, NAMES[0]))
    infer(with_few)
    # Triton counts an inference and its success one after the other.
    wait_until(lambda: with_few._catalog.statistics()[NAMES[0]].succeeded, description="the inference counts")
    adapter = TritonInference.of(settings_for(server.url, NAMES[0], **ensembles.behind(NAMES)))
    assert adapter._catalog.statistics()[NAMES[0]] == with_few._catalog.statistics()[NAMES[0]]
    for made in (with_few, adapter):
        made.close()


def test_what_was_unloaded_is_no_error(server: TritonServer) -> None:
    """A row without a version and a state is a model that is not there."""
    adapter = TritonInference.of(settings_for(server.url, NAMES[0], **ensembles.behind(NAMES)))
    unload(server.url, NAMES[20])
    try:
        assert not adapter.model_ready(f"acme/{NAMES[20]}")
        assert f"acme/{NAMES[20]}" in adapter.changed()
    finally:
        load(server.url, NAMES[20])
        adapter.close()
