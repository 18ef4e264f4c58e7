"""A whole ``runtime_config`` for a model that nobody has described yet, or the plain reason why there is none. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from settings.fields import refusals_of
from settings.presets import PRESETS
from settings.runtime import RuntimeConfig
from worker.triton.comparing import compare
from worker.triton.description import ModelDescription
from worker.triton.model_contract import ContractReport
from worker.triton.remedies import likely_constant
from worker.triton.roles import Roles
from worker.triton.tensor_contract import compare_tensors


@dataclass(frozen=True, slots=True)
class Suggestion:
    """``fields`` is a ``runtime_config``; ``missing`` says what keeps it from working, ``notes`` what else to know."""

    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Tell whether it fits its model."""
        return not self.missing


def suggest(model: ModelDescription) -> Suggestion:
    """Return the shortest configuration that fits: a preset, the defaults, what the tensors' names tell, or tensor jobs."""
    roles = Roles.in_model(model)
    if _is_no_text_model(model, roles):
        return _for_tensors(model, roles)
    return _preset(model) or _by_names(model, roles)


def _is_no_text_model(model: ModelDescription, roles: Roles) -> bool:
    if roles.prompt is None or roles.text is None:
        return True
    of_texts = (roles.max_tokens, roles.sampling, roles.prompt_tokens, roles.completion_tokens)
    takes_numbers = any(tensor.datatype not in {"BYTES", "BOOL"} for tensor in model.inputs)
    return takes_numbers and not any(of_texts)


def _preset(model: ModelDescription) -> Suggestion | None:
    for name in PRESETS:
        fields: dict[str, Any] = {"model_name": model.name, "preset": name}
        report = _report(model, fields)
        if report.passed:
            return Suggestion(fields, (f"it has the tensors of the preset {name}",))
        fields |= _without_what_is_not_there(report)
        if _report(model, fields).passed:
            note = f"it has the tensors of the preset {name}, but for those that are null"
            return Suggestion(fields, (note,))
    return None


def _without_what_is_not_there(report: ContractReport) -> dict[str, dict[str, None]]:
    """Return the fields that take away what the preset sends and the model has no input for."""
    taken: dict[str, dict[str, None]] = {}
    for each in report.mismatches:
        field, _, entry = each.field.partition(".")
        if field in {"constants", "options"} and each.configured != "-":
            taken.setdefault(field, {})[entry] = None
    return taken


def _by_names(model: ModelDescription, roles: Roles) -> Suggestion:
    fields = dict(_fields(model, roles))
    missing = list(_missing(roles))
    if refused := _refused(fields):
        fields, missing = {"model_name": model.name}, missing or refused
    if not missing:
        missing = [f"{each.field} {each.reason}: {each.remedy}" for each in _report(model, fields).mismatches]
    notes = (
        []
        if set(fields) <= {"model_name", "options"}
        else ["tensors were told apart by their names: try it with --probe"]
    )
    if missing and not model.decoupled:
        notes.append('a price for each inference may do instead of tokens: "kind": "tensors"')
    return Suggestion(fields, tuple(notes), tuple(missing))


def _fields(model: ModelDescription, roles: Roles) -> Iterator[tuple[str, Any]]:
    yield "model_name", model.name
    by_field = {
        "input_name": roles.prompt,
        "max_tokens_input_name": roles.max_tokens,
        "output_name": roles.text,
        "prompt_tokens_output_name": roles.prompt_tokens,
        "completion_tokens_output_name": roles.completion_tokens,
        "finish_reason_output_name": roles.finish_reason,
    }
    for field, tensor in by_field.items():
        if tensor is not None and tensor.name != RuntimeConfig.model_fields[field].default:
            yield field, tensor.name
    if roles.max_tokens is None and roles.sampling is not None:
        yield "max_tokens_input_name", None
        yield "options_json_input", roles.sampling.name
    constants = {t.name: likely_constant(t) for t in model.inputs if likely_constant(t) is not None}
    if constants:
        yield "constants", constants
    taken = {tensor.name for tensor in by_field.values() if tensor is not None} | set(constants)
    options = {parameter: t.name for parameter, t in roles.options.items() if t.name not in taken}
    if options:
        yield "options", options


def _missing(roles: Roles) -> Iterator[str]:
    counts = {"prompt": roles.prompt_tokens, "completion": roles.completion_tokens}
    uncounted = [name for name, tensor in counts.items() if tensor is None]
    if uncounted:
        yield (
            f"it reports no token count of the {' and none of the '.join(uncounted)}, and no job is settled without both: let it "
            "return two integer outputs, such as prompt_tokens and completion_tokens"
        )
    if roles.max_tokens is None and roles.sampling is None:
        yield "it has no input that could take max_tokens, neither an integer nor one for JSON: let it have one"


def _refused(fields: Mapping[str, Any]) -> list[str]:
    """Return what no configuration may say: one tensor for two things."""
    try:
        RuntimeConfig.model_validate(fields)
    except ValidationError as error:
        return [f"{'.'.join(map(str, each.at))} {each.reason}" for each in refusals_of(error)]
    return []


def _for_tensors(model: ModelDescription, roles: Roles) -> Suggestion:
    fields = {"model_name": model.name, "kind": "tensors"}
    report = compare_tensors(model.name, RuntimeConfig.model_validate(fields), model)
    missing = tuple(f"{each.field} {each.reason}" for each in report.mismatches)
    return Suggestion(fields, (f"{_why_tensors(model, roles)}, so its jobs carry tensors",), missing)


def _why_tensors(model: ModelDescription, roles: Roles) -> str:
    """Say whether there is no text or only none that could be told: the second can be mended by hand."""
    why = []
    if roles.prompt is None:
        takes_text = any(tensor.datatype == "BYTES" for tensor in model.inputs)
        why.append("the prompt could not be told from the other inputs" if takes_text else "it takes no text")
    if roles.text is None:
        gives_text = any(tensor.datatype == "BYTES" for tensor in model.outputs)
        why.append("the text could not be told from the other outputs" if gives_text else "it gives no text")
    if not why:
        return "the prompt could not be told from the other inputs: none is called like a limit of tokens, and no output like a count"
    return " and ".join(why)


def _report(model: ModelDescription, fields: Mapping[str, Any]) -> ContractReport:
    return compare(model.name, RuntimeConfig.model_validate(fields), model)
