"""A configuration held against the model that it names: what fits can be asked, what does not is said field by field."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settings.runtime import RuntimeConfig
from tasks.errors import InvalidJob, StreamingNotSupported
from tasks.job import GenerateJob
from tests.jobs import TRACEPARENT, job_content
from worker.triton.asking import asked_model
from worker.triton.comparing import compare
from worker.triton.description import Config, Metadata, ModelDescription, NotADescription
from worker.triton.http import Request
from worker.triton.model_contract import ContractReport, ModelContract, TensorPlan
from worker.triton.values import DATATYPES, INTEGER_RANGES, DoesNotFit, fitted

INPUTS: Final = (
    ("text_input", "TYPE_STRING", [1], False),
    ("max_tokens", "TYPE_INT32", [1], False),
    ("temperature", "TYPE_FP32", [1], True),
    ("seed", "TYPE_UINT64", [1], True),
    ("stop", "TYPE_STRING", [-1], True),
    ("pair", "TYPE_INT32", [2], True),
    ("sampling", "TYPE_STRING", [1], True),
    ("flag", "TYPE_BOOL", [1], True),
)
OUTPUTS: Final = (
    ("text_output", "TYPE_STRING", [1]),
    ("prompt_tokens", "TYPE_INT32", [1]),
    ("completion_tokens", "TYPE_INT32", [1]),
    ("why", "TYPE_STRING", [1]),
)


def described(
    *, inputs: Any = INPUTS, outputs: Any = OUTPUTS, batch: int = 8, versions: tuple[str, ...] = ("1",), **other: Any
) -> ModelDescription:
    """A model as its configuration describes it."""
    config = {
        "name": "lab",
        "max_batch_size": batch,
        "input": [{"name": n, "data_type": t, "dims": d, "optional": o} for n, t, d, o in inputs],
        "output": [{"name": n, "data_type": t, "dims": d} for n, t, d in outputs],
        **other,
    }
    return Config.read(json.dumps(config).encode()).described(versions)


def changed_input(name: str, *, datatype: str | None = None, dims: list[int] | None = None) -> Any:
    """The inputs with one of them changed."""
    return [
        (n, datatype or t if n == name else t, dims if n == name and dims is not None else d, o)
        for n, t, d, o in INPUTS
    ]


def configured(**fields: Any) -> RuntimeConfig:
    """A configuration for the model ``lab``."""
    return RuntimeConfig.model_validate({"model_name": "lab", **fields})


def report(model: ModelDescription | None = None, **fields: Any) -> ContractReport:
    """Compare them."""
    return compare("acme/model-1", configured(**fields), model or described())


def contract(model: ModelDescription | None = None, **fields: Any) -> ModelContract:
    """Compare what fits."""
    found = report(model, **fields)
    assert isinstance(found.contract, ModelContract), str(found)
    return found.contract


def mismatch(model: ModelDescription | None = None, **fields: Any) -> tuple[str, str]:
    """Compare what does not fit in one thing: the field and the reason."""
    found = report(model, **fields)
    assert found.contract is None
    assert not found.passed
    assert len(found.mismatches) == 1, str(found)
    return found.mismatches[0].field, found.mismatches[0].reason


def test_shape_and_datatype_come_from_the_model() -> None:
    """A batch dimension goes before the model's own, and each -1 is 1 for one value."""
    found = contract()
    assert found.prompt == TensorPlan("text_input", "BYTES", (1, 1))
    assert found.max_tokens == TensorPlan("max_tokens", "INT32", (1, 1))
    assert contract(described(batch=0)).prompt.shape_for(1) == (1,)
    assert contract(described(inputs=changed_input("text_input", dims=[-1]))).prompt.shape_for(1) == (1, 1)
    assert contract(described(inputs=changed_input("text_input", dims=[]))).prompt.shape_for(1) == (1,)
    assert contract(described(inputs=changed_input("text_input", dims=[]), batch=0)).prompt.shape_for(1) == ()


