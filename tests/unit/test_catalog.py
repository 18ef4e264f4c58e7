"""What Triton says of many models is asked for once, and what changed since the last time is found in it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import gevent
import pytest

from tasks.errors import ContractMismatch, JobError, ModelNotReady, RuntimeUnavailable
from worker.triton.catalog import FEW_MODELS, Catalog
from worker.triton.changes import LEAST_SECONDS_BETWEEN, UNUSED_AT_A_TIME, Changes
from worker.triton.description import ModelDescription
from worker.triton.failures import reason_of
from worker.triton.server import IndexEntry, ModelPath, Statistics

MANY = [ModelPath(f"m{number:02}") for number in range(20)]
FEW = MANY[:2]
USED = Statistics(inferences=5, succeeded=5, last_inference_ms=1000)


@dataclass
class FakeServer:
    """A server of models in version 1, each of which was used; counts what it is asked."""

    rows: dict[str, dict[str, str]] = field(default_factory=lambda: {m.name: {"1": "READY"} for m in MANY})
    used: dict[str, Statistics] = field(default_factory=lambda: {m.name: USED for m in MANY})
    index_fails: JobError | None = None
    statistics_fail: JobError | None = None
    asked: Counter[str] = field(default_factory=Counter)
    now: float = 0.0
    slow: bool = False
    decoupled: set[str] = field(default_factory=set)

    def index(self) -> Iterable[IndexEntry]:
        """Give a row for each version."""
        self.asked["index"] += 1
        if self.index_fails is not None:
            raise self.index_fails
        return [IndexEntry(name=n, version=v, state=s) for n, of in self.rows.items() for v, s in of.items()]

    def is_model_ready(self, model: ModelPath) -> bool:
        """Tell by the same rows."""
        self.asked["ready"] += 1
        return "READY" in self.rows.get(model.name, {}).values()

    def describe(self, model: ModelPath, versions: tuple[str, ...] | None = None) -> ModelDescription:
        """Give a model without tensors."""
        self.asked["describe"] += 1
        self.asked["metadata"] += versions is None
        if self.slow:
            gevent.sleep(0.001)
        if not self.is_model_ready(model) or (model.version and model.version not in self.rows[model.name]):
            raise ModelNotReady
        decoupled = model.name in self.decoupled
        return ModelDescription(model.name, versions or ("asked",), (), (), decoupled=decoupled, complete=True)

    def versions(self, model_name: str) -> tuple[str, ...]:
        """Give those that are ready."""
        return tuple(self.rows.get(model_name, {}))

    def statistics(self, model: ModelPath) -> Statistics:
        """Give one's statistics."""
        self.asked["statistics"] += 1
        if model.name not in self.used or self.statistics_fail is not None:
            raise self.statistics_fail or RuntimeUnavailable()
        return self.used[model.name]

    def all_statistics(self) -> Mapping[str, Statistics]:
        """Give all of them."""
        self.asked["all_statistics"] += 1
        if self.statistics_fail is not None:
            raise self.statistics_fail
        return dict(self.used)

    def catalog(self, models: Iterable[ModelPath] = MANY) -> Catalog:
        """Return a catalog of some of the models."""
        return Catalog(lambda: self, models, lambda: self.now)

    def changes(self, models: Iterable[ModelPath] = MANY) -> Changes:
        """Return what finds changes, after a first time in which there was nothing to compare with."""
        found = Changes(self.catalog(models), lambda: self.now)
        assert found.since_last_time() == frozenset()
        return found


