"""The job: what a gateway puts in a model's queue (docs/wire-contract.md, section 2)."""

import math
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, WithJsonSchema

from tasks import rfc3339

TASK_NAME: Final = "speedinfer.generate"
"""The Celery task's name, for producers that send protocol 2 messages."""

INT32_MAX: Final = 2**31 - 1
_METADATA_ENTRIES: Final = 16
_METADATA_BYTES: Final = 4096


def _read_time(value: object) -> datetime:
    if not isinstance(value, str):
        msg = "is not a string"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns a ValueError into its own error, a TypeError it lets through
    return rfc3339.parse(value)


def _small(metadata: dict[str, str]) -> dict[str, str]:
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > _METADATA_BYTES:
        msg = f"is over {_METADATA_BYTES} bytes"
        raise ValueError(msg)
    return metadata


def _finite(value: JsonValue) -> JsonValue:
    match value:
        case float() if not math.isfinite(value):
            msg = "holds a number that is not finite"
            raise ValueError(msg)
        case list():
            for item in value:
                _finite(item)
        case dict():
            for item in value.values():
                _finite(item)
    return value


def _traced(traceparent: str) -> str:
    version, trace_id, parent_id, _flags = traceparent.split("-")
    if version == "ff" or set(trace_id) == {"0"} or set(parent_id) == {"0"}:
        msg = "is not a W3C trace context"
        raise ValueError(msg)
    return traceparent


def _not_streamed(stream: bool) -> bool:  # noqa: FBT001 - pydantic hands over the value
    if stream:
        msg = "is not false"
        raise ValueError(msg)
    return stream


def _no_parent(name: str) -> str:
    if ".." in name:
        msg = "holds '..'"
        raise ValueError(msg)
    return name


# What a validator checks beyond a pattern stands beside it in JSON Schema's words, since pydantic cannot derive those.
JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
PublicName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9._/-]{1,200}$", json_schema_extra={"not": {"pattern": r"\.\."}}),
    AfterValidator(_no_parent),
]
Label = Annotated[str, Field(max_length=200)]
Time = Annotated[
    datetime,
    BeforeValidator(_read_time),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": rfc3339.PATTERN}),
]
Metadata = Annotated[dict[str, str], Field(max_length=_METADATA_ENTRIES), AfterValidator(_small)]
TraceParent = Annotated[
    str,
    Field(
        pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$",
        json_schema_extra={"not": {"pattern": "^ff-|^..-0{32}-|^..-.{32}-0{16}-"}},
    ),
    AfterValidator(_traced),
]
# Not Literal[False] and Literal[1]: those take 0, true and 1.0 for them.
Unstreamed = Annotated[bool, AfterValidator(_not_streamed), WithJsonSchema({"type": "boolean", "const": False})]
ContractVersion = Annotated[int, Field(ge=1, le=1), WithJsonSchema({"type": "integer", "const": 1})]


def _nothing() -> Any:
    """Return the default of an object: made for each job, where pydantic would make a deep copy of {} in several times that."""
    return Field(default_factory=dict)


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Addressed(_Wire):
    """Whose the job is: the first fields of a job of any kind."""

    job_id: Annotated[JobId, Field(description="Given by the gateway; the idempotency key.")]
    model: Annotated[PublicName, Field(description="The public name of the model.")]


class Attended(_Wire):
    """How the job is handled: the last fields of a job of any kind."""

    stream: Annotated[Unstreamed, Field(description="Anything else is streaming_not_supported.")] = False
    expires_at: Annotated[Time | None, Field(description="The job is not started after it.")] = None
    tenant: Annotated[Label | None, Field(description="Echoed in the result.")] = None
    batch_id: Annotated[Label | None, Field(description="Echoed in the result.")] = None
    custom_id: Annotated[Label | None, Field(description="Echoed in the result.")] = None
    metadata: Annotated[Metadata, Field(description="Echoed in the result; at most 4 KiB.")] = _nothing()
    enqueued_at: Annotated[Time | None, Field(description="Used for the queue-time figures.")] = None
    traceparent: Annotated[TraceParent | None, Field(description="W3C trace context, passed on to Triton.")] = None
    version: Annotated[ContractVersion, Field(description="The version of this contract.")] = 1


class _Prompted(_Wire):
    prompt: Annotated[str, Field(min_length=1, repr=False, description="At most max_prompt_bytes of UTF-8.")]
    max_tokens: Annotated[int, Field(ge=1, le=INT32_MAX, description="At most the model's limit.")]
    parameters: Annotated[
        dict[str, Annotated[JsonValue, AfterValidator(_finite)]],
        Field(description="Generation parameters; each must be mapped by the model's configuration."),
    ] = _nothing()


class GenerateJob(Attended, _Prompted, Addressed):  # pydantic takes the fields of the last one first
    """One text generation, as asked for by the gateway."""