@pytest.mark.parametrize("datatype", sorted(INTEGER_RANGES))
def test_max_tokens_is_of_the_models_integer_type(datatype: str) -> None:
    """Any integer type will do."""
    found = contract(described(inputs=changed_input("max_tokens", datatype=f"TYPE_{datatype}")))
    assert found.max_tokens is not None
    assert found.max_tokens.datatype == datatype


@pytest.mark.parametrize("datatype", ["TYPE_FP32", "TYPE_STRING", "TYPE_BOOL"])
def test_max_tokens_of_another_type_does_not_fit(datatype: str) -> None:
    """A limit cannot be sent as text or as a float."""
    found = mismatch(described(inputs=changed_input("max_tokens", datatype=datatype)))
    assert found == ("max_tokens_input_name", "is no integer tensor")


def test_a_limit_beyond_the_models_type_does_not_fit() -> None:
    """Triton would wrap such a number without a word."""
    model = described(inputs=changed_input("max_tokens", datatype="TYPE_INT16"))
    assert mismatch(model, max_tokens_limit=40_000) == ("max_tokens_limit", "is over its largest value, 32767")
    assert report(model, max_tokens_limit=32_767).passed


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("output_name", "is none of its outputs"),
        ("prompt_tokens_output_name", "is none of its outputs"),
        ("completion_tokens_output_name", "is none of its outputs"),
        ("finish_reason_output_name", "is none of its outputs"),
        ("options_json_input", "is none of its inputs"),
    ],
)
def test_a_name_that_the_model_lacks_does_not_fit(field: str, reason: str) -> None:
    """Each configured name is looked up."""
    assert mismatch(None, **{field: "nope"}) == (field, reason)


def test_a_wrong_input_name_shows_both_sides() -> None:
    """The one message says what is configured and what the model has."""
    found = report(input_name="prompt")
    assert [each.field for each in found.mismatches] == ["input_name"]
    assert "input_name = prompt is none of its inputs (the model has: text_input BYTES [1,1], " in str(found)
    assert str(found).startswith("acme/model-1 does not fit Triton's model lab: ")


def test_a_prompt_goes_into_bytes_of_one_value() -> None:
    """Neither a number nor two texts."""
    assert mismatch(described(inputs=changed_input("text_input", datatype="TYPE_INT32")))[1] == "is no BYTES tensor"
    assert mismatch(described(inputs=changed_input("text_input", dims=[2])))[1] == "takes 2 values"


def test_a_text_comes_from_bytes() -> None:
    """A count is no text."""
    assert mismatch(output_name="prompt_tokens", prompt_tokens_output_name="text_output")[0] == "output_name"


def test_a_count_that_is_declared_otherwise_is_only_doubted() -> None:
    """Any integer will do whatever the model declares, so what it declares refuses nothing; the report says so."""
    outputs = [(n, "TYPE_FP32" if n == "prompt_tokens" else t, d) for n, t, d in OUTPUTS]
    found = report(described(outputs=outputs))
    assert found.passed
    assert [(each.field, each.reason) for each in found.comparisons if each.reason] == [
        ("prompt_tokens_output_name", "is no integer tensor")
    ]


def test_a_required_input_needs_a_source() -> None:
    """What the model insists on and nobody fills would fail every job."""
    model = described(inputs=[*INPUTS, ("stream", "TYPE_BOOL", [1], False)])
    assert mismatch(model)[0] == "constants.stream"
    assert report(model, constants={"stream": False}).passed
    # A parameter may be left out of a job.
    model = described(inputs=[*INPUTS, ("beams", "TYPE_INT32", [1], False)])
    assert mismatch(model, options={"beams": "beams"})[0] == "constants.beams"


def test_metadata_does_not_tell_what_is_required() -> None:
    """Where the configuration is restricted, names and types still count, and nothing is called missing."""
    metadata = {
        "name": "lab",
        "versions": ["1"],
        "inputs": [
            {"name": "text_input", "datatype": "BYTES", "shape": [-1, 1]},
            {"name": "max_tokens", "datatype": "INT32", "shape": [-1, 1]},
            {"name": "extra", "datatype": "INT32", "shape": [-1, 1]},
        ],
        "outputs": [
            {"name": n, "datatype": t.removeprefix("TYPE_").replace("STRING", "BYTES"), "shape": [-1, 1]}
            for n, t, _ in OUTPUTS
        ],
    }
    model = Metadata.read(json.dumps(metadata).encode()).described()
    found = report(model)
    assert found.passed
    assert found.from_metadata
    assert isinstance(found.contract, ModelContract)
    assert found.contract.prompt.shape_for(1) == (1, 1)
    assert mismatch(model, output_name="nope")[0] == "output_name"