class TestCatalog:
    def test_many_models_are_ready_by_one_request(self) -> None:
        """However many ask within the moment in which it is kept; after that once more."""
        server = FakeServer()
        catalog = server.catalog()
        assert all(catalog.is_ready(model) for model in MANY)
        assert server.asked == {"index": 1}
        server.now += 0.3
        server.rows["m03"] = {"1": "UNAVAILABLE", "2": "LOADING"}
        del server.rows["m04"]
        assert [model.name for model in MANY if not catalog.is_ready(model)] == ["m03", "m04"]
        assert server.asked == {"index": 2}

    def test_a_few_models_are_asked_for_one_by_one(self) -> None:
        """A server may have a thousand others."""
        server = FakeServer()
        catalog = server.catalog(MANY[:FEW_MODELS])
        assert catalog.is_ready(MANY[0])
        assert server.asked == {"ready": 1}

    def test_names_of_one_model_share_its_readiness(self) -> None:
        """For the same moment; a model of one name is asked for each time."""
        server = FakeServer()
        catalog = server.catalog([FEW[0], FEW[0], FEW[1]])
        assert all(catalog.is_ready(FEW[0]) for _ in range(100))
        assert server.asked == {"ready": 1}
        server.now += 0.3
        server.rows.clear()
        assert not catalog.is_ready(FEW[0])
        assert [catalog.is_ready(FEW[1]) for _ in range(3)] == [False] * 3
        assert server.asked == {"ready": 5}

    def test_a_pinned_version_has_to_be_the_one_that_is_ready(self) -> None:
        """Any one will do where none is named."""
        server = FakeServer()
        server.rows["m00"] = {"1": "UNAVAILABLE", "2": "READY"}
        pinned = [ModelPath("m00", version) for version in ("1", "2", "3")]
        catalog = server.catalog([*MANY, *pinned])
        assert [catalog.is_ready(model) for model in (*pinned, MANY[0])] == [False, True, False, True]

    def test_a_server_that_hides_its_index_is_asked_one_by_one(self) -> None:
        """And not for its index again for a minute."""
        server = FakeServer(index_fails=ContractMismatch())
        catalog = server.catalog()
        assert all(catalog.is_ready(model) for model in MANY)
        assert server.asked == {"index": 1, "ready": len(MANY)}
        server.now, server.index_fails = 61.0, None
        assert catalog.is_ready(MANY[0])
        assert server.asked["index"] == 2

    def test_a_server_that_does_not_answer_is_asked_once_for_all(self) -> None:
        """Each of many looks fails of the same."""
        server = FakeServer(index_fails=RuntimeUnavailable())
        catalog = server.catalog()
        for model in MANY:
            with pytest.raises(RuntimeUnavailable):
                catalog.is_ready(model)
        assert server.asked == {"index": 1}

    def test_looks_at_one_model_share_what_they_learn(self) -> None:
        """For a second; a check does not, and one that met a change makes all ask anew."""
        server = FakeServer()
        catalog = server.catalog(FEW)
        for _ in range(100):
            catalog.describe_for_a_look(FEW[0])
        assert server.asked["describe"] == 1
        catalog.describe(FEW[0])
        assert server.asked["describe"] == 2
        server.now += 0.9
        catalog.describe_for_a_look(FEW[0])
        assert server.asked["describe"] == 2
        server.now += 0.2
        catalog.describe_for_a_look(FEW[0])
        assert server.asked["describe"] == 3
        catalog.forget(FEW[0])
        catalog.describe_for_a_look(FEW[0])
        assert server.asked["describe"] == 4

    def test_looks_at_once_ask_once(self) -> None:
        """Whoever comes while one asks has what that one gets, a failure too; it waits for no one who was killed."""
        server = FakeServer(slow=True)
        catalog = server.catalog(FEW)

        def look() -> object:
            try:
                return catalog.describe_for_a_look(FEW[0]).name
            except JobError as error:
                return type(error)

        looks = [gevent.spawn(look) for _ in range(5)]
        assert [greenlet.get() for greenlet in looks] == ["m00"] * 5
        assert server.asked["describe"] == 1
        catalog.forget(FEW[0])
        server.rows.clear()
        looks = [gevent.spawn(look) for _ in range(5)]
        assert [greenlet.get() for greenlet in looks] == [ModelNotReady] * 5
        assert server.asked["describe"] == 2
        looks = [gevent.spawn(look) for _ in range(2)]
        gevent.sleep(0)
        looks[0].kill()
        assert looks[1].get() is RuntimeUnavailable

    def test_the_index_saves_asking_for_versions(self) -> None:
        """Of many models each is described by its configuration alone."""
        server = FakeServer()
        server.rows["m00"] = {"2": "READY", "1": "READY", "3": "UNAVAILABLE"}
        catalog = server.catalog()
        assert catalog.describe(MANY[0]).versions == ("1", "2")
        assert (server.asked["metadata"], server.asked["index"]) == (0, 1)
        assert server.catalog(FEW).describe(FEW[0]).versions == ("asked",)

    def test_a_version_that_is_not_there_is_named_with_those_that_are(self) -> None:
        """For whoever configured it."""
        with pytest.raises(ModelNotReady) as caught:
            FakeServer().catalog(FEW).describe(ModelPath("m00", "7"))
        assert reason_of(caught.value) == "version 7 is not loaded; loaded: 1"
        with pytest.raises(ModelNotReady) as caught:
            FakeServer().catalog(FEW).describe(ModelPath("nowhere", "7"))
        assert "loaded" not in reason_of(caught.value)


