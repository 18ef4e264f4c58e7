"""Usage: what a job is billed by, tokens for a text and configured units for tensors."""

from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, model_validator

INFERENCES: Final = "inferences"
"""The unit that every tensor job is counted in: one by request."""


class Usage(BaseModel):
    """True token counts of one inference, as the runtime reported them. Never estimated, never defaulted."""

    # It is part of the result, whose readers ignore fields they do not know.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    prompt_tokens: Annotated[int, Field(ge=1, description="Tokens of the prompt.")]
    completion_tokens: Annotated[int, Field(ge=0, description="Tokens of the text.")]
    total_tokens: Annotated[int, Field(ge=1, description="Their sum.")]

    @classmethod
    def of(cls, *, prompt_tokens: int, completion_tokens: int) -> Self:
        """Return the usage with its sum."""
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
        )

    @model_validator(mode="after")
    def _total_is_the_sum(self) -> Self:
        if self.total_tokens != self.prompt_tokens + self.completion_tokens:
            msg = "total_tokens is not prompt_tokens + completion_tokens"
            raise ValueError(msg)
        return self


def _counted(units: dict[str, int]) -> dict[str, int]:
    if units.get(INFERENCES, 0) < 1:
        msg = f"{INFERENCES} is not at least 1"
        raise ValueError(msg)
    return units


class Units(RootModel[Annotated[dict[str, Annotated[int, Field(ge=0)]], AfterValidator(_counted)]]):
    """What the inference of a tensor job spent, by unit: always `inferences`, and what the model's configuration names."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        json_schema_extra={
            "required": [INFERENCES],
            "properties": {INFERENCES: {"type": "integer", "minimum": 1, "description": "By request."}},
        },
    )

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self:
        """Return the usage of one inference that also spent these."""
        return cls({INFERENCES: 1, **counts})


Spent = Annotated[Units | Usage, Field(union_mode="left_to_right")]
"""Usage of a job of any kind. Tokens are tried last: they would ignore the units beside them."""