@pytest.mark.parametrize(
    ("decoupled", "transport", "asked_by"),
    [
        (False, "auto", "infer"),
        (False, "infer", "infer"),
        (False, "generate", "generate"),
        (True, "auto", "generate"),
        (True, "generate", "generate"),
    ],
)
def test_the_models_own_configuration_chooses_the_transport(decoupled: bool, transport: str, asked_by: str) -> None:
    """A decoupled model answers /generate alone; any other both, and /infer is taken unless the other is asked for."""
    model = described(model_transaction_policy={"decoupled": decoupled})
    assert contract(model, transport=transport).transport == asked_by


def test_a_decoupled_model_does_not_fit_infer() -> None:
    """Triton answers 501 to each such inference of it, so none is tried."""
    model = described(model_transaction_policy={"decoupled": True})
    assert mismatch(model, transport="infer") == (
        "transport",
        "cannot run it: a decoupled model answers /generate alone",
    )


@pytest.mark.parametrize("name", ["id", "parameters"])
def test_an_input_that_generate_takes_for_something_else_does_not_fit(name: str) -> None:
    """Its keys for the request itself can be no tensor; /infer tells them apart."""
    model = described(inputs=[*INPUTS, (name, "TYPE_STRING", [1], True)])
    assert mismatch(model, transport="generate") == ("transport", "has another meaning for a key of that name")
    assert report(model).passed


@pytest.mark.parametrize("name", ["id", "model_name", "model_version"])
def test_an_output_that_generate_takes_for_something_else_does_not_fit(name: str) -> None:
    """Its keys for the answer itself hide an output of that name."""
    model = described(outputs=[*OUTPUTS, (name, "TYPE_STRING", [1])])
    assert mismatch(model, transport="generate")[0] == "transport"
    assert report(model).passed


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_generate_takes_no_half_floats(datatype: str) -> None:
    """Triton has no JSON for them."""
    model = described(inputs=changed_input("temperature", datatype=f"TYPE_{datatype}"))
    reason = f"cannot be sent by /generate, which takes no {datatype}"
    option = {"temperature": "temperature"}
    assert mismatch(model, transport="generate", options=option) == ("options.temperature", reason)
    assert mismatch(model, transport="generate", constants={"temperature": 1}) == ("constants.temperature", reason)
    assert report(model, options=option).passed


def test_a_version_must_be_there() -> None:
    """A pinned version that is not loaded is never replaced by another."""
    assert report(described(versions=("1", "3")), model_version="3").passed
    assert mismatch(described(versions=("1", "2")), model_version="3") == ("model_version", "is not available")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("nope", 1, "is for none of its inputs"),
        ("flag", 1, "is not true or false"),
        ("seed", -1, "is not from 0 to 18446744073709551615"),
        ("seed", True, "is not an integer"),
        ("temperature", "x", "is not a number"),
        ("temperature", 1e39, "is out of range"),
        ("sampling", 1, "is not text"),
        ("pair", 1, "takes 2 values"),
        ("temperature", [1.0, 2.0], "takes one value"),
    ],
)
def test_a_constant_must_fit_its_tensor(name: str, value: Any, reason: str) -> None:
    """Kind, range and number are checked at the start, not with each job."""
    assert mismatch(constants={name: value}) == (f"constants.{name}", reason)


