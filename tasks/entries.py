"""The entries of the two streams: fields of strings, as XREADGROUP returns them (docs/wire-contract.md, sections 3 and 4)."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tasks.reading import DeadLetterReason
from tasks.result import Timestamp


class _Entry(BaseModel):
    """Frozen and strict; readers of streams ignore fields they do not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class SettlementEntry(_Entry):
    """One job's end in the settlement queue."""

    job_id: Annotated[str, Field(description="The job's.")]
    status: Annotated[Literal["succeeded", "failed"], Field(description="As in the result.")]
    model: Annotated[str, Field(description="As in the result.")]
    result: Annotated[
        str,
        Field(
            description="The result as JSON (result.json).", json_schema_extra={"contentMediaType": "application/json"}
        ),
    ]


class DeadLetterEntry(_Entry):
    """Something in a queue that could not become a job."""

    queue: Annotated[str, Field(description="The list it was in.")]
    reason: Annotated[DeadLetterReason, Field(description="What is wrong with it.")]
    raw: Annotated[bytes, Field(description="Its bytes as they came, of any encoding or none.")]
    worker_id: Annotated[str, Field(description="Who took it from the queue.")]
    at: Annotated[Timestamp, Field(description="By Redis' clock.")]
