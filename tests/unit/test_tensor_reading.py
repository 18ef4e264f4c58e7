"""Tensor jobs as they come from a queue: which may run, and what is said of the others."""

import json
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from tasks import schemas
from tasks.errors import ErrorCode
from tasks.fingerprint import fingerprint
from tasks.reading import ModelLimits, RejectedJob, ValidJob, read_job
from tasks.tensor_limits import TensorLimits
from tasks.tensors import TensorJob
from tests.jobs import LEFT_OUT, MAX_JOB_BYTES, MODEL, full_job_content, job_json
from tests.tensor_jobs import RULES, full_tensor_content, tensor, tensor_content, tensor_json

LIMITS: Final = TensorLimits(1000, frozenset(RULES["inference_parameters"]), frozenset(RULES["shared_memory_regions"]))
SCHEMA: Final = Draft202012Validator(json.loads(schemas.rendered()["tensor-job.json"]))
IN_MEMORY: Final[dict[str, Any]] = {"shared_memory_region": "inside", "shared_memory_byte_size": 8}


def read(limits: TensorLimits | ModelLimits = LIMITS, **changes: Any) -> Any:
    """What a worker makes of a tensor job with these fields changed."""
    return read_job(tensor_json(**changes), queue_model=MODEL, limits=limits, max_job_bytes=MAX_JOB_BYTES)


def said_of(limits: TensorLimits = LIMITS, **changes: Any) -> str:
    """What the customer is told of a job that is not valid."""
    result = read(limits, **changes)
    assert isinstance(result, RejectedJob)
    assert result.error.code is ErrorCode.INVALID_JOB
    return result.error.detail


def test_a_tensor_job_is_one() -> None:
    """The least, and one that sets everything."""
    for content in (tensor_content(), full_tensor_content(), tensor_content(outputs=[], inference_parameters={})):
        result = read(**content)
        assert isinstance(result, ValidJob)
        assert isinstance(result.job, TensorJob)
        SCHEMA.validate(content)


def test_what_every_job_may_have_a_tensor_job_may_have() -> None:
    """Expiry, labels, metadata, trace context and version, in the same words."""
    texts_own = {"prompt", "max_tokens", "parameters"}
    others = {name: value for name, value in full_job_content().items() if name not in texts_own}
    result = read(**others)
    assert isinstance(result, ValidJob)
    assert result.job.model_dump(mode="json").keys() == others.keys() | {"inputs", "outputs", "inference_parameters"}
    assert (result.identity.tenant, result.identity.metadata) == ("tenant-1", {"origin": "test"})