def test_constants_are_typed_by_the_model() -> None:
    """The same number is a float here and an integer there; a list fills its dimension."""
    found = contract(constants={"temperature": 1, "seed": 1, "stop": ["a", "b"], "pair": [1, 2], "flag": True})
    assert {c.name: (c.datatype, c.shape, c.values) for c in found.constants} == {
        "temperature": ("FP32", (1, 1), (1.0,)),
        "seed": ("UINT64", (1, 1), (1,)),
        "stop": ("BYTES", (1, 2), (b"a", b"b")),
        "pair": ("INT32", (1, 2), (1, 2)),
        "flag": ("BOOL", (1, 1), (True,)),
    }


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"name":1}', b'{"name":"m","input":7}'])
def test_what_describes_no_model_is_said_to(body: bytes) -> None:
    """A proxy's page in the place of a description is no model without inputs."""
    with pytest.raises(NotADescription):
        Config.read(body)


# Jobs


OPTIONS: Final = {"temperature": "temperature", "seed": "seed", "stop": "stop", "pair": "pair", "flag": "flag"}


def request(job: dict[str, Any], **fields: Any) -> Request:
    """The request that a job becomes."""
    config = configured(**fields)
    found = compare("acme/model-1", config, described())
    assert isinstance(found.contract, ModelContract)
    return asked_model(config, found.contract).request(GenerateJob.model_validate(job), "j-1/tag")


def sent(made: Request) -> dict[str, Any]:
    """The JSON of a request, with the raw bytes of each tensor by name."""
    assert made.body is not None
    length = int(made.headers["Inference-Header-Content-Length"])
    content: dict[str, Any] = json.loads(made.body[:length])
    at = length
    for tensor in content["inputs"]:
        size = tensor.pop("parameters")["binary_data_size"]
        tensor["raw"] = made.body[at : at + size]
        at += size
    assert at == len(made.body)
    return content


def test_a_job_is_asked_with_what_the_contract_says() -> None:
    """Prompt and max_tokens in binary, the outputs by name, the request's own id, at the pinned version's path."""
    config = configured(model_version="3")
    found = compare("acme/model-1", config, described(versions=("3",)))
    assert isinstance(found.contract, ModelContract)
    made = asked_model(config, found.contract).request(GenerateJob.model_validate(job_content()), "j-1/tag")
    assert made.path == "/v2/models/lab/versions/3/infer"
    content = sent(made)
    assert content["id"] == "j-1/tag"
    assert content["inputs"] == [
        {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "raw": b"\x05\x00\x00\x00Hello"},
        {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "raw": b"\x20\x00\x00\x00"},
    ]
    assert [each["name"] for each in content["outputs"]] == ["text_output", "prompt_tokens", "completion_tokens"]


def test_a_trace_is_passed_on() -> None:
    """The job's traceparent is a header of its request, and of no other's."""
    assert request(job_content(traceparent=TRACEPARENT)).headers["traceparent"] == TRACEPARENT
    assert "traceparent" not in request(job_content()).headers


@pytest.mark.parametrize(
    ("parameters", "shape", "raw"),
    [
        ({"temperature": 0.5}, [1, 1], b"\x00\x00\x00\x3f"),
        ({"temperature": 1}, [1, 1], b"\x00\x00\x80\x3f"),
        ({"seed": 2**64 - 1}, [1, 1], b"\xff" * 8),
        ({"flag": True}, [1, 1], b"\x01"),
        ({"stop": "x"}, [1, 1], b"\x01\x00\x00\x00x"),
        ({"stop": ["a", "b"]}, [1, 2], b"\x01\x00\x00\x00a\x01\x00\x00\x00b"),
        ({"pair": [1, 2]}, [1, 2], b"\x01\x00\x00\x00\x02\x00\x00\x00"),
    ],
)
def test_parameters_are_typed_by_their_tensors(parameters: dict[str, Any], shape: list[int], raw: bytes) -> None:
    """Each goes in the datatype of its tensor, a list along the dimension that takes any number."""
    tensor = sent(request(job_content(parameters=parameters), options=OPTIONS))["inputs"][-1]
    assert (tensor["shape"], tensor["raw"]) == (shape, raw)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"temperature": "hot"}, "parameter temperature is not a number"),
        ({"temperature": True}, "parameter temperature is not a number"),
        ({"temperature": 1e39}, "parameter temperature is out of range"),
        ({"temperature": [0.1, 0.2]}, "parameter temperature takes one value"),
        ({"temperature": None}, "parameter temperature is not a number"),
        ({"seed": -1}, "parameter seed is not from 0 to 18446744073709551615"),
        ({"seed": 1.0}, "parameter seed is not an integer"),
        ({"flag": 1}, "parameter flag is not true or false"),
        ({"stop": []}, "parameter stop is empty"),
        ({"stop": [["a"]]}, "parameter stop is not text"),
        ({"stop": {"a": 1}}, "parameter stop is not text"),
        ({"pair": [1]}, "parameter pair takes 2 values"),
        ({"other": 1}, "a parameter is not supported"),
    ],
)
def test_a_parameter_that_does_not_fit_is_the_jobs_fault(parameters: dict[str, Any], words: str) -> None:
    """It is refused by name before anything is sent, without its value."""
    with pytest.raises(InvalidJob) as caught:
        request(job_content(parameters=parameters), options=OPTIONS)
    assert caught.value.detail == words


