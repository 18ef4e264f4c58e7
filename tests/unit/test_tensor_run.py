"""One tensor job on its model: when the model is looked at again, and whose fault a mismatch is."""

import dataclasses
import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final, Never

import pytest

from settings.runtime import RuntimeConfig
from tasks.errors import ContractMismatch, InferenceRejected, InvalidJob, JobError, ModelNotReady
from tests.tensor_jobs import tensor, tensor_job
from tests.tensor_wire import answer_of, output
from worker.triton.description import ModelDescription, TensorDescription
from worker.triton.failures import error_from_answer
from worker.triton.http import Answer, Limits, Request
from worker.triton.tensor_contract import TensorContract
from worker.triton.tensor_run import TensorRun
from worker.triton.tensors import AskedTensors

CONFIG: Final = RuntimeConfig.model_validate({"model_name": "m", "kind": "tensors", "timeout_seconds": 10})


def model(datatype: str = "FP32", **changes: Any) -> ModelDescription:
    """A model that takes one row of a datatype, and gives one back."""
    described = ModelDescription(
        name="m",
        versions=("1",),
        inputs=(TensorDescription(f"IN_{datatype}", datatype, (1, -1)),),
        outputs=(TensorDescription("x", datatype, (1, -1)),),
        decoupled=False,
        complete=True,
    )
    return dataclasses.replace(described, **changes)


RIGHT: Final = Answer(200, *answer_of(output("x", "FP32", [1, 1], struct.pack("<f", 1))))


def refusal(text: str, status: int = 400) -> Answer:
    """Triton's refusal."""
    return Answer(status, json.dumps({"error": text}).encode(), None)


@dataclass
class FakeAdapter:
    """Knows one model after the other, a new one each time it is asked anew; notes what it is asked."""

    models: list[ModelDescription | JobError] = field(default_factory=lambda: [model()])
    answer: Answer = RIGHT
    looks_take: float = 0.0
    now: float = 0.0
    looks: int = 0
    sent: list[tuple[Request, Limits]] = field(default_factory=list)

    def run(self, **changes: Any) -> Any:
        """Run a job."""
        return TensorRun(
            tensor_job(**changes), "id", self.known, self.exchange, self.fail, lambda: self.now
        ).generation()

    def known(self, *, anew: bool) -> tuple[AskedTensors, Limits]:
        """Give the model."""
        if anew:
            self.looks += 1
            self.now += self.looks_take
            self.models = self.models[1:] or self.models
        described = self.models[0]
        if isinstance(described, JobError):
            raise described
        asked = AskedTensors(CONFIG, TensorContract(described, {}))
        return asked, asked.limits

    def exchange(self, request: Request, limits: Limits) -> Answer:
        """Take a request."""
        self.sent.append((request, limits))
        return self.answer

    def fail(self, answer: Answer, _: AskedTensors) -> Never:
        """Raise what an answer means."""
        raise error_from_answer(answer.status, answer.body)


def test_a_job_that_fits_is_sent_once_to_a_model_that_is_not_looked_at() -> None:
    """Its outputs come back."""
    adapter = FakeAdapter()
    assert adapter.run().outputs[0].data == [1.0]
    assert (adapter.looks, len(adapter.sent)) == (0, 1)
    assert adapter.sent[0][0].path == "/v2/models/m/infer"


def test_a_trace_context_goes_along() -> None:
    """In Triton's header."""
    adapter = FakeAdapter()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    adapter.run(traceparent=trace)
    assert adapter.sent[0][0].headers["traceparent"] == trace


def test_a_job_that_does_not_fit_is_held_against_the_model_of_now() -> None:
    """The model was loaded anew, as what the job is for."""
    adapter = FakeAdapter(models=[model("FP16"), model("FP32")])
    assert adapter.run().outputs[0].data == [1.0]
    assert adapter.looks == 1


