"""Tensor jobs on a real Triton: every datatype there and back, and what becomes of jobs that do not fit."""

import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Final

import pytest

from tasks.errors import (
    InferenceRejected,
    InvalidJob,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotSupported,
    OutputInvalid,
    RuntimeTimeout,
    RuntimeUnavailable,
    UsageUnavailable,
)
from tests.conftest import MODELS
from tests.inferences import HASTY, PATIENT, all_at_once, infer, of_two_minds
from tests.tensor_jobs import ECHO, RULES, output_of, run_tensors, tensor, tensors_failure, tensors_on
from tests.triton_http import call, load, revive, unload
from tests.witness import Witness
from worker.sandbox.triton_server import TritonServer
from worker.triton.adapter import TritonInference
from worker.triton.failures import reason_of

BIG: Final = 2**63 - 1


@pytest.fixture
def echo(triton_url: str) -> Iterator[TritonInference]:
    """An adapter for the model that gives back what it gets."""
    with tensors_on(triton_url) as adapter:
        yield adapter


def faulty(fault: str) -> dict[str, Any]:
    """What makes the echo's answer wrong."""
    return {"inference_parameters": {"fault": fault}}


def units(error: JobError) -> dict[str, int] | None:
    """What a failed job spent."""
    return None if error.usage is None else error.usage.model_dump()


class TestValues:
    @pytest.mark.parametrize(
        ("datatype", "data"),
        [
            ("BOOL", [True, False]),
            ("INT8", [-128, 127]),
            ("INT16", [-32768, 32767]),
            ("INT32", [-(2**31), 2**31 - 1]),
            ("INT64", [-(2**63), BIG]),
            ("UINT8", [0, 255]),
            ("UINT16", [0, 65535]),
            ("UINT32", [0, 2**32 - 1]),
            ("UINT64", [0, 2**64 - 1]),
            ("FP16", [65504.0, -0.0999755859375, "NaN", "Infinity", "-Infinity", -0.0]),
            ("BF16", [3.3895313892515355e38, 0.10009765625, "NaN", "Infinity", "-Infinity", -0.0]),
            ("FP32", [3.4028234663852886e38, 0.10000000149011612, "NaN", "Infinity", "-Infinity", -0.0]),
            ("FP64", [1.7976931348623157e308, 5e-324, "NaN", "Infinity", "-Infinity", -0.0]),
            ("BYTES", ["", "é\N{SNOWMAN}", "a\x00b"]),
        ],
    )
    def test_every_datatype_comes_back(self, echo: TritonInference, datatype: str, data: list[Any]) -> None:
        """The extremes of each, through the real server."""
        output = output_of(echo, inputs=[tensor(datatype, data)])
        assert (output.name, output.datatype, output.shape) == (f"OUT_{datatype}", datatype, [1, len(data)])
        assert repr(output.data) == repr(data)

    @pytest.mark.parametrize(("datatype", "rounded"), [("FP16", 0.0999755859375), ("BF16", 0.10009765625)])
    def test_fp16_and_bf16_come_and_go_as_numbers(
        self, echo: TritonInference, witness: Witness, datatype: str, rounded: float
    ) -> None:
        """Each becomes the nearest value there is; what is beyond them never reaches Triton."""
        assert output_of(echo, inputs=[tensor(datatype, [0.1, 2, -0.5])]).data == [rounded, 2.0, -0.5]
        assert witness.count(ECHO) == 1
        error = tensors_failure(echo, InvalidJob, inputs=[tensor(datatype, [1e39])])
        assert error.detail == "inputs[0].data has values that are out of range"
        assert witness.count(ECHO) == 1

    def test_bytes_that_are_no_utf8_are_base64_both_ways(self, echo: TritonInference) -> None:
        """What came as such goes as such; Triton has the bytes."""
        output = output_of(echo, inputs=[tensor("BYTES", ["/wA=", "YQ=="], content_type="base64")])
        assert (output.parameters, output.data) == ({"content_type": "base64"}, ["/wA=", "YQ=="])
        output = output_of(echo, inputs=[tensor("BYTES", ["YQ=="], content_type="base64")])
        assert (output.parameters, output.data) == ({}, ["a"])

    def test_a_batch_is_nested_and_counted_as_a_whole(self, echo: TritonInference) -> None:
        """Several inputs of one batch; the unit is the sum over its rows."""
        got = run_tensors(echo, inputs=[tensor("INT8", [[1, 2], [3, 4]], [2, 2]), tensor("FP16", [0.5, 1], [2, 1])])
        assert {output.name: (output.shape, output.data) for output in got.outputs} == {
            "OUT_INT8": ([2, 2], [1, 2, 3, 4]),
            "OUT_FP16": ([2, 1], [0.5, 1.0]),
            "count": ([2, 1], [3, 3]),
        }
        assert got.usage.model_dump() == {"inferences": 1, "values": 6}

    def test_a_tensor_of_no_values_is_a_tensor(self, echo: TritonInference) -> None:
        """Of fixed size or not."""
        for datatype in ("FP32", "BYTES"):
            output = output_of(echo, inputs=[tensor(datatype, [])])
            assert (output.shape, output.data) == ([1, 0], [])