def test_max_tokens_beyond_the_models_type_is_the_jobs_fault() -> None:
    """An INT8 takes no 128, and none is wrapped to -128."""
    config = configured()
    found = compare("m", config, described(inputs=changed_input("max_tokens", datatype="TYPE_INT8")))
    assert isinstance(found.contract, ModelContract)
    with pytest.raises(InvalidJob, match="max_tokens is not from -128 to 127"):
        asked_model(config, found.contract).request(GenerateJob.model_validate(job_content(max_tokens=128)), "r")


def test_one_json_input_takes_all_parameters_and_max_tokens() -> None:
    """As vLLM has it; what has a tensor of its own goes there instead."""
    made = request(
        job_content(parameters={"top_p": 0.5, "stop": ["a"], "seed": 7}),
        options_json_input="sampling",
        options={"seed": "seed"},
        max_tokens_input_name="max_tokens",
    )
    inputs = {tensor["name"]: tensor["raw"] for tensor in sent(made)["inputs"]}
    assert json.loads(inputs["sampling"][4:]) == {"top_p": 0.5, "stop": ["a"], "max_tokens": 32}
    assert inputs["seed"] == b"\x07" + b"\x00" * 7
    assert inputs["max_tokens"] == b"\x20\x00\x00\x00"


SAMPLING: Final = {
    "options_json_input": "sampling",
    "max_tokens_input_name": None,
    "options": {"seed": "seed"},
    "constants": {"max_tokens": 0},
}
TYPED: Final = {"temperature": "FP32", "top_k": "INT32", "stop": "BYTES[]", "ignore_eos": "BOOL"}


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 1},
        {"temperature": 0.5, "top_k": -1, "stop": "x", "ignore_eos": False},
        {"stop": ["a", "b"]},
        {"seed": 7, "top_k": 1},
    ],
)
def test_typed_parameters_go_into_the_json_as_they_came(parameters: dict[str, Any]) -> None:
    """What fits its datatype is passed on unchanged."""
    made = request(job_content(parameters=parameters), options_json_parameters=TYPED, **SAMPLING)
    inputs = {tensor["name"]: tensor["raw"] for tensor in sent(made)["inputs"]}
    in_json = {name: value for name, value in parameters.items() if name != "seed"}
    assert json.loads(inputs["sampling"][4:]) == {**in_json, "max_tokens": 32}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"temperature": "0.5"}, "parameter temperature is not a number"),
        ({"temperature": [0.5]}, "parameter temperature is not a number"),
        ({"temperature": 1e39}, "parameter temperature is out of range"),
        ({"top_k": 2**31}, "parameter top_k is not from -2147483648 to 2147483647"),
        ({"top_k": 1.0}, "parameter top_k is not an integer"),
        ({"stop": []}, "parameter stop is empty"),
        ({"stop": ["a", 1]}, "parameter stop is not text"),
        ({"ignore_eos": "false"}, "parameter ignore_eos is not true or false"),
        ({"n": 2}, "a parameter is not supported"),
        ({"max_tokens": 1}, "max_tokens is no parameter"),
    ],
)
def test_a_typed_parameter_that_does_not_fit_is_the_jobs_fault(parameters: dict[str, Any], words: str) -> None:
    """The JSON input has no datatypes of its own, so the configuration's are held against each value."""
    with pytest.raises(InvalidJob) as caught:
        request(job_content(parameters=parameters), options_json_parameters=TYPED, **SAMPLING)
    assert caught.value.detail == words


