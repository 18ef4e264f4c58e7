"""docs/configuration.md, written from the settings' own types: `python -m settings.reference > docs/configuration.md`."""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from settings.fields import Section, Shown
from settings.presets import PRESETS
from settings.schema import Settings

T = TypeVar("T")

_INTRO = """\
<!-- Written by `python -m settings.reference`; edit the types in settings/ instead. -->
# Configuration

A worker reads one file when it starts, `speedinfer worker --config FILE` or the file that `SPEEDINFER_CONFIG` names.
JSON, TOML and YAML hold the same tree; the suffix (`.json`, `.toml`, `.yaml`, `.yml`) says which it is. The smallest
useful one:

```json
{
  "worker_id": "triton-01",
  "runtime_endpoint": "http://triton:8000",
  "supported_models": ["acme/model-1"],
  "runtime_config": {"model_name": "text_generation"}
}
```

The same with the names of the model's tensors spelt out, as existing installations have it:

```json
{
  "worker_id": "triton-01",
  "worker_type": "nvidia-gpu",
  "runtime": "triton",
  "runtime_endpoint": "http://triton:8000",
  "supported_models": ["acme/model-1"],
  "runtime_config": {
    "model_name": "text_generation",
    "input_name": "text_input",
    "max_tokens_input_name": "max_tokens",
    "output_name": "text_output",
    "prompt_tokens_output_name": "prompt_tokens",
    "completion_tokens_output_name": "completion_tokens"
  }
}
```

## Environment variables

Any field can be set, or overridden, by a variable: `SPEEDINFER_` and the field's name in capitals, with `__` between
levels. A file is not needed where variables say everything.

| variable | sets |
|---|---|
| `SPEEDINFER_WORKER_ID=triton-{hostname}` | `worker_id` |
| `SPEEDINFER_GPU_POOL__MAX_CONCURRENCY=8` | `gpu_pool.max_concurrency` |
| `SPEEDINFER_SUPPORTED_MODELS=["acme/model-1"]` | `supported_models`: lists and mappings are JSON |
| `SPEEDINFER_RUNTIME_HEADERS__Authorization=env:TRITON_TOKEN` | one header: keys of a mapping are written as they are |

Mappings are laid over the file's key by key; lists and single values replace the file's. An empty variable unsets a
field that may be unset. A `SPEEDINFER_` variable that means no field is refused, so that a slip of the keyboard is seen;
in Kubernetes, `enableServiceLinks: false` keeps it from making such variables of a Service's name.

## What is refused

A worker with a wrong configuration does not start and connects to nothing; it says all that is wrong, one line each with
file or variable, field, value and reason, and exits with 2. Refused are unknown fields, values of another type (`"4"` for
4, `true` for 1), keys given twice, and `"stream": true` or `"streaming": true` wherever it stands. Values of
`runtime_headers` and what may be a password are never shown.
"""


def render_reference() -> str:
    """The whole page as Markdown, ending in one newline."""
    return "\n".join([_INTRO, *_section(Settings, ""), *_presets()]).rstrip("\n") + "\n"


def _presets() -> Iterator[str]:
    yield "## Presets\n"
    yield "What each value of `runtime_config.preset` stands for. A field that is written wins over the preset's; mappings are"
    yield "laid over each other entry by entry, and an entry that is written as null takes the preset's away.\n"
    for name, fields in PRESETS.items():
        yield f"`{name}`:\n\n```json runtime_config\n{json.dumps(fields, indent=2)}\n```\n"


def _section(section: type[Section], path: str) -> Iterator[str]:
    """The section's own fields as a table, then each section in it."""
    yield f"## {f'`{path}`' if path else 'Fields'}\n"
    if path:
        yield f"{inspect.cleandoc(section.__doc__ or '')}\n"
    yield "| field | type | default | unit | meaning |\n|---|---|---|---|---|"
    yield from (_row(path, name, field) for name, field in section.model_fields.items())
    yield ""
    for name, field in section.model_fields.items():
        if (inner := _inner(field.annotation)) is not None:
            yield from _section(inner, f"{path}.{name}" if path else name)


def _row(path: str, name: str, field: FieldInfo) -> str:
    full = f"{path}.{name}" if path else name
    cells = [f"`{full}`", _kind(field), _default(field), _unit(name, field), _meaning(field)]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _unit(name: str, field: FieldInfo) -> str:
    shown = _shown(field)
    if shown.unit:
        return shown.unit
    return next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")


def _default(field: FieldInfo) -> str:
    if shown := _shown(field).default:
        return shown
    default = field.default
    if field.is_required():
        return "required"
    if isinstance(default, Section):
        return "as below"
    if isinstance(default, SecretStr):
        default = default.get_secret_value()  # the default is no secret
    if default is None or default is PydanticUndefined:
        return "not set"
    return f"`{_json(default)}`"


def _kind(field: FieldInfo) -> str:
    if shown := _shown(field).kind:
        return shown
    kind = next((each for each in _parts(field.annotation) if each is not NoneType), None)
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Section):
        return "section"
    bounds: list[Ge | Gt | Le] = [*_found(field, Ge), *_found(field, Gt), *_found(field, Le)]
    return ", ".join([_NAMES.get(kind, "text"), *_bounds(bounds)])


_NAMES: Mapping[Any, str] = {int: "integer", float: "number", bool: "true or false", str: "text"}


def _bounds(bounds: list[Ge | Gt | Le]) -> Iterator[str]:
    """Lowest and highest value; the tighter where a field narrows what its type allows."""
    lower = [(b.ge, "≥") for b in bounds if isinstance(b, Ge)] + [(b.gt, ">") for b in bounds if isinstance(b, Gt)]
    upper = [b.le for b in bounds if isinstance(b, Le)]
    if lower:
        value, sign = max(lower, key=lambda each: float(str(each[0])))
        yield f"{sign} {value}"
    if upper:
        yield f"≤ {min(upper, key=lambda each: float(str(each)))}"


def _shown(field: FieldInfo) -> Shown:
    return next(iter(_found(field, Shown)), Shown())


def _found(field: FieldInfo, kind: type[T]) -> list[T]:
    """Everything of that kind that describes or bounds the field, on itself or on its type."""
    found: list[Any] = [*field.metadata, *_metadata(field.annotation)]
    return [each for each in found if isinstance(each, kind)]


def _metadata(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Annotated:
        for each in get_args(kind)[1:]:
            yield from each.metadata if isinstance(each, FieldInfo) else [each]
        yield from _metadata(get_args(kind)[0])
    elif get_origin(kind) in {Union, UnionType}:
        for each in get_args(kind):
            yield from _metadata(each)


def _parts(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Annotated:
        yield from _parts(get_args(kind)[0])
    elif get_origin(kind) in {Union, UnionType}:
        for each in get_args(kind):
            yield from _parts(each)
    else:
        yield kind


def _inner(kind: Any) -> type[Section] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _json(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.stdout.write(render_reference())