@pytest.mark.parametrize("model", ["prompt", "tensors"])
def test_a_job_of_the_other_kind_is_told_what_is_missing(model: str) -> None:
    """Which kind a model takes is the configuration's matter, not the job's."""
    if model == "tensors":
        result = read_job(job_json(), queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
        said = "inputs is missing; field prompt is unknown; field max_tokens is unknown"
    else:
        result = read(ModelLimits(1000))
        said = "prompt is missing; max_tokens is missing; field inputs is unknown"
    assert isinstance(result, RejectedJob)
    assert result.error.detail == said


WRONG: Final[list[tuple[dict[str, Any], str, bool]]] = [
    ({"inputs": LEFT_OUT}, "inputs is missing", True),
    ({"inputs": []}, "inputs is not valid", True),
    ({"inputs": {}}, "inputs is not valid", True),
    ({"inputs": None}, "inputs is not valid", True),
    ({"inputs": [None]}, "inputs[0] is not valid", True),
    ({"inputs": [tensor("FP32", [1]), "x"]}, "inputs[1] is not valid", True),
    ({"inputs": [tensor("FP32", [1]) | {"canary": 1}]}, "a field of inputs[0] is unknown", True),
    ({"inputs": [tensor("FP32", [1]) | {"outputs": 1}]}, "field outputs of inputs[0] is unknown", True),
    ({"inputs": [tensor("FP32", [1], binary_data_size=4)]}, "a field of inputs[0].parameters is unknown", True),
    ({"inputs": [{"name": "a", "datatype": "FP32", "data": [1]}]}, "inputs[0].shape is missing", True),
    ({"inputs": [{"name": "a", "shape": [1], "data": [1]}]}, "inputs[0].datatype is missing", True),
    ({"inputs": [{"shape": [1], "datatype": "FP32", "data": [1]}]}, "inputs[0].name is missing", True),
    ({"inputs": [tensor("FP32", [1]) | {"name": ""}]}, "inputs[0].name is not valid", True),
    ({"inputs": [tensor("FP32", [1]) | {"name": "x" * 201}]}, "inputs[0].name is not valid", True),
    ({"inputs": [tensor("FP8", [1])]}, "inputs[0].datatype is not valid", True),
    ({"inputs": [tensor("STRING", ["x"])]}, "inputs[0].datatype is not valid", True),
    ({"inputs": [tensor("fp32", [1])]}, "inputs[0].datatype is not valid", True),
    ({"inputs": [tensor("FP32", [1], [-1])]}, "inputs[0].shape[0] is not valid", True),
    ({"inputs": [tensor("FP32", [1], [1, 2**31])]}, "inputs[0].shape[1] is not valid", True),
    ({"inputs": [tensor("FP32", [1], [1.0])]}, "inputs[0].shape[0] is not valid", False),
    ({"inputs": [tensor("FP32", [1], [True])]}, "inputs[0].shape[0] is not valid", True),
    ({"inputs": [tensor("FP32", [1], [1] * 33)]}, "inputs[0].shape is not valid", True),
    ({"inputs": [tensor("FP32", [1]) | {"shape": 1}]}, "inputs[0].shape is not valid", True),
    ({"inputs": [tensor("FP32", [1]) | {"data": 1}]}, "inputs[0].data is not valid", True),
    ({"inputs": [tensor("FP32", None, [1])]}, "inputs[0] has no data", False),
    ({"inputs": [tensor("FP32", [1], **IN_MEMORY)]}, "inputs[0] has both data and shared_memory_region", False),
    (
        {"inputs": [tensor("FP32", [1], shared_memory_offset=4)]},
        "inputs[0].parameters takes shared_memory_region and shared_memory_byte_size together",
        False,
    ),
    (
        {"inputs": [tensor("FP32", None, [1], shared_memory_region="inside")]},
        "inputs[0].parameters takes shared_memory_region and shared_memory_byte_size together",
        False,
    ),
    (
        {"inputs": [tensor("FP32", None, [1], **IN_MEMORY | {"shared_memory_byte_size": 0})]},
        "inputs[0].parameters.shared_memory_byte_size is not valid",
        True,
    ),
    (
        {"inputs": [tensor("FP32", None, [1], **IN_MEMORY, shared_memory_offset=-1)]},
        "inputs[0].parameters.shared_memory_offset is not valid",
        True,
    ),
    (
        {"inputs": [tensor("FP32", None, [1], **IN_MEMORY | {"shared_memory_region": "canary"})]},
        "inputs[0] names a shared-memory region that is not allowed",
        False,
    ),
    (
        {"inputs": [tensor("FP32", [1], content_type="base64")]},
        "inputs[0] has a content_type that is for data of BYTES only",
        False,
    ),
    ({"inputs": [tensor("BYTES", ["x"], content_type="str")]}, "inputs[0].parameters.content_type is not valid", True),
    ({"inputs": [tensor("FP32", [1]), tensor("FP32", [2])]}, "inputs names a tensor twice", False),
    ({"inputs": [tensor("FP32", [1] * 251)]}, "inputs are over 1000 bytes", False),
    ({"inputs": [tensor("FP32", [], [2**31 - 1] * 30)]}, "inputs are over 1000 bytes", False),
    ({"outputs": None}, "outputs is not valid", True),
    ({"outputs": ["OUT_FP32"]}, "outputs[0] is not valid", True),
    ({"outputs": [{}]}, "outputs[0].name is missing", True),
    ({"outputs": [{"name": "a"}, {"name": "a"}]}, "outputs names a tensor twice", False),
    (
        {"outputs": [{"name": "a", "parameters": {"binary_data": False}}]},
        "a field of outputs[0].parameters is unknown",
        True,
    ),
    *(
        (
            {"outputs": [{"name": "a", "parameters": {"classification": k}}]},
            "outputs[0].parameters.classification is not valid",
            True,
        )
        for k in (0, -1, 2**31, "1", True, 0.5)
    ),
    (
        {"outputs": [{"name": "a", "parameters": {"classification": 1, **IN_MEMORY}}]},
        "outputs[0].parameters has both classification and shared_memory_region",
        False,
    ),
    (
        {"outputs": [{"name": "a", "parameters": IN_MEMORY | {"shared_memory_region": "canary"}}]},
        "outputs[0] names a shared-memory region that is not allowed",
        False,
    ),
    ({"inference_parameters": {"canary": 1}}, "a parameter is not allowed", False),
    ({"inference_parameters": {"temperature": 1}}, "parameter temperature is not allowed", False),
    *(
        ({"inference_parameters": {"note": value}}, "inference_parameters is not valid", on_its_face)
        for value, on_its_face in (([1], True), ({}, True), (None, True), (2**63, False), (-(2**63) - 1, False))
    ),
    *(
        ({"inference_parameters": {name: value}}, "inference_parameters is not valid", False)
        for name in ("priority", "timeout")
        for value in (-1, 1.0, "1", True, 2**63)
    ),
    ({"inference_parameters": []}, "inference_parameters is not valid", True),
    ({"parameters": {}}, "field parameters is unknown", True),
    ({"max_tokens": 5}, "field max_tokens is unknown", True),
]


@pytest.mark.parametrize(("changes", "said", "on_its_face"), WRONG)
def test_a_wrong_tensor_job_is_told_where(changes: dict[str, Any], said: str, on_its_face: bool) -> None:
    """By fields and limits, never by a name or a value of the customer's; the schema knows those that show on its face."""
    assert said_of(**changes) == said
    assert SCHEMA.is_valid(tensor_content(**changes)) is not on_its_face


def test_all_that_is_wrong_is_said_up_to_five() -> None:
    """One round trip is enough to put it right."""
    said = said_of(inputs=[{}, {}], outputs=[{"name": 1}])
    assert said == "; ".join(
        f"inputs[{index}].{name} is missing"
        for index, name in [(0, "name"), (0, "shape"), (0, "datatype"), (1, "name"), (1, "shape")]
    )


def test_inputs_are_measured_as_they_are_sent() -> None:
    """All together, without those in shared memory; the last size that is taken is the limit itself."""
    halves = [tensor("FP64", [0.0] * 62), tensor("FP32", [0] * 126)]
    assert isinstance(read(inputs=halves), ValidJob)
    assert isinstance(read(inputs=[*halves, tensor("INT8", None, [10**6], **IN_MEMORY)]), ValidJob)
    assert said_of(inputs=[*halves, tensor("INT8", [1])]) == "inputs are over 1000 bytes"


def test_token_limits_do_not_apply() -> None:
    """Whatever the configuration says of texts."""
    assert isinstance(read(TensorLimits(1000)), ValidJob)


def test_a_tensor_job_sent_again_is_the_same() -> None:
    """In whatever order its names stand; other values, or the same in another form, make another job."""
    content = full_tensor_content()
    again = {**dict(reversed(content.items())), "metadata": {"another": "one"}, "enqueued_at": "2026-11-30T12:00:00Z"}
    assert fingerprint(again) == fingerprint(content)
    for other in (
        tensor_content(inputs=[tensor("FP32", [0.5, 3])]),
        tensor_content(inputs=[tensor("FP64", [0.5, 2])]),
        tensor_content(outputs=[{"name": "OUT_FP32"}]),
        tensor_content(inference_parameters={"note": 1}),
    ):
        assert fingerprint(other) != fingerprint(tensor_content())


def test_values_are_not_in_a_jobs_repr() -> None:
    """They are the customer's, and a repr may end in a log."""
    job = TensorJob.model_validate(tensor_content(inputs=[tensor("BYTES", ["canary"])]))
    assert "canary" not in repr(job)


def test_a_tensor_job_cannot_be_changed() -> None:
    """As no job can."""
    job = TensorJob.model_validate(tensor_content())
    with pytest.raises(ValidationError, match="frozen"):
        job.inputs = []  # type: ignore[misc]  # that is what is tried