@pytest.mark.parametrize("name", ["stream", "Stream", "streaming", "Streaming"])
def test_a_json_input_that_takes_anything_takes_no_stream(name: str) -> None:
    """Neither is a job's own max_tokens overwritten, or overwrites another, without a word."""
    with pytest.raises(StreamingNotSupported):
        request(job_content(parameters={name: True}), **SAMPLING)
    with pytest.raises(InvalidJob, match="max_tokens is no parameter"):
        request(job_content(parameters={"max_tokens": 5}), **SAMPLING)


# The other endpoint


def test_a_job_for_generate_is_one_json_object() -> None:
    """Inputs by their names beside the request's own id; the path names the pinned version; the trace is passed on."""
    config = configured(
        model_version="3",
        transport="generate",
        constants={"flag": True, "pair": [1, 2]},
        options={"stop": "stop", "temperature": "temperature"},
    )
    found = compare("acme/model-1", config, described(versions=("3",)))
    assert isinstance(found.contract, ModelContract)
    job = job_content(traceparent=TRACEPARENT, parameters={"stop": ["a"], "temperature": 1})
    made = asked_model(config, found.contract).request(GenerateJob.model_validate(job), "j-1/tag")
    assert made.path == "/v2/models/lab/versions/3/generate"
    assert made.headers == {"Content-Type": "application/json", "traceparent": TRACEPARENT}
    assert json.loads(made.body or b"") == {
        "id": "j-1/tag",
        "text_input": "Hello",
        "max_tokens": 32,
        "stop": "a",
        "temperature": 1.0,
        "flag": True,
        "pair": [1, 2],
    }


@pytest.mark.parametrize(("transport", "changes"), [("auto", True), ("infer", False), ("generate", False)])
def test_only_what_is_left_open_changes_its_endpoint(transport: str, changes: bool) -> None:
    """Where Triton's configuration could not be read, /infer says itself that a model is decoupled."""
    config = configured(transport=transport)
    found = compare("acme/model-1", config, described())
    assert isinstance(found.contract, ModelContract)
    other = asked_model(config, found.contract).by_generate()
    assert (other is not None) is changes
    if other is not None:
        made = other.request(GenerateJob.model_validate(job_content()), "j-1/tag")
        assert made.path == "/v2/models/lab/generate"


# Values


@given(st.sampled_from(sorted(INTEGER_RANGES)), st.integers(-(2**70), 2**70))
def test_an_integer_fits_exactly_where_its_type_has_it(datatype: str, value: int) -> None:
    """Nothing is wrapped or cut."""
    least, most = INTEGER_RANGES[datatype]
    if least <= value <= most:
        assert fitted(datatype, value) == value
    else:
        with pytest.raises(DoesNotFit):
            fitted(datatype, value)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
)


@given(st.sampled_from(sorted(DATATYPES)), _json)
def test_any_value_fits_or_is_said_not_to(datatype: str, value: Any) -> None:
    """No value of a job raises anything else."""
    try:
        found = fitted(datatype, value)
    except DoesNotFit:
        return
    assert isinstance(found, (bool, int, float, bytes))


@given(st.lists(st.integers(-1, 4), max_size=4).map(tuple), st.integers(0, 6))
def test_a_shape_holds_exactly_the_values_that_it_is_asked_for(shape: tuple[int, ...], count: int) -> None:
    """A shape that is given out is of the model's form and has room for the values, no more."""
    plan = TensorPlan("x", "INT32", shape)
    try:
        given_out = plan.shape_for(count)
    except DoesNotFit:
        return
    size = 1
    for declared, dimension in zip(shape, given_out, strict=True):
        assert declared in {-1, dimension}
        size *= dimension
    assert size == count
