"""Whether a model fits its configuration of kind tensors, and whether a job fits the model."""

from typing import Any, Final

import pytest

from settings.runtime import RuntimeConfig
from tests.tensor_jobs import tensor_job
from tests.tensor_wire import DATATYPES
from worker.triton.description import Config, ModelDescription, TensorDescription
from worker.triton.failures import CAUSES
from worker.triton.tensor_contract import CLASSIFIABLE, TensorContract, compare_tensors
from worker.triton.tensor_run import OF_THE_JOB

BATCHED: Final = ModelDescription(
    name="m",
    versions=("1", "3"),
    inputs=(
        TensorDescription("a", "FP16", (1, 2, -1), is_batched=True),
        TensorDescription("b", "INT8", (1, 1), optional=True, is_batched=True),
        TensorDescription("s", "INT64", (2,), optional=True),
    ),
    outputs=(
        TensorDescription("x", "FP32", (1, -1), is_batched=True),
        TensorDescription("n", "INT32", (1, 1), is_batched=True),
        TensorDescription("t", "BYTES", (1, 1), is_batched=True),
    ),
    decoupled=False,
    complete=True,
    max_batch_size=4,
)
CONTRACT: Final = TensorContract(BATCHED, {"tokens": "n"})
A: Final = {"name": "a", "datatype": "FP16", "shape": [4, 2, 1], "data": [0] * 8}


def objections(
    contract: TensorContract = CONTRACT, *, inputs: Any = (A,), outputs: Any = (), **changes: Any
) -> list[str]:
    """What the model has against a job."""
    return list(contract.objections(tensor_job(inputs=list(inputs), outputs=list(outputs), **changes)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"shape": [1, 2, 5]}, []),
        ({"shape": [0, 2, 5]}, ["inputs[0] is not of the model's shape, [1 to 4, 2, -1]"]),
        ({"shape": [5, 2, 5]}, ["inputs[0] is not of the model's shape, [1 to 4, 2, -1]"]),
        ({"shape": [1, 3, 5]}, ["inputs[0] is not of the model's shape, [1 to 4, 2, -1]"]),
        ({"shape": [2, 5]}, ["inputs[0] is not of the model's shape, [1 to 4, 2, -1]"]),
        ({"shape": [1, 2, 5, 1]}, ["inputs[0] is not of the model's shape, [1 to 4, 2, -1]"]),
        ({"shape": []}, ["inputs[0] is not of the model's shape, [1 to 4, 2, -1]"]),
        ({"datatype": "FP32"}, ["inputs[0] is not of the model's datatype, FP16"]),
        ({"name": "canary"}, ["inputs[0] is none of the model's", "the model's input a is missing"]),
    ],
)
def test_an_input_is_held_against_the_models(changes: dict[str, Any], said: list[str]) -> None:
    """Name, datatype, shape and batch; a name that is not the model's is not repeated."""
    assert objections(inputs=[A | changes]) == said


def test_an_optional_input_may_be_missing_or_there() -> None:
    """And one that says a shape has no batch."""
    b = {"name": "b", "datatype": "INT8", "shape": [2, 1], "data": [1, 2]}
    s = {"name": "s", "datatype": "INT64", "shape": [2], "data": [1, 2]}
    assert objections(inputs=[A, b, s]) == []
    assert objections(inputs=[A, s | {"shape": [1, 2]}]) == ["inputs[1] is not of the model's shape, [2]"]


def test_without_its_configuration_a_model_requires_nothing() -> None:
    """Its metadata does not say what is optional."""
    inputs = (TensorDescription("a", "FP16", (-1, 2, -1)), TensorDescription("b", "INT8", (-1, 1)))
    metadata = ModelDescription("m", ("1",), inputs, (), decoupled=False, complete=False)
    b = {"name": "b", "datatype": "INT8", "shape": [9, 1], "data": []}
    assert objections(TensorContract(metadata, {}), inputs=[b]) == []
    assert objections(TensorContract(metadata, {}), inputs=[b | {"shape": [9, 2]}]) == [
        "inputs[0] is not of the model's shape, [-1, 1]"
    ]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"name": "x"}, []),
        ({"name": "n"}, []),
        ({"name": "canary"}, ["outputs[0] is none of the model's"]),
        ({"name": "x", "parameters": {"classification": 2}}, []),
        ({"name": "t", "parameters": {"classification": 2}}, ["outputs[0] cannot be classified: it is of BYTES"]),
        (
            {"name": "n", "parameters": {"classification": 2}},
            ["outputs[0] is what the job is billed by: it comes neither classified nor in shared memory"],
        ),
        (
            {"name": "n", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}},
            ["outputs[0] is what the job is billed by: it comes neither classified nor in shared memory"],
        ),
        ({"name": "t", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}}, []),
    ],
)
def test_an_output_is_held_against_the_models(output: dict[str, Any], said: list[str]) -> None:
    """Its name, whether it can be classified, and that what is billed by is seen."""
    assert objections(outputs=[output]) == said