class TestOutputs:
    def test_those_that_are_named_come_in_their_order(self, echo: TritonInference) -> None:
        """What is billed by is asked for all the same."""
        inputs = [tensor("INT8", [1]), tensor("INT16", [2])]
        got = run_tensors(echo, inputs=inputs, outputs=[{"name": "OUT_INT16"}, {"name": "OUT_INT8"}])
        assert [output.name for output in got.outputs] == ["OUT_INT16", "OUT_INT8"]
        assert got.usage.model_dump() == {"inferences": 1, "values": 2}
        got = run_tensors(echo, inputs=inputs, outputs=[{"name": "count"}])
        assert [output.name for output in got.outputs] == ["count"]

    @pytest.mark.parametrize("datatype", ["FP32", "INT64"])
    def test_nothing_is_never_classified(self, echo: TritonInference, witness: Witness, datatype: str) -> None:
        """Triton dies of it, and every job with it."""
        outputs = [{"name": f"OUT_{datatype}", "parameters": {"classification": 1}}]
        error = tensors_failure(echo, InvalidJob, inputs=[tensor(datatype, [], [1, 0])], outputs=outputs)
        assert error.detail == "outputs[0] cannot be classified: an input has no values"
        assert witness.count(ECHO) == 0
        assert output_of(echo, inputs=[tensor(datatype, [], [1, 0])]).data == []

    def test_a_classification_comes_with_its_labels(self, echo: TritonInference) -> None:
        """For each row the largest values first, as Triton writes them; no more than there are."""
        classify = {"outputs": [{"name": "OUT_FP32", "parameters": {"classification": 2}}]}
        output = output_of(echo, inputs=[tensor("FP32", [0.25, 0.5, 0, 1, 0, 0], [2, 3])], **classify)
        assert (output.datatype, output.shape) == ("BYTES", [2, 2])
        assert output.data == ["0.500000:1:dog", "0.250000:0:cat", "1.000000:0:cat", "0.000000:1:dog"]
        many = {"outputs": [{"name": "OUT_INT64", "parameters": {"classification": 9}}]}
        assert output_of(echo, inputs=[tensor("INT64", [5, 7])], **many).data == ["7:1", "5:0"]

    @pytest.mark.parametrize("datatype", ["BYTES", "FP16", "BF16", "BOOL"])
    def test_bytes_are_never_classified(self, echo: TritonInference, witness: Witness, datatype: str) -> None:
        """Such a request would end Triton, for BYTES; the others it refuses. None of them reaches it."""
        of_other_kinds: dict[str, list[Any]] = {"BYTES": ["a"], "BOOL": [True]}
        data = of_other_kinds.get(datatype, [1])
        outputs = [{"name": f"OUT_{datatype}", "parameters": {"classification": 1}}]
        error = tensors_failure(echo, InvalidJob, inputs=[tensor(datatype, data)], outputs=outputs)
        assert error.detail == f"outputs[0] cannot be classified: it is of {datatype}"
        assert witness.count(ECHO) == 0
        assert output_of(echo).data == [0.5, 2.0]

    def test_what_the_model_leaves_out_is_missed_only_by_name(self, echo: TritonInference) -> None:
        """Triton says nothing of it. The units were spent."""
        inputs = [tensor("INT8", [1]), tensor("INT16", [2])]
        got = run_tensors(echo, inputs=inputs, **faulty("absent=OUT_INT8"))
        assert [output.name for output in got.outputs] == ["OUT_INT16", "count"]
        outputs = [{"name": "OUT_INT8"}, {"name": "OUT_INT16"}]
        error = tensors_failure(echo, OutputInvalid, inputs=inputs, outputs=outputs, **faulty("absent=OUT_INT8"))
        assert units(error) == {"inferences": 1, "values": 2}

    def test_a_result_is_bounded_as_binary_and_as_json(self, triton_url: str) -> None:
        """Its JSON is several times its binary form; either way the next job is not disturbed."""
        with tensors_on(triton_url, max_result_bytes=10_000) as echo:
            assert len(output_of(echo, **faulty("large=400")).data or ()) == 400
            error = tensors_failure(echo, OutputInvalid, **faulty("large=1000"))
            assert units(error) == {"inferences": 1, "values": 2}
            error = tensors_failure(echo, OutputInvalid, **faulty("large=100000"))
            assert reason_of(error) == "the answer is over the largest that is read"
            assert output_of(echo).data == [0.5, 2.0]


