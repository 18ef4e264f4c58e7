"""The contract's types as JSON Schemas, for gateways and consumers in any language.

``python -m tasks.schemas docs/schemas`` writes them anew.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tasks.entries import DeadLetterEntry, SettlementEntry
from tasks.job import GenerateJob
from tasks.result import GenerateResult
from tasks.tensor_result import TensorResult
from tasks.tensors import TensorJob

PUBLISHED: Final[dict[str, tuple[str, type[BaseModel]]]] = {
    "job.json": ("SpeedInfer job", GenerateJob),
    "result.json": ("SpeedInfer result", GenerateResult),
    "tensor-job.json": ("SpeedInfer tensor job", TensorJob),
    "tensor-result.json": ("SpeedInfer tensor result", TensorResult),
    "settlement.json": ("SpeedInfer settlement entry", SettlementEntry),
    "dead-letter.json": ("SpeedInfer dead letter", DeadLetterEntry),
}
"""File name to the schema's title and the type it is made of."""


class _Plain(GenerateJsonSchema):
    """Without a title for each field: it would only repeat the name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        del schema
        return False

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        """Show what an object is where it is left out, though it is made anew for each job."""
        return {} if schema.get("default_factory") is dict else super().get_default_value(schema)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leave null defaults out: the field is optional, and null is one of its values."""
        shown = super().default_schema(schema)
        if shown.get("default", ...) is None:
            del shown["default"]
        return shown


def schema_of(title: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a type of the contract."""
    generated = model.model_json_schema(schema_generator=_Plain)
    return {"$schema": _Plain.schema_dialect, **generated, "title": title}


def rendered() -> dict[str, str]:
    """Return each schema file's content by its name."""
    return {
        name: json.dumps(schema_of(title, model), indent=2, ensure_ascii=False) + "\n"
        for name, (title, model) in PUBLISHED.items()
    }


def write(folder: Path) -> None:
    """Write every schema into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in rendered().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
