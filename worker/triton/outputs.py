"""What an inference's answer is worth: a generation, or the coded error that it is not one."""

from dataclasses import dataclass
from typing import Final

from tasks.errors import OutputInvalid, UsageUnavailable
from tasks.generate import Generation
from tasks.usage import Usage
from worker.triton.codec import InferenceAnswer, Output

INTEGER_DATATYPES: Final = frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})


@dataclass(frozen=True, slots=True)
class OutputNames:
    """Which tensors hold what."""

    text: str
    prompt_tokens: str
    completion_tokens: str
    finish_reason: str | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the tensors to ask for."""
        names = (self.text, self.prompt_tokens, self.completion_tokens, self.finish_reason)
        return tuple(name for name in names if name is not None)


@dataclass(frozen=True, slots=True)
class ReadGeneration:
    """A valid generation; ``bytes_replaced`` where the text was not all UTF-8."""

    generation: Generation
    bytes_replaced: bool


def read_generation(
    answer: InferenceAnswer, names: OutputNames, *, request_id: str, max_result_bytes: int
) -> ReadGeneration:
    """Return the generation in an answer to ``request_id``.

    Raises:
        OutputInvalid: it answers another request, or its text is not one BYTES value of at most ``max_result_bytes``.
            What was spent is on it where the counts are valid.
        UsageUnavailable: a count is not one valid integer.
    """
    if answer.request_id != request_id:
        raise OutputInvalid(upstream_status=200)
    usage = _usage(answer, names)
    text = _one_of_bytes(answer.outputs.get(names.text))
    if text is None or len(text) > max_result_bytes:
        raise OutputInvalid(upstream_status=200, usage=usage)
    if usage is None:
        raise UsageUnavailable(upstream_status=200)
    decoded, replaced = _decoded(text)
    finish_reason = _one_of_bytes(answer.outputs.get(names.finish_reason)) if names.finish_reason else None
    generation = Generation(
        text=decoded,
        usage=usage,
        finish_reason=None if finish_reason is None else _decoded(finish_reason)[0],
        model_version=answer.model_version,
    )
    return ReadGeneration(generation, replaced)


def _usage(answer: InferenceAnswer, names: OutputNames) -> Usage | None:
    prompt = _count(answer.outputs.get(names.prompt_tokens), least=1)
    completion = _count(answer.outputs.get(names.completion_tokens), least=0)
    if prompt is None or completion is None:
        return None
    return Usage.of(prompt_tokens=prompt, completion_tokens=completion)


def _count(output: Output | None, *, least: int) -> int | None:
    if output is None or output.datatype not in INTEGER_DATATYPES:
        return None
    # JSON may call true what it says is an integer.
    if not isinstance(output.value, int) or isinstance(output.value, bool):
        return None
    return output.value if output.value >= least else None


def _one_of_bytes(output: Output | None) -> bytes | None:
    if output is None or output.datatype != "BYTES" or not isinstance(output.value, bytes):
        return None
    return output.value


def _decoded(text: bytes) -> tuple[str, bool]:
    try:
        return text.decode(), False
    except UnicodeDecodeError:
        return text.decode(errors="replace"), True
