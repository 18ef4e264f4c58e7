"""Tensor jobs in files, and their outputs for people."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from worker.cli.failures import WrongUsage
from worker.cli.output import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST_VALUES: Final = 8
_LONGEST_VALUE: Final = 40
_PARTS: Final = ("inputs", "outputs", "inference_parameters")


def tensor_fields(file: str) -> dict[str, Any]:
    """Return the fields of a tensor job that a JSON file, or stdin for ``-``, holds. Raises WrongUsage."""
    from pydantic_core import from_json

    where = "stdin" if file == "-" else escaped(file)
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise WrongUsage(f"{where} cannot be read: {error.strerror}") from None
    try:
        content = from_json(raw, allow_inf_nan=False)
        json.dumps(content, allow_nan=False)  # 1e999 was read as what it is not.
    except ValueError as error:
        raise WrongUsage(f'{where} is no JSON: {error}; write "NaN", "Infinity" or "-Infinity" for these') from None
    if not isinstance(content, dict) or "inputs" not in content:
        raise WrongUsage(f"{where} holds no tensor job: it must be a JSON object with {', '.join(_PARTS)}")
    return content


def output_lines(outputs: "Iterable[Mapping[str, Any]]") -> list[str]:
    """Return a line for each output of a result: its name, datatype and shape, and its first values or where they are."""
    return [f"{escaped(each['name'])} {each['datatype']} {each['shape']}: {_values(each)}" for each in outputs]


def units(usage: "Mapping[str, Any]") -> str:
    """Return the usage of a tensor job in words."""
    return " · ".join(f"{count} {unit}" for unit, count in usage.items())


def _values(output: "Mapping[str, Any]") -> str:
    data = output["data"]
    if data is None:
        return f"in shared memory, {escaped(str(output['parameters'].get('shared_memory_region')))}"
    first = " ".join(_short(json.dumps(value, ensure_ascii=False)) for value in data[:_MOST_VALUES])
    more = f" … ({len(data)} values)" if len(data) > _MOST_VALUES else ""
    encoded = " (base64)" if output["parameters"].get("content_type") else ""
    return f"{first}{more}{encoded}"


def _short(value: str) -> str:
    return escaped(value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…")