class TestUsage:
    @pytest.mark.parametrize("kind", ["absent", "none", "fp32", "text", "negative"])
    def test_a_wrong_unit_is_no_usage(self, echo: TritonInference, kind: str) -> None:
        """Every way it can be wrong, through the real server."""
        assert units(tensors_failure(echo, UsageUnavailable, **faulty(f"count={kind}"))) is None

    def test_an_integer_of_another_datatype_is_a_unit(self, echo: TritonInference) -> None:
        """Whatever the model declares; 0 is one too."""
        assert run_tensors(echo, **faulty("count=uint64")).usage.model_dump() == {"inferences": 1, "values": 2}
        assert run_tensors(echo, **faulty("count=zero")).usage.model_dump() == {"inferences": 1, "values": 0}

    def test_without_units_a_job_is_billed_by_request(self, triton_url: str) -> None:
        """Nothing needs to be configured."""
        with tensors_on(triton_url, tensors={}) as echo:
            assert run_tensors(echo).usage.model_dump() == {"inferences": 1}


class TestParameters:
    def test_they_reach_the_model(self, echo: TritonInference, witness: Witness) -> None:
        """Each in its own type; what Triton reads itself, it reads."""
        for value in ("é", True, 7, -(2**63), 0.5):
            run_tensors(echo, inference_parameters={"note": value, "priority": 0, "timeout": 10**9})
        assert [served.parameters["note"] for served in witness.served(ECHO)] == ["é", True, 7, -(2**63), 0.5]

    def test_each_public_name_has_its_version(self, triton_url: str) -> None:
        """Two names of one worker, one model, two versions; without one, Triton's policy picks the highest."""
        names = {"a/one": {"model_version": "1"}, "a/three": {"model_version": "3"}, "a/any": {}}
        with tensors_on(triton_url, supported_models=list(names), models=names) as echo:
            assert {name: run_tensors(echo, model=name).model_version for name in names} == {
                "a/one": "1",
                "a/three": "3",
                "a/any": "3",
            }

    def test_a_version_that_is_not_there_is_not_ready(self, triton_url: str) -> None:
        """The reason names those that are."""
        with tensors_on(triton_url, model_version="2") as echo, pytest.raises(RuntimeUnavailable) as caught:
            run_tensors(echo)
        assert "loaded: 1, 3" in reason_of(caught.value)


