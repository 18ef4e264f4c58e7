"""The whole of a worker's settings as one frozen value."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from settings import addresses
from settings.fields import (
    Bytes,
    Count,
    FrozenMapping,
    PublicName,
    Refusal,
    Seconds,
    Section,
    Shown,
    WholeSeconds,
    matching,
    refuse,
    validated,
)
from settings.limits import Circuit, GpuPool, Retry
from settings.metrics import MetricsAddress, PassThrough, TritonMetricsUrl, triton_metrics_url
from settings.presets import inherited
from settings.redis import RedisPassword, RedisSentinel, RedisTls, RedisUrl, whole_url
from settings.refusals import refusals_in
from settings.runtime import RuntimeConfig, RuntimeTls

_ONE_NAME = r"[A-Za-z0-9._-]{1,100}"
_ONE_NAME_WORDS = "must be 1 to 100 letters, digits, '.', '_' or '-'"
# The client writes these itself; a second one would cut a request short or be taken for another.
_CLIENTS_OWN_HEADERS = {
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "inference-header-content-length",
    "transfer-encoding",
}


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", name):
        raise PydanticCustomError("refused", "is not a header's name")
    if name.lower() in _CLIENTS_OWN_HEADERS:
        raise PydanticCustomError("refused", "is written by the client itself")
    return name


def _header_value(secret: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[\x20-\x7e]{1,16384}", secret.get_secret_value()):
        raise PydanticCustomError("refused", "must be 1 to 16384 printable ASCII characters on one line")
    return secret


class Settings(Section):
    """One worker's configuration, checked and complete.

    `settings.load` makes it from a file and the environment, where it also fills in what depends on the machine
    (`{hostname}`, `endpoint_id` for a loopback address) and resolves `env:` and `file:` headers.
    """

    worker_id: Annotated[str, matching(_ONE_NAME, f"{_ONE_NAME_WORDS}, after {{hostname}} is replaced")]
    """Name of this worker. `{hostname}` in it is replaced by the machine's. Two live processes must not share one."""
    worker_type: Annotated[str, matching(_ONE_NAME, _ONE_NAME_WORDS)] = "nvidia-gpu"
    """Kind of machine, for those who read the health keys."""
    runtime: Literal["triton"] = "triton"
    """What runs the models."""
    runtime_endpoint: Annotated[str, AfterValidator(addresses.http_endpoint), Shown(kind="http(s) URL")]
    """Where Triton answers HTTP; may end in a path that stands before `/v2`."""
    endpoint_id: Annotated[
        str,
        matching(r"[A-Za-z0-9._:%\[\]-]{1,255}", "must be 1 to 255 letters, digits, or one of . _ : % [ ] -"),
        Shown(default="host:port of `runtime_endpoint`; for a loopback address, the machine's name and the port"),
    ] = Field(default_factory=lambda data: addresses.endpoint_id_of(data["runtime_endpoint"], "localhost"))
    """What the endpoint is called where workers share knowledge of it. Several Tritons behind one Service are one."""
    supported_models: Annotated[tuple[PublicName, ...], Field(strict=False, min_length=1), Shown(kind="list of names")]
    """Public names of the models whose jobs this worker may run. Nothing else is ever run, whatever Triton has loaded."""
    runtime_config: RuntimeConfig
    """The Triton model behind the public names."""
    models: Annotated[
        FrozenMapping[PublicName, RuntimeConfig],
        Shown(kind="mapping of public name to fields of `runtime_config`"),
    ] = Field(default={}, validate_default=True)
    """Fields of `runtime_config` that differ for one public name."""
    runtime_headers: Annotated[
        FrozenMapping[
            Annotated[str, AfterValidator(_header_name)], Annotated[SecretStr, AfterValidator(_header_value)]
        ],
        Shown(kind="mapping of header name to value"),
    ] = Field(default={}, validate_default=True)
    """Headers sent to Triton with every request. A value `env:NAME` is read from the environment, `file:PATH` from a
    file, once, at the start; never shown nor logged."""
    runtime_tls: RuntimeTls = RuntimeTls()
    """Certificates for an https endpoint."""
    redis_url: RedisUrl = SecretStr("redis://127.0.0.1:6379/0")
    """Where Redis or Valkey is: `redis://USER@HOST:PORT/DB`, `rediss://` with TLS, `unix:///PATH`, or behind Sentinels
    `redis+sentinel://USER@HOST:PORT,HOST:PORT/SERVICE/DB` (`rediss+sentinel://` with TLS)."""
    redis_password: RedisPassword | None = None
    """Password of the user in `redis_url`, or of the default user. `env:NAME` is read from the environment, `file:PATH`
    from a file, once, at the start; never shown nor logged."""
    redis_tls: RedisTls = RedisTls()
    """Certificates for `rediss://`."""
    redis_sentinel: RedisSentinel = RedisSentinel()
    """Access to the Sentinels."""
    namespace: Annotated[
        str,
        matching(r"[A-Za-z0-9._-]{1,100}|\{[A-Za-z0-9._-]{1,100}\}", f"{_ONE_NAME_WORDS}, all of it in {{}} or none"),
    ] = "speedinfer"
    """First part of every key in Redis. On Redis Cluster a tagged one, `{speedinfer}`."""
    gpu_pool: GpuPool = Field(default_factory=GpuPool)
    """Limits shared with the other workers of the same GPU."""
    concurrency: Annotated[Count, Shown(unit="jobs", default="`gpu_pool.max_concurrency`")] = Field(
        default_factory=lambda data: data["gpu_pool"].max_concurrency if "gpu_pool" in data else 1
    )
    """Jobs that this process runs at once (its greenlets)."""
    lease_seconds: Annotated[Seconds, Field(ge=0.5, le=3600)] = 10.0
    """How long a worker that shows no life keeps its jobs."""
    heartbeat_seconds: Annotated[Seconds, Field(ge=0.05, le=3600)] = 5.0
    """How often the health keys are written. They expire after three of these."""
    max_deliveries: Annotated[int, Field(ge=1, le=1000), Shown(unit="deliveries")] = 5
    """How often a job may be delivered without an end before it is failed."""
    drain_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    """How long running inferences may go on after a request to stop."""
    result_ttl_seconds: WholeSeconds = 86_400
    """How long a result can be read by its job's id."""
    settled_ttl_seconds: WholeSeconds = 604_800
    """How long a job's id is remembered as settled, so that it is not run again."""
    max_job_bytes: Bytes = 4 << 20
    """Largest job as it stands in the queue; a larger one is a dead letter."""
    max_queue_seconds: Seconds | None = None
    """A job that waited longer since its `enqueued_at` expires."""
    circuit: Circuit = Circuit()
    """When a failing model is left alone."""
    retry: Retry = Retry()
    """When a failed job is tried again."""
    metrics_address: Annotated[MetricsAddress | None, Shown(kind="host:port")] = None
    """Where `/metrics`, `/healthz` and `/readyz` are served, to whoever asks. Port 0 takes any that is free."""
    pass_through_triton_metrics: PassThrough = False
    """Whether Triton's own metrics are part of each scrape, labelled by pool."""
    triton_metrics_url: TritonMetricsUrl = Field(default_factory=triton_metrics_url)
    """Where Triton shows its metrics. `runtime_headers` are not sent there."""
    celery_events: bool = False
    """Whether Celery's events are sent, for `celery events` and Flower. They cost time with each job."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log lines that are written."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """Form of the log lines. `auto` is `console` on a terminal and `json` elsewhere."""
    log_upstream_errors: bool = False
    """Whether the first line of Triton's error texts is logged, at debug level. It may hold parts of prompts."""

    @property
    def pool_name(self) -> str:
        """Name of the GPU pool: the configured one, or the endpoint's."""
        return self.gpu_pool.name or self.endpoint_id

    @property
    def redis_address(self) -> str:
        """The Redis URL without user, password and query, for people and logs."""
        return addresses.redis_address(self.redis_url)

    def runtime_for(self, public_name: str) -> RuntimeConfig:
        """Everything about the Triton model behind a public name, its own overrides merged in.

        Raises:
            KeyError: the name is not one of `supported_models`.
        """
        own = self.models.get(public_name)  # its names are all in supported_models
        if own is None and public_name not in self.supported_models:
            raise KeyError(public_name)
        return own or self.runtime_config

    @model_validator(mode="wrap")
    @classmethod
    def _whole_tree(cls, tree: Any, handler: Callable[[Any], Self]) -> Self:
        settings = validated(handler, tree, refusals_in(tree) if isinstance(tree, Mapping) else [])
        if settings is tree:
            return settings
        access = (settings.redis_url, settings.redis_password, settings.redis_tls, settings.redis_sentinel)
        return settings.model_copy(update={"redis_url": whole_url(*access)})

    @field_validator("supported_models")
    @classmethod
    def _unique(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        refuse(Refusal((index,), name, "is listed twice") for index, name in enumerate(names) if name in names[:index])
        return names

    @field_validator("models", mode="wrap")
    @classmethod
    def _merged(cls, overrides: Any, handler: Callable[[Any], Any], info: ValidationInfo) -> Any:
        """Each override laid over `runtime_config`, so that what is checked and kept is what will be used."""
        if not isinstance(overrides, Mapping):
            return handler(overrides)
        supported = info.data.get("supported_models", overrides)
        strangers = [
            Refusal((str(n),), o, "is not in supported_models") for n, o in overrides.items() if n not in supported
        ]
        base = info.data.get("runtime_config")
        common = base.written if base else {"model_name": "unknown"}
        merged = {n: inherited(common, o) if isinstance(o, Mapping) else o for n, o in overrides.items()}
        return validated(handler, merged, strangers)

    @field_validator("runtime_headers")
    @classmethod
    def _one_of_each(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        names = [name.lower() for name in headers]
        refuse(
            Refusal((name,), None, "is set twice: case does not tell headers apart")
            for index, name in enumerate(headers)
            if name.lower() in names[:index]
        )
        return headers

    @field_validator("runtime_tls")
    @classmethod
    def _only_with_https(cls, tls: RuntimeTls, info: ValidationInfo) -> RuntimeTls:
        endpoint = info.data.get("runtime_endpoint", "https:")
        if tls != RuntimeTls() and not endpoint.startswith("https:"):
            refuse([Refusal((), None, "has no use: runtime_endpoint is not an https:// URL")])
        return tls