def test_a_job_that_still_does_not_fit_is_not_valid() -> None:
    """And is not sent."""
    adapter = FakeAdapter(models=[model("FP16"), model("INT8")])
    with pytest.raises(InvalidJob, match="none of the model's"):
        adapter.run()
    assert (adapter.looks, adapter.sent) == (1, [])


def test_values_that_do_not_fit_are_no_reason_to_look() -> None:
    """No model would make them right."""
    adapter = FakeAdapter()
    with pytest.raises(InvalidJob, match=r"inputs\[0\].data has values that are not numbers"):
        adapter.run(inputs=[tensor("FP32", [None])])
    assert (adapter.looks, adapter.sent) == (0, [])


def test_a_model_is_looked_at_before_anything_is_classified() -> None:
    """What was FP32 when it was looked at last may be BYTES by now, and that would end Triton."""
    texts = model(outputs=(TensorDescription("x", "BYTES", (1, -1)),))
    classify = {"outputs": [{"name": "x", "parameters": {"classification": 1}}]}
    adapter = FakeAdapter(models=[model(), texts])
    with pytest.raises(InvalidJob, match="cannot be classified"):
        adapter.run(**classify)
    assert (adapter.looks, adapter.sent) == (1, [])
    unchanged = FakeAdapter()
    unchanged.run(**classify)
    assert (unchanged.looks, len(unchanged.sent)) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "unexpected shape for input 'a' for model 'm'. Expected [1], got [2]",
        "inference input 'a' data-type is 'INT64', but model 'm' expects 'INT32'",
        "inference request batch-size must be <= 8 for 'm'",
        "expected 2 inputs but got 1 inputs for model 'm'",
        "unexpected inference output 'x' for model 'm'",
        "inference request to model 'm' must specify a non-zero or non-empty correlation ID",
    ],
)
class TestWhatTritonRefuses:
    def test_it_is_the_jobs_fault_where_the_model_is_what_it_was(self, text: str) -> None:
        """It would be refused for ever; the model goes on with other jobs."""
        adapter = FakeAdapter(answer=refusal(text))
        with pytest.raises(InferenceRejected) as caught:
            adapter.run()
        assert caught.value.upstream_status == 400
        assert adapter.looks == 1

    def test_the_job_is_judged_anew_where_the_model_has_changed(self, text: str) -> None:
        """It goes back, uncharged, and meets the model of now."""
        adapter = FakeAdapter(models=[model(), model(versions=("2",))], answer=refusal(text))
        with pytest.raises(ContractMismatch):
            adapter.run()

    def test_a_model_that_is_gone_meanwhile_is_not_ready(self, text: str) -> None:
        """Then nothing is said of the job."""
        adapter = FakeAdapter(models=[model(), ModelNotReady()], answer=refusal(text))
        with pytest.raises(ModelNotReady):
            adapter.run()


@pytest.mark.parametrize(("status", "text"), [(403, "This API is restricted"), (401, ""), (404, "Not Found")])
def test_what_is_not_permitted_is_nothing_of_the_jobs(status: int, text: str) -> None:
    """No job of the model can run from here."""
    adapter = FakeAdapter(answer=refusal(text, status))
    with pytest.raises(ContractMismatch):
        adapter.run()
    assert adapter.looks == 0


def test_what_looking_took_is_not_there_for_the_inference() -> None:
    """The model's timeout bounds both."""
    adapter = FakeAdapter(models=[model("FP16"), model()], looks_take=4.0)
    adapter.run()
    assert adapter.sent[0][1].timeout_seconds == pytest.approx(6.0)
    late = FakeAdapter(models=[model("FP16"), model()], looks_take=11.0)
    late.run()
    assert late.sent[0][1].timeout_seconds == 0.0


def test_an_error_with_200_is_told_by_its_text() -> None:
    """As for texts."""
    with pytest.raises(ModelNotReady):
        FakeAdapter(answer=refusal("Request for unknown model: 'm' is not found", 200)).run()