def test_nothing_is_classified_where_an_input_has_no_values() -> None:
    """An output without a value ends the server too, and its size is not known before."""
    classify = {"name": "x", "parameters": {"classification": 2}}
    empty = A | {"shape": [4, 2, 0], "data": []}
    assert objections(inputs=[empty], outputs=[{"name": "x"}]) == []
    assert objections(inputs=[empty], outputs=[classify]) == ["outputs[0] cannot be classified: an input has no values"]


@pytest.mark.parametrize("datatype", DATATYPES)
def test_only_what_triton_can_classify_is_classified(datatype: str) -> None:
    """BYTES end the server; FP16, BF16 and BOOL it refuses."""
    outputs = (TensorDescription("x", datatype, (1, -1), is_batched=True),)
    model = ModelDescription("m", ("1",), BATCHED.inputs, outputs, decoupled=False, complete=True, max_batch_size=4)
    refused = objections(TensorContract(model, {}), outputs=[{"name": "x", "parameters": {"classification": 1}}])
    assert bool(refused) == (datatype not in CLASSIFIABLE)
    assert {"BYTES", "FP16", "BF16", "BOOL"}.isdisjoint(CLASSIFIABLE)


def config(**fields: Any) -> RuntimeConfig:
    """A configuration of kind tensors."""
    return RuntimeConfig.model_validate({"model_name": "m", "kind": "tensors", **fields})


def test_a_model_that_fits_has_a_contract() -> None:
    """And its description is there for whoever checks."""
    report = compare_tensors("acme/m", config(model_version="3", tensors={"usage": {"tokens": "n"}}), BATCHED)
    assert report.contract == CONTRACT
    assert report.passed
    assert not report.mismatches
    shown = {each.field: (each.configured, each.actual) for each in report.comparisons}
    assert shown == {"tensors.usage.tokens": ("n", "INT32 [1,1]"), "model_version": ("3", "1, 3")}
    assert report.model == BATCHED


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"model_version": "2"}, "model_version", "is not available"),
        ({"tensors": {"usage": {"tokens": "nope"}}}, "tensors.usage.tokens", "is none of its outputs"),
    ],
)
def test_a_model_that_does_not_fit_has_none(fields: dict[str, Any], field: str, reason: str) -> None:
    """Each mismatch is named."""
    report = compare_tensors("acme/m", config(**fields), BATCHED)
    assert report.contract is None
    assert [(each.field, each.reason) for each in report.mismatches] == [(field, reason)]
    assert field == "model_version" or report.mismatches[0].remedy == "set tensors.usage.tokens to n"


def test_a_unit_of_another_datatype_is_doubtful() -> None:
    """The model may give integers all the same; if it does not, jobs fail one by one."""
    report = compare_tensors("acme/m", config(tensors={"usage": {"tokens": "x"}}), BATCHED)
    assert report.passed
    assert [each.field for each in report.comparisons if each.is_doubt and each.reason] == ["tensors.usage.tokens"]


def test_a_decoupled_model_takes_no_tensors() -> None:
    """It answers /generate only."""
    tree = {"name": "m", "model_transaction_policy": {"decoupled": True}}
    model = Config.model_validate(tree).described(("1",))
    report = compare_tensors("acme/m", config(), model)
    assert report.contract is None
    assert "takes no decoupled model" in str(report)


def test_a_tensor_that_says_a_shape_is_not_batched() -> None:
    """TensorRT's shape tensors are the same for a whole batch."""
    tree = {
        "name": "m",
        "max_batch_size": 8,
        "input": [
            {"name": "a", "data_type": "TYPE_FP32", "dims": [3]},
            {"name": "s", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True},
        ],
    }
    model = Config.model_validate(tree).described(("1",))
    assert [(tensor.shape, tensor.is_batched) for tensor in model.inputs] == [((1, 3), True), ((2,), False)]
    assert model.max_batch_size == 8


def test_the_causes_that_are_a_jobs_fault_are_causes() -> None:
    """A name that the table does not have would match nothing."""
    assert {cause.name for cause in CAUSES} >= OF_THE_JOB
