"""What Triton says of all models of a worker, asked for once however many public names, or models, there are."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import gevent
from gevent.event import AsyncResult

from tasks.errors import ContractMismatch, JobError, ModelNotReady, RuntimeUnavailable
from worker.triton.description import ModelDescription
from worker.triton.failures import Refused
from worker.triton.server import IndexEntry, ModelPath, Statistics

FEW_MODELS: Final = 8
"""Up to so many models are asked for one by one, which is cheaper than an index of all that a server has."""

_INDEX_SECONDS: Final = 0.25
_DESCRIPTION_SECONDS: Final = 1.0
"""How old may be what one look at a model has learnt and another takes for its own."""

_CLOSED_SECONDS: Final = 60.0
"""How long nothing is asked for that Triton has refused to say."""

_READY: Final = "READY"


@dataclass(frozen=True, slots=True)
class _Learnt:
    """An answer, or the failure to get one, and when it came."""

    at: float
    index: Mapping[str, frozenset[IndexEntry]] | JobError


class Server(Protocol):
    """What is asked of a server; each raises as ``TritonServer`` does."""

    def index(self) -> Iterable[IndexEntry]:
        """Return a row for each version of each model."""
        ...

    def is_model_ready(self, model: ModelPath) -> bool:
        """Tell whether a model is loaded."""
        ...

    def describe(self, model: ModelPath, versions: tuple[str, ...] | None = None) -> ModelDescription:
        """Return what a model takes and gives; ``versions`` where they are known."""
        ...

    def versions(self, model_name: str) -> tuple[str, ...]:
        """Return the versions of a model that are loaded."""
        ...

    def statistics(self, model: ModelPath) -> Statistics:
        """Return what a model has done since it was loaded."""
        ...

    def all_statistics(self) -> Mapping[str, Statistics]:
        """Return the same of every loaded model, by its name."""
        ...


class Catalog:
    """Asks one server about a set of models. What was learnt is shared for a moment; nobody is told what is older."""

    def __init__(
        self,
        server: Callable[[], Server],
        models: Iterable[ModelPath],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what makes a way to ask, for whichever thread asks, and the model behind each public name."""
        behind = Counter(models)
        self.models = frozenset(behind)
        self._of_many_names = {model for model, names in behind.items() if names > 1}
        self._server = server
        self._monotonic = monotonic
        self._index: _Learnt | None = None
        self._closed_until = -1.0
        self._ready: dict[ModelPath, tuple[float, bool]] = {}
        self._described: dict[ModelPath, tuple[float, ModelDescription]] = {}
        self._asking: dict[tuple[int, ModelPath], AsyncResult[ModelDescription]] = {}

    def is_ready(self, model: ModelPath) -> bool:
        """Tell whether a model is loaded, by the index of all of them where there are many."""
        if _of_many(self.models) and (index := self.index(_INDEX_SECONDS)) is not None:
            return is_in(index, model)
        now = self._monotonic()
        at, ready = self._ready.get(model, (-_INDEX_SECONDS, False))
        if model not in self._of_many_names or now - at >= _INDEX_SECONDS:
            ready = self._server().is_model_ready(model)
            self._ready[model] = now, ready
        return ready

    def _versions(self, model: ModelPath) -> tuple[str, ...] | None:
        """Return which versions of a model are loaded, None where the index does not say."""
        if not _of_many(self.models) or model not in self.models or (index := self.index(_INDEX_SECONDS)) is None:
            return None
        if not is_in(index, model):
            return None  # By asking for it, its own error is met.
        return tuple(sorted(str(row.version) for row in index.get(model.name, ()) if row.state == _READY))

    def index(self, no_older_than: float = 0.0) -> Mapping[str, frozenset[IndexEntry]] | None:
        """Return the rows of the repository's index by model, None where Triton does not show it.

        Raises:
            RuntimeUnavailable: Triton does not answer.
        """
        now = self._monotonic()
        if now < self._closed_until:
            return None
        learnt = self._index
        if learnt is None or now - learnt.at >= no_older_than:
            learnt = self._index = _Learnt(now, self._asked_index())
        if isinstance(learnt.index, ContractMismatch):
            self._closed_until = now + _CLOSED_SECONDS
            return None
        if isinstance(learnt.index, JobError):
            raise learnt.index
        return learnt.index

    def describe(self, model: ModelPath, no_older_than: float = 0.0) -> ModelDescription:
        """Return what a model takes and gives.

        Raises:
            ModelNotReady: it is unknown, loading or unloaded, or not there in that version.
            RuntimeUnavailable: Triton does not answer.
            ContractMismatch: Triton does not permit to ask.
        """
        described = self._described.get(model)
        if described is not None and self._monotonic() - described[0] < no_older_than:
            return described[1]
        self.forget(model)
        described = (self._monotonic(), self._asked_description(model))
        self._described[model] = described
        return described[1]

    def describe_for_a_look(self, model: ModelPath) -> ModelDescription:
        """Do the same, or return what another look has just learnt or is learning: a model may stand behind hundreds of names."""
        # A greenlet can wait for another of its own thread only.
        key = (id(gevent.get_hub()), model)
        asking = self._asking.get(key)
        if asking is not None and (learnt := asking.get()) is not None:
            return learnt
        asking = self._asking[key] = AsyncResult()
        try:
            described = self.describe(model, _DESCRIPTION_SECONDS)
            asking.set(described)
            return described
        except JobError as error:
            asking.set_exception(error)
            raise
        finally:
            del self._asking[key]
            if not asking.ready():  # Whoever asked was killed over it.
                asking.set_exception(RuntimeUnavailable())

    def is_as_described(self, model: ModelPath) -> bool:
        """Tell whether a model is still what it was described as the last time, if it was."""
        before = self._described.get(model)
        try:
            return before is None or self.describe(model) == before[1]
        except JobError:
            return False

    def forget(self, model: ModelPath) -> None:
        """Learn that a model is not what it was described as."""
        self._described.pop(model, None)

    def statistics(self) -> Mapping[str, Statistics]:
        """Return what each model has done since it was loaded, by its name; only of those that Triton tells of."""
        names = {model.name for model in self.models}
        try:
            if len(names) > FEW_MODELS:
                return {name: its for name, its in self._server().all_statistics().items() if name in names}
        except JobError:
            return {}
        found: dict[str, Statistics] = {}
        for name in sorted(names):
            with suppress(JobError):  # One that is not loaded hides nothing of the others.
                found[name] = self._server().statistics(ModelPath(name))
        return found

    def _asked_index(self) -> Mapping[str, frozenset[IndexEntry]] | JobError:
        try:
            entries = self._server().index()
        except (ContractMismatch, RuntimeUnavailable) as error:
            return error
        rows: dict[str, set[IndexEntry]] = {}
        for entry in entries:
            rows.setdefault(entry.name, set()).add(entry)
        return {name: frozenset(of_it) for name, of_it in rows.items()}

    def _asked_description(self, model: ModelPath) -> ModelDescription:
        server = self._server()
        try:
            return server.describe(model, self._versions(model))
        except ModelNotReady as error:
            versions = server.versions(model.name) if model.version else ()
            if not versions:
                raise
            raise error from Refused(f"version {model.version} is not loaded; loaded: {', '.join(versions)}")


def _of_many(models: frozenset[ModelPath]) -> bool:
    return len(models) > FEW_MODELS


def is_in(index: Mapping[str, frozenset[IndexEntry]], model: ModelPath) -> bool:
    """Tell whether an index has a model ready, in its version if it names one."""
    return any(entry.state == _READY and model.version in {None, entry.version} for entry in index.get(model.name, ()))