@contextmanager
def region(url: str, name: str, size: int = 64) -> Iterator[memoryview]:
    """A shared-memory region that is registered with Triton, and its bytes."""
    memory = SharedMemory(create=True, size=size)
    path = f"/v2/systemsharedmemory/region/{name}"
    try:
        call(url, "POST", f"{path}/register", {"key": f"/{memory.name}", "offset": 0, "byte_size": size})
        assert memory.buf is not None
        yield memory.buf
        call(url, "POST", f"{path}/unregister")
    finally:
        memory.close()
        memory.unlink()


class TestSharedMemory:
    def test_shared_memory_is_read_and_written(self, triton_url: str, echo: TritonInference) -> None:
        """An input comes from one region, an output goes to another; the result says where it is, and what it cost."""
        with region(triton_url, "inside") as inside, region(triton_url, "outside") as outside:
            inside[8:16] = struct.pack("<2f", 0.5, -3)
            held = {"shared_memory_region": "inside", "shared_memory_byte_size": 8, "shared_memory_offset": 8}
            assert output_of(echo, inputs=[tensor("FP32", None, [1, 2], **held)]).data == [0.5, -3.0]
            where = {"shared_memory_region": "outside", "shared_memory_byte_size": 16, "shared_memory_offset": 4}
            outputs = [{"name": "OUT_FP32", "parameters": where}]
            got = run_tensors(echo, inputs=[tensor("FP32", None, [1, 2], **held)], outputs=outputs)
            assert [(output.shape, output.parameters, output.data) for output in got.outputs] == [([1, 2], where, None)]
            assert got.usage.model_dump() == {"inferences": 1, "values": 2}
            assert struct.unpack("<2f", outside[4:12]) == (0.5, -3.0)

    @pytest.mark.parametrize(
        ("held", "where", "status"),
        [
            ({"shared_memory_region": "outside", "shared_memory_byte_size": 8}, None, 404),
            ({"shared_memory_region": "inside", "shared_memory_byte_size": 8, "shared_memory_offset": 60}, None, 400),
            ({"shared_memory_region": "inside", "shared_memory_byte_size": 12}, None, 400),
            (None, {"shared_memory_region": "inside", "shared_memory_byte_size": 4}, 500),
            (None, {"shared_memory_region": "outside", "shared_memory_byte_size": 8}, 404),
        ],
    )
    def test_a_region_that_does_not_do_is_the_jobs_fault(
        self, triton_url: str, echo: TritonInference, held: Any, where: Any, status: int
    ) -> None:
        """Not registered, too small, or beyond its end: refused once, and the model goes on."""
        inputs = [tensor("FP32", [1, 2])] if held is None else [tensor("FP32", None, [1, 2], **held)]
        outputs = [{"name": "OUT_FP32", "parameters": where or {}}]
        with region(triton_url, "inside"):
            error = tensors_failure(echo, InferenceRejected, inputs=inputs, outputs=outputs)
        assert error.upstream_status == status
        assert output_of(echo).data == [0.5, 2.0]


