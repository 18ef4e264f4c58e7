"""Token usage: what a job is billed by."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


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