class TestChanges:
    def test_nothing_has_changed_where_nothing_has(self) -> None:
        """Two requests for all models, each time."""
        server = FakeServer()
        changes = server.changes()
        server.asked.clear()
        assert changes.since_last_time() == frozenset()
        assert server.asked == {"index": 1, "all_statistics": 1}

    def test_a_model_that_vanished_is_found_until_it_is_back(self) -> None:
        """Whoever takes jobs of it is to look, each time."""
        server = FakeServer()
        changes = server.changes()
        rows = server.rows.pop("m05")
        assert changes.since_last_time() == changes.since_last_time() == {ModelPath("m05")}
        server.rows["m05"] = rows
        assert changes.since_last_time() == {ModelPath("m05")}
        assert changes.since_last_time() == frozenset()

    def test_a_model_that_is_not_there_at_the_first_time_is_found(self) -> None:
        """There is nothing to compare with, and it is not ready all the same."""
        server = FakeServer()
        del server.rows["m05"]
        assert Changes(server.catalog(), lambda: 0.0).since_last_time() == {ModelPath("m05")}

    def test_another_version_is_a_change(self) -> None:
        """Of all names of the model, whichever version they want."""
        server = FakeServer()
        pinned = ModelPath("m00", "1")
        changes = server.changes([*MANY, pinned])
        server.rows["m00"] = {"1": "READY", "2": "READY"}
        assert changes.since_last_time() == {MANY[0], pinned}

    @pytest.mark.parametrize(
        "now",
        [
            Statistics(),
            Statistics(inferences=1, succeeded=1, last_inference_ms=2000),
            Statistics(inferences=9, succeeded=9, last_inference_ms=900),
        ],
    )
    def test_a_model_that_was_loaded_anew_is_found_by_its_statistics(self, now: Statistics) -> None:
        """It was ready all the while, in the same version."""
        server = FakeServer()
        changes = server.changes()
        server.used["m07"] = now
        assert ModelPath("m07") in changes.since_last_time()
        server.now += 1
        assert ModelPath("m07") not in changes.since_last_time() or now == Statistics()

    def test_a_model_that_is_used_is_no_change(self) -> None:
        """Its figures only grow."""
        server = FakeServer()
        changes = server.changes()
        server.used["m07"] = Statistics(inferences=6, succeeded=5, failed=1, last_inference_ms=1001)
        assert changes.since_last_time() == frozenset()

    def test_servers_that_take_turns_are_not_looked_at_each_time(self) -> None:
        """Behind one address their figures go back and forth, for ever."""
        server = FakeServer()
        changes = server.changes()
        found = 0
        for turn in range(24):
            server.now += 5
            server.used["m07"] = Statistics(inferences=5 + turn % 2, succeeded=5, last_inference_ms=1000)
            found += ModelPath("m07") in changes.since_last_time()
        assert 0 < found <= 24 * 5 / LEAST_SECONDS_BETWEEN + 1

    def test_models_that_were_never_used_are_described_in_turns(self) -> None:
        """Nothing else tells when they were loaded anew; a few each time, whatever their number."""
        server = FakeServer(used={model.name: Statistics() for model in MANY})
        catalog = server.catalog()
        for model in MANY:
            catalog.describe(model)
        changes = Changes(catalog, lambda: 0.0)
        server.asked.clear()
        server.decoupled.add("m05")
        turns = len(MANY) // UNUSED_AT_A_TIME
        found = [changes.since_last_time() for _ in range(turns)]
        assert [each for each in found if each] == [{ModelPath("m05")}]
        assert server.asked["describe"] == len(MANY)
        assert not any(changes.since_last_time() for _ in range(turns))

    def test_a_model_that_cannot_be_described_any_more_is_found(self) -> None:
        """A look will say why."""
        server = FakeServer(used={}, index_fails=ContractMismatch())
        catalog = server.catalog(FEW)
        for model in FEW:
            catalog.describe(model)
        changes = Changes(catalog, lambda: 0.0)
        assert changes.since_last_time() == frozenset()
        server.rows.clear()
        assert changes.since_last_time() == frozenset(FEW)

    def test_a_server_that_goes_away_is_told_once(self) -> None:
        """All models are to be looked at; then they are shut, and looked at anyhow."""
        server = FakeServer()
        changes = server.changes()
        server.index_fails = RuntimeUnavailable()
        assert changes.since_last_time() == frozenset(MANY)
        assert changes.since_last_time() == frozenset()
        server.index_fails = None
        assert changes.since_last_time() == frozenset()
        server.index_fails = RuntimeUnavailable()
        assert changes.since_last_time() == frozenset(MANY)

    def test_of_a_server_that_says_nothing_of_all_models_are_described_in_turns(self) -> None:
        """Where index and statistics are closed, a few each time, used or not."""
        server = FakeServer(index_fails=ContractMismatch(), statistics_fail=ContractMismatch())
        catalog = server.catalog()
        for model in MANY:
            catalog.describe(model)
        server.decoupled |= set(server.rows)
        changes = Changes(catalog, lambda: server.now)
        found = [changes.since_last_time() for _ in range(len(MANY) // UNUSED_AT_A_TIME)]
        assert {len(each) for each in found} == {UNUSED_AT_A_TIME}
        assert frozenset().union(*found) == frozenset(MANY)

    def test_statistics_of_a_few_models_are_asked_for_one_by_one(self) -> None:
        """One that is not loaded hides nothing of the other."""
        server = FakeServer()
        changes = server.changes(FEW)
        del server.used["m00"]
        server.used["m01"] = Statistics(inferences=1)
        assert ModelPath("m01") in changes.since_last_time()
        assert server.asked["all_statistics"] == 0