class TestWhoseFaultItIs:
    @pytest.mark.parametrize(
        ("inputs", "said"),
        [
            ([tensor("FP32", [1]) | {"name": "canary"}], "inputs[0] is none of the model's"),
            ([tensor("FP32", [1]) | {"datatype": "FP64"}], "inputs[0] is not of the model's datatype, FP32"),
            ([tensor("FP32", [1], [1])], "inputs[0] is not of the model's shape, [1 to 4, -1]"),
            ([tensor("FP32", [1] * 5, [5, 1])], "inputs[0] is not of the model's shape, [1 to 4, -1]"),
        ],
    )
    def test_a_job_that_does_not_fit_never_reaches_the_model(
        self, echo: TritonInference, witness: Witness, inputs: list[Any], said: str
    ) -> None:
        """It is told where, and nothing of the model's state changes."""
        assert tensors_failure(echo, InvalidJob, inputs=inputs).detail == said
        assert witness.count(ECHO) == 0

    def test_what_only_triton_can_tell_is_the_jobs_fault_too(self, echo: TritonInference) -> None:
        """Inputs of different batches: refused once, and not tried again."""
        inputs = [tensor("FP32", [1, 2], [2, 1]), tensor("INT8", [1], [1, 1])]
        assert tensors_failure(echo, InferenceRejected, inputs=inputs).upstream_status == 400
        assert output_of(echo).data == [0.5, 2.0]

    @pytest.mark.parametrize(
        ("fault", "error", "status"),
        [
            ("raise", ModelException, 500),
            ("error=INVALID_ARG", InferenceRejected, 400),
            ("error=UNAVAILABLE", RuntimeUnavailable, 503),
        ],
    )
    def test_what_a_model_refuses_or_raises_is_as_for_texts(
        self, echo: TritonInference, fault: str, error: type[JobError], status: int
    ) -> None:
        """One table for both kinds."""
        assert tensors_failure(echo, error, **faulty(fault)).upstream_status == status

    def test_a_model_whose_process_died_is_crashed(self, triton_url: str, echo: TritonInference) -> None:
        """Under the job that kills it, and for the next one."""
        try:
            tensors_failure(echo, ModelCrashed, **faulty("exit"))
            tensors_failure(echo, ModelCrashed)
        finally:
            revive(triton_url, ECHO)
        assert output_of(echo).data == [0.5, 2.0]

    def test_an_inference_that_takes_too_long_is_a_timeout(self, triton_url: str) -> None:
        """After the model's timeout_seconds."""
        with tensors_on(triton_url, **of_two_minds(0.4)) as echo:
            run_tensors(echo, model=PATIENT)
            echo.check(HASTY)
            tensors_failure(echo, RuntimeTimeout, model=HASTY, **faulty("sleep=0.8"))

    def test_a_text_job_is_nothing_for_a_tensor_model(self, echo: TritonInference) -> None:
        """Reading refuses it before; nothing is sent by mistake."""
        with pytest.raises(ModelNotSupported):
            infer(echo)

    def test_many_at_once_get_their_own_outputs(self, echo: TritonInference) -> None:
        """Each its own values, under its own request."""
        jobs = [partial(output_of, echo, inputs=[tensor("INT32", [n])], request_id=f"j-{n}") for n in range(30)]
        assert [output.data for output in all_at_once(jobs)] == [[n] for n in range(30)]


def test_a_model_that_is_loaded_anew_is_met_as_it_is_now(tmp_path: Path) -> None:
    """Its outputs became BYTES and its input another: no job is judged by what it was, and none ends the server."""
    shutil.copytree(MODELS / ECHO, tmp_path / "models" / ECHO, ignore=shutil.ignore_patterns("__pycache__"))
    config = tmp_path / "models" / ECHO / "config.pbtxt"
    classify = {"outputs": [{"name": "OUT_FP32", "parameters": {"classification": 1}}]}
    rules = RULES | {"usage": {}}
    with (
        TritonServer(tmp_path / "models", control="explicit", models=[ECHO]) as server,
        tensors_on(server.url, tensors=rules) as echo,
    ):
        assert output_of(echo, **classify).data == ["2.000000:1:dog"]
        tensors_failure(echo, InvalidJob, inputs=[tensor("FP32", [1], [1])])
        unload(server.url, ECHO)
        written = config.read_text().replace('"OUT_FP32" data_type: TYPE_FP32', '"OUT_FP32" data_type: TYPE_STRING')
        config.write_text(written.replace("max_batch_size: 4", "max_batch_size: 0"))
        load(server.url, ECHO)
        error = tensors_failure(echo, InvalidJob, inputs=[tensor("FP32", [1], [1])], **classify)
        assert error.detail == "outputs[0] cannot be classified: it is of BYTES"
        assert server.is_running()
