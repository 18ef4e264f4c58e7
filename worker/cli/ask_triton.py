"""What commands ask Triton, as plain findings: who it is, what it has loaded, and how each configured model stands."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from worker.cli.failures import Unreachable

if TYPE_CHECKING:
    from settings.runtime import RuntimeConfig
    from settings.schema import Settings
    from tasks.errors import JobError
    from worker.cli.probing import ProbeFindings
    from worker.cli.tensor_table import TensorRow
    from worker.triton.adapter import TritonInference
    from worker.triton.model_contract import Comparison

Verdict = Literal["fits", "mismatch", "not_ready", "unknown"]


@dataclass(frozen=True, slots=True)
class TritonFindings:
    """What Triton says of itself; ``models`` has a name and version for each that is loaded."""

    endpoint: str
    reachable: bool
    name: str | None = None
    version: str | None = None
    ready: bool | None = None
    models: tuple[tuple[str, str | None], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFindings:
    """How one public name's configuration stands beside its model; ``hint`` says what else to know or to do."""

    model: str
    triton_model: str
    verdict: Verdict
    versions: tuple[str, ...] = ()
    comparisons: "tuple[Comparison, ...]" = ()
    hint: str | None = None
    tensors: "tuple[TensorRow, ...]" = ()
    probe: "ProbeFindings | None" = None

    @property
    def is_right(self) -> bool:
        """Tell whether jobs can be run, and one was where that was asked for."""
        return self.verdict == "fits" and (self.probe is None or self.probe.ok)

    @property
    def is_doubtful(self) -> bool:
        """Tell whether something may go wrong all the same."""
        warned = self.probe is not None and bool(self.probe.warnings)
        return warned or any(each.is_doubt for each in self.comparisons)


@contextmanager
def triton_of(settings: "Settings") -> "Iterator[TritonInference]":
    """Give an adapter for the configured Triton, closed in the end."""
    from worker.triton.adapter import TritonInference

    triton = TritonInference.of(settings)
    try:
        yield triton
    finally:
        triton.close()


def about_triton(settings: "Settings", triton: "TritonInference") -> TritonFindings:
    """Return what Triton says of itself. Raises nothing where it does not answer."""
    from tasks.errors import ContractMismatch, JobError

    endpoint = settings.runtime_endpoint
    try:
        identity = triton.server_identity()
    except JobError as error:
        return TritonFindings(
            endpoint, reachable=False, error=f"{_reason(error)}; start Triton, or correct runtime_endpoint"
        )
    try:
        models = tuple((entry.name, entry.version) for entry in triton.ready_models())
    except ContractMismatch:
        # What is loaded is for people only; an operator may have closed the index.
        models = ()
    return TritonFindings(
        endpoint,
        reachable=True,
        name=identity.name,
        version=identity.version,
        ready=triton.server_ready(),
        models=models,
    )


def about_model(name: str, settings: "Settings", triton: "TritonInference", prompt: str | None = None) -> ModelFindings:
    """Return how a public name stands, with one inference of the prompt where one is given. Raises nothing."""
    from tasks.errors import JobError, ModelNotReady
    from worker.cli.probing import probe
    from worker.cli.tensor_table import tensor_rows

    config = settings.runtime_for(name)
    try:
        report = triton.check(name)
    except ModelNotReady as error:
        return ModelFindings(name, config.model_name, "not_ready", hint=_why_not_ready(config, error))
    except JobError as error:
        return ModelFindings(name, config.model_name, "unknown", hint=_reason(error))
    return ModelFindings(
        name,
        config.model_name,
        "fits" if report.passed else "mismatch",
        report.versions,
        report.comparisons,
        _CLOSED if report.from_metadata else None,
        tensor_rows(config, report.model) if report.model else (),
        probe(name, config, report.model, triton, prompt) if prompt and report.model and report.passed else None,
    )


_CLOSED = "Triton does not show its configuration: what is optional or decoupled is not known"


def _why_not_ready(config: "RuntimeConfig", error: "JobError") -> str:
    if config.model_version is None:
        return "Triton does not know it, or has not loaded it (yet)"
    return f"{_reason(error)}; without model_version, Triton's version policy decides"


def readiness(settings: "Settings") -> dict[str, bool]:
    """Return whether the model behind each public name is ready. Raises Unreachable."""
    from tasks.errors import JobError

    with triton_of(settings) as triton:
        try:
            return {name: triton.model_ready(name) for name in settings.supported_models}
        except JobError as error:
            raise Unreachable(f"Triton at {settings.runtime_endpoint} cannot be asked: {_reason(error)}") from error


def as_json(findings: Any) -> dict[str, Any]:
    """Return findings as JSON holds them."""
    from dataclasses import asdict

    return asdict(findings)


def _reason(error: "JobError") -> str:
    """Return why, in words of ours: what Triton itself said is not repeated."""
    cause = str(error.__cause__ or "")
    return cause or error.message.rstrip(".").lower()
