"""What Triton says of itself and of its models. Nothing here runs a job."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tasks.errors import ContractMismatch, JobError, ModelNotReady, RuntimeUnavailable
from worker.triton.description import Config, Metadata, ModelDescription, NotADescription
from worker.triton.failures import ExchangeFailed, NotTriton, error_from_answer, error_from_loss
from worker.triton.http import Answer, HttpClients, Limits, Request

_OK: Final = 200
_FORBIDDEN: Final = 403
LONGEST_ANSWER_BYTES: Final = 4 << 20


class ServerIdentity(BaseModel):
    """``GET /v2``: what the server calls itself."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    version: str


class IndexEntry(BaseModel):
    """One row of the repository's index; a model that was never loaded has no version and no state."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    version: str | None = None
    state: str | None = None


_INDEX: Final = TypeAdapter(tuple[IndexEntry, ...])


class _Count(BaseModel):
    count: int = 0


class _Ended(BaseModel):
    success: _Count = _Count()
    fail: _Count = _Count()


class _VersionStatistics(BaseModel):
    name: str = ""
    inference_count: int = 0
    last_inference: int = 0
    inference_stats: _Ended = _Ended()


class _Statistics(BaseModel):
    model_stats: tuple[_VersionStatistics, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a model has done since it was loaded, all of its versions together; ``last_inference_ms`` is Triton's own clock's.

    A model whose process died goes on counting what it fails. Each of these only ever grows, until the model is loaded again.
    """

    inferences: int = 0
    succeeded: int = 0
    failed: int = 0
    last_inference_ms: int = 0

    def is_behind(self, earlier: "Statistics") -> bool:
        """Tell whether the model was loaded again, or its server started again, since ``earlier``."""
        now, then = astuple(self), astuple(earlier)
        return any(one < other for one, other in zip(now, then, strict=True))


@dataclass(frozen=True, slots=True)
class ModelPath:
    """A model in Triton, in one version or in the one that its version policy picks. Both are plain names."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return f"/v2/models/{self.name}" + (f"/versions/{self.version}" if self.version else "")


class TritonServer:
    """The questions that any Triton answers, each one exchange within ``limits``.

    Every method raises RuntimeUnavailable where the answer is lost or no Triton's, ContractMismatch where it is not permitted.
    """

    def __init__(self, http: HttpClients, limits: Limits) -> None:
        """Take the clients, which the caller closes."""
        self._http = http
        self._limits = limits

    def identity(self) -> ServerIdentity:
        """Return the server's name and version. A proxy's page has none, so this tells a Triton from what else answers 200."""
        body = self._answer(Request("/v2")).body
        try:
            return ServerIdentity.model_validate_json(body)
        except ValidationError:
            raise RuntimeUnavailable(upstream_status=_OK) from NotTriton()

    def is_ready(self) -> bool:
        """Tell whether the server is ready; in strict mode it is not while any of its models is loading or failed."""
        return _says_ready(self._exchange(Request("/v2/health/ready")))

    def is_model_ready(self, model: ModelPath) -> bool:
        """Tell whether a model is loaded. It stays so when the model's process dies: only inferences tell."""
        return _says_ready(self._exchange(Request(f"{model}/ready")))

    def ready_models(self) -> tuple[IndexEntry, ...]:
        """Return what is loaded, a row for each version."""
        return self._index({"ready": True})

    def index(self) -> tuple[IndexEntry, ...]:
        """Return a row for each version of each model that the repository has, loaded or not."""
        return self._index({})

    def describe(self, model: ModelPath, versions: tuple[str, ...] | None = None) -> ModelDescription:
        """Return what a model takes and gives, by its configuration, or its metadata where that is refused.

        ``versions`` are those that are loaded; where nobody knows them yet, they are asked for.

        Raises:
            ModelNotReady: it is unknown, loading or unloaded.
        """
        try:
            metadata = self._metadata(model) if versions is None else None
            config = self._exchange(Request(f"{model}/config"))
            if config.status == _FORBIDDEN:
                return (metadata or self._metadata(model)).described()
            read = Config.read(_checked(config).body)
            return read.described(metadata.versions if metadata else versions or ())
        except NotADescription:
            raise RuntimeUnavailable(upstream_status=_OK) from NotTriton()

    def statistics(self, model: ModelPath) -> Statistics:
        """Return what a model has done since it was loaded.

        Raises:
            RuntimeUnavailable: it is not loaded, too.
        """
        return _added_up(self._statistics(f"{model}/stats"))

    def all_statistics(self) -> dict[str, Statistics]:
        """Return the same of every loaded model, by its name."""
        by_name: dict[str, list[_VersionStatistics]] = {}
        for one in self._statistics("/v2/models/stats"):
            by_name.setdefault(one.name, []).append(one)
        return {name: _added_up(versions) for name, versions in by_name.items()}

    def versions(self, model_name: str) -> tuple[str, ...]:
        """Return the versions of a model that are loaded; none if it is not known."""
        try:
            return self._metadata(ModelPath(model_name)).versions
        except ModelNotReady:
            return ()
        except NotADescription:
            raise RuntimeUnavailable(upstream_status=_OK) from NotTriton()

    def _metadata(self, model: ModelPath) -> Metadata:
        return Metadata.read(self._answer(Request(str(model))).body)

    def _index(self, wish: dict[str, object]) -> tuple[IndexEntry, ...]:
        body = self._answer(_json_request("/v2/repository/index", wish)).body
        try:
            return _INDEX.validate_json(body)
        except ValidationError:
            raise RuntimeUnavailable(upstream_status=_OK) from NotTriton()

    def _statistics(self, path: str) -> Sequence[_VersionStatistics]:
        body = self._answer(Request(path)).body
        try:
            return _Statistics.model_validate_json(body).model_stats
        except ValidationError:
            raise RuntimeUnavailable(upstream_status=_OK) from NotTriton()

    def _answer(self, request: Request) -> Answer:
        return _checked(self._exchange(request))

    def _exchange(self, request: Request) -> Answer:
        try:
            return self._http.exchange(request, self._limits)
        except ExchangeFailed as failed:
            raise _as_probe(error_from_loss(failed)) from failed


def _added_up(versions: Sequence[_VersionStatistics]) -> Statistics:
    return Statistics(
        inferences=sum(one.inference_count for one in versions),
        succeeded=sum(one.inference_stats.success.count for one in versions),
        failed=sum(one.inference_stats.fail.count for one in versions),
        last_inference_ms=max((one.last_inference for one in versions), default=0),
    )


def _checked(answer: Answer) -> Answer:
    if answer.status == _OK:
        return answer
    error = error_from_answer(answer.status, answer.body)
    raise _as_probe(error) from error.__cause__


def _as_probe(error: JobError) -> JobError:
    """Return what an error means where nothing was to be run: a lost answer says no more than that it is not there."""
    if isinstance(error, (ContractMismatch, ModelNotReady, RuntimeUnavailable)):
        return error
    return RuntimeUnavailable(upstream_status=error.upstream_status)


def _says_ready(answer: Answer) -> bool:
    # Triton's answer is empty; a proxy in its place may answer everything with a page and 200.
    return answer.status == _OK and not answer.body.lstrip().startswith(b"<")


def _json_request(path: str, content: dict[str, object]) -> Request:
    return Request(path, json.dumps(content).encode(), {"Content-Type": "application/json"})
