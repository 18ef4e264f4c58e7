"""How one Triton model is spoken to, and over what connection."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from settings import chat_template as templates
from settings.fields import (
    INT32_MAX,
    Bytes,
    FrozenMapping,
    ParameterName,
    Refusal,
    Seconds,
    Section,
    Shown,
    TensorName,
    TritonName,
    at_most,
    refuse,
    refuse_if_above,
)
from settings.presets import PresetName, expanded
from settings.refusals import STREAMS
from settings.tensors import TensorRules

Constant = bool | int | float | str | tuple["Constant", ...]


def _constant(value: object) -> Constant:
    if isinstance(value, (list, tuple)) and value:
        return tuple(_constant(each) for each in value)
    if isinstance(value, float) and abs(value) < float("inf"):
        return value
    if isinstance(value, (bool, str)) or (isinstance(value, int) and -(1 << 63) <= value < (1 << 64)):
        return value
    raise PydanticCustomError("refused", "must be true or false, a finite number of 64 bits, text, or a list of these")


def _not_stream(name: str) -> str:
    if name.lower() in STREAMS:
        raise PydanticCustomError("refused", "streaming is not supported: no job may ask for it")
    return name


def _compiled(source: str) -> str:
    try:
        templates.compiled(source)
    except templates.UnusableTemplateError as error:
        raise PydanticCustomError("refused", "{reason}", {"reason": str(error)}) from None
    return source


OptionName = Annotated[ParameterName, AfterValidator(_not_stream)]
OptionTensor = Annotated[TensorName, AfterValidator(_not_stream)]
OptionType = Literal[
    "BOOL", "BYTES", "INT32", "INT64", "UINT32", "UINT64", "FP32", "FP64",
    "BOOL[]", "BYTES[]", "INT32[]", "INT64[]", "UINT32[]", "UINT64[]", "FP32[]", "FP64[]",
]  # fmt: skip


class RuntimeConfig(Section):
    """The Triton model behind public names: its tensors, limits and transport."""

    model_name: TritonName
    """Name of the model in Triton."""
    model_version: TritonName | None = None
    """Version of the model. Without one, Triton's version policy decides."""
    input_name: TensorName = "text_input"
    """BYTES input that takes the prompt."""
    max_tokens_input_name: TensorName | None = "max_tokens"
    """Integer input that takes `max_tokens`. null sends none; then `options_json_input` must carry it."""
    output_name: TensorName = "text_output"
    """BYTES output with the text."""
    prompt_tokens_output_name: TensorName = "prompt_tokens"
    """Integer output with the prompt's token count."""
    completion_tokens_output_name: TensorName = "completion_tokens"
    """Integer output with the completion's token count."""
    finish_reason_output_name: TensorName | None = None
    """BYTES output with the finish reason."""
    timeout_seconds: Seconds = 120.0
    """Bounds one inference end to end, the wait for a connection included."""
    connect_timeout_seconds: Annotated[Seconds, Shown(default="5, or `timeout_seconds` if smaller")] = Field(
        default_factory=lambda data: at_most(data, "timeout_seconds", 5.0)
    )
    """Bounds making a connection to Triton. At most `timeout_seconds`."""
    max_prompt_bytes: Bytes = 1 << 20
    """Largest prompt, as UTF-8. Triton's own limit for a request is 64 MiB unless it is started with another."""
    max_tokens_limit: Annotated[int | None, Field(ge=1, le=INT32_MAX), Shown(unit="tokens")] = None
    """Largest `max_tokens` of a job."""
    max_result_bytes: Bytes = 16 << 20
    """Largest answer that is read; a longer one is cut off and the job fails."""
    constants: Annotated[
        FrozenMapping[TensorName, Annotated[object, AfterValidator(_constant)]],
        Shown(kind="mapping of tensor name to value"),
    ] = Field(default={}, validate_default=True)
    """Inputs sent with every request: true or false, number, text, or a list of these."""
    options: Annotated[
        FrozenMapping[OptionName, OptionTensor],
        Shown(kind="mapping of parameter name to tensor name"),
    ] = Field(default={}, validate_default=True)
    """Which entry of a job's `parameters` goes into which input. One that is not listed is refused, unless
    `options_json_input` takes it."""
    options_json_input: TensorName | None = None
    """BYTES input that takes all of a job's `parameters`, and `max_tokens`, as one JSON text."""
    options_json_parameters: Annotated[
        FrozenMapping[OptionName, OptionType] | None, Shown(kind="mapping of parameter name to datatype")
    ] = None
    """Which entries of a job's `parameters` may go into `options_json_input`, and the datatype that each one's value must
    fit: `BOOL`, `BYTES` (text), `INT32`, `INT64`, `UINT32`, `UINT64`, `FP32` or `FP64`, with `[]` behind it where a list
    will do too. Not set: any entry, unchecked."""
    transport: Literal["auto", "infer", "generate"] = "auto"
    """Endpoint of Triton that is called: `infer`, `generate`, or what the model's own configuration needs."""
    preset: PresetName | None = None
    """Names a known kind of model whose fields need not be written; those that are written win."""
    kind: Literal["text", "tensors"] = "text"
    """Whether jobs carry a prompt or tensors."""
    tensors: TensorRules = TensorRules()
    """Of a model of kind `tensors`: what its jobs may ask for, and what they are billed by."""
    chat_template: Annotated[str, AfterValidator(_compiled)] | None = None
    """Jinja template that makes a prompt of chat messages, as the model's own repository has it, or `file:PATH` for one in
    a file. Workers take prompts only; it is for those who make jobs, such as `speedinfer batch`. See
    [batch.md](batch.md#chat-templates)."""

    _written: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def written(self) -> Mapping[str, Any]:
        """The fields as they were written, without what a preset or a default adds."""
        return self._written

    def plain(self) -> dict[str, Any]:
        """Return what was written with what its preset adds, as fields that mean the same without a preset."""
        names = set(expanded(self._written)) - {"preset"}
        return self.model_dump(mode="json", include=names)

    @property
    def parameters(self) -> frozenset[str] | None:
        """Which `parameters` a job may have; None where it may have any."""
        if self.options_json_input is not None and self.options_json_parameters is None:
            return None
        return frozenset(self.options) | frozenset(self.options_json_parameters or ())

    @model_validator(mode="wrap")
    @classmethod
    def _with_its_preset(cls, written: Any, handler: Callable[[Any], Self]) -> Self:
        if not isinstance(written, Mapping):
            return handler(written)
        config = handler(expanded(written))
        config._written = MappingProxyType(dict(written))  # noqa: SLF001 - our own class; a validator has no self yet
        return config

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_if_above(self, ("connect_timeout_seconds", "timeout_seconds"))
        if self.kind == "tensors":  # What else is here may be inherited, for the texts of other models.
            refuse(self._not_for_tensors())
            return self
        refuse([*_repeated(dict(self._inputs())), *_repeated(dict(self._outputs())), *self._options_without_a_way()])
        return self

    def _inputs(self) -> Iterator[tuple[tuple[str, ...], str | None]]:
        yield ("input_name",), self.input_name
        yield ("max_tokens_input_name",), self.max_tokens_input_name
        yield ("options_json_input",), self.options_json_input
        yield from ((("constants", name), name) for name in self.constants)
        yield from ((("options", parameter), name) for parameter, name in self.options.items())

    def _outputs(self) -> Iterator[tuple[tuple[str, ...], str | None]]:
        for field in (
            "output_name",
            "prompt_tokens_output_name",
            "completion_tokens_output_name",
            "finish_reason_output_name",
        ):
            yield (field,), getattr(self, field)

    def _not_for_tensors(self) -> Iterator[Refusal]:
        if self.transport == "generate":
            yield Refusal(("transport",), "generate", "has no tensors: a model of kind tensors takes infer")

    def _options_without_a_way(self) -> Iterator[Refusal]:
        if self.options_json_input is not None:
            if "max_tokens" in (self.options_json_parameters or ()):
                at = ("options_json_parameters", "max_tokens")
                yield Refusal(at, None, "is no parameter: a job's own max_tokens goes there")
            return
        if self.max_tokens_input_name is None:
            yield Refusal(("max_tokens_input_name",), None, "may be null only where options_json_input is set")
        if self.options_json_parameters is not None:
            yield Refusal(("options_json_parameters",), None, "has no use without options_json_input")


def _repeated(names: Mapping[tuple[str, ...], str | None]) -> Iterator[Refusal]:
    """Each place but the first that names a tensor which another one names: two counts in one tensor bill wrongly."""
    used = Counter[str]()
    for at, name in names.items():
        if name is None:
            continue
        if used[name]:
            yield Refusal(at, name, "is the same tensor as another field names")
        used[name] += 1


class RuntimeTls(Section):
    """Certificates for an https endpoint."""

    ca_file: Annotated[Path | None, Field(strict=False), Shown(kind="path")] = None
    """PEM file of the authorities that Triton's certificate is checked by. Without it, those of the system."""
    cert_file: Annotated[Path | None, Field(strict=False), Shown(kind="path")] = None
    """PEM file of the client certificate."""
    key_file: Annotated[Path | None, Field(strict=False), Shown(kind="path")] = None
    """PEM file of the client certificate's key. Without it, the key is read from `cert_file`."""
    verify: bool = True
    """Whether Triton's certificate and host name are checked."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key_file and not self.cert_file:
            refuse([Refusal(("key_file",), str(self.key_file), "has no use without cert_file")])
        if self.ca_file and not self.verify:
            refuse([Refusal(("verify",), False, "must be true where ca_file is set")])
        return self
