"""What docs/wire-contract.md says of tensor jobs is what the types say."""

import json
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from tasks import schemas
from tasks.job import Addressed, Attended, GenerateJob
from tasks.reading import ValidJob, read_job
from tasks.result import GenerateResult
from tasks.tensor_limits import TensorLimits
from tasks.tensor_result import OutputTensor, TensorResult, read_result
from tasks.tensors import Datatype, InputParameters, InputTensor, OutputParameters, TensorJob, WantedOutput
from tests.jobs import MAX_JOB_BYTES, failed_result_content, result_content
from tests.unit.test_wire_contract import blocks, named, rows_below

TABLES: dict[str, type[BaseModel]] = {
    "field of an input": InputTensor,
    "parameter of an input": InputParameters,
    "field of a wanted output": WantedOutput,
    "parameter of a wanted output": OutputParameters,
    "field of an output": OutputTensor,
}
LIMITS = TensorLimits(1000, frozenset({"priority", "mode"}), frozenset({"masks"}))


def own_fields(model: type[BaseModel], *others: type[BaseModel]) -> list[str]:
    """The fields that the others do not have."""
    return [name for name in model.model_fields if not any(name in other.model_fields for other in others)]


@pytest.mark.parametrize("head", TABLES)
def test_every_field_is_in_its_table(head: str) -> None:
    """Each once, and no other."""
    rows = [named(row[0]) for row in rows_below(head)]
    assert sorted(rows) == sorted([name] for name in TABLES[head].model_fields)


@pytest.mark.parametrize("head", TABLES)
def test_null_is_said(head: str) -> None:
    """Wherever the type takes null the table says so, and nowhere else."""
    fields = TABLES[head].model_json_schema()["properties"]
    for row in rows_below(head):
        takes_null = {"type": "null"} in fields[named(row[0])[0]].get("anyOf", ())
        assert row[1].endswith("or null") == takes_null, row[0]


def test_what_a_tensor_job_has_of_its_own_is_in_its_table() -> None:
    """Beside what every job has."""
    rows = [named(row[0])[0] for row in rows_below("field of a tensor job")]
    assert rows == own_fields(TensorJob, Addressed, Attended)
    assert own_fields(GenerateJob, Addressed, Attended) == ["prompt", "max_tokens", "parameters"]


def test_what_is_different_in_a_tensor_result_is_in_its_table() -> None:
    """The rest is the same."""
    rows = [named(row[0])[0] for row in rows_below("field of a tensor result")]
    different = [
        name
        for name, field in TensorResult.model_fields.items()
        if name not in GenerateResult.model_fields or GenerateResult.model_fields[name].annotation != field.annotation
    ]
    assert rows == different
    assert own_fields(GenerateResult, TensorResult) == ["text"]


@pytest.mark.parametrize("example", blocks("json tensor job"))
def test_an_example_of_a_tensor_job_is_one(example: str) -> None:
    """To the worker and to the schema."""
    content = json.loads(example)
    read = read_job(example.encode(), queue_model=content["model"], limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
    assert isinstance(read, ValidJob)
    Draft202012Validator(json.loads(schemas.rendered()["tensor-job.json"])).validate(content)


@pytest.mark.parametrize("example", blocks("json tensor result"))
def test_an_example_of_a_tensor_result_is_one(example: str) -> None:
    """To the type and to the schema, field by field."""
    content = json.loads(example)
    result = read_result(example)
    assert isinstance(result, TensorResult)
    assert json.loads(result.model_dump_json()) == content
    Draft202012Validator(json.loads(schemas.rendered()["tensor-result.json"])).validate(content)


def test_there_are_examples() -> None:
    """The tests above cannot pass for want of them."""
    assert len(blocks("json tensor job")) >= 2
    assert len(blocks("json tensor result")) >= 1


def test_the_datatypes_are_on_the_page() -> None:
    """Every one of the type's."""
    (row,) = [row for row in rows_below("field of an input") if named(row[0]) == ["datatype"]]
    assert named(row[2]) == list(get_args(Datatype))


def tensor_result(**changes: Any) -> dict[str, Any]:
    """A succeeded result of a tensor job as its JSON says it, with these fields changed."""
    content: dict[str, Any] = json.loads(blocks("json tensor result")[0])
    return content | changes


class TestResultsOfBothKinds:
    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (result_content(), GenerateResult),
            (failed_result_content(), GenerateResult),
            (tensor_result(), TensorResult),
            (tensor_result(status="failed", outputs=None, error=failed_result_content()["error"]), TensorResult),
        ],
    )
    def test_a_reader_tells_them_apart(self, content: dict[str, Any], kind: type[Any]) -> None:
        """By the field that the other one does not have, also of failures."""
        assert type(read_result(json.dumps(content))) is kind

    @pytest.mark.parametrize(
        "changes",
        [
            {"outputs": None},
            {"usage": None},
            {"usage": {}},
            {"usage": {"inferences": 0}},
            {"usage": {"tokens": 1}},
            {"usage": {"inferences": 1, "tokens": -1}},
            {"usage": {"inferences": 1, "tokens": 1.0}},
            {"usage": {"inferences": 1, "tokens": None}},
            {"error": failed_result_content()["error"]},
            {"status": "failed"},
            {"status": "failed", "error": failed_result_content()["error"]},
            {"finish_reason": "stop"},
            {"outputs": [{}]},
        ],
    )
    def test_what_is_no_result_is_read_as_none(self, changes: dict[str, Any]) -> None:
        """Nothing between success and failure, and no usage that leaves a unit open."""
        with pytest.raises(ValueError, match="validation error"):
            read_result(json.dumps(tensor_result(**changes)))

    def test_units_are_units_whatever_they_are_called(self) -> None:
        """Those that are called as tokens are do not make the others vanish from an attempt."""
        usage = {"inferences": 1, "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        attempt = tensor_result()["attempts"][0] | {"usage": usage}
        result = read_result(json.dumps(tensor_result(usage=usage, attempts=[attempt])))
        assert json.loads(result.model_dump_json())["attempts"][0]["usage"] == usage
