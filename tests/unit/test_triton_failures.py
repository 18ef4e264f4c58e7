"""What each answer of Triton means for a job: every row of the table, and every cause that was measured."""

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import (
    ConnectionLost,
    ContractMismatch,
    InferenceRejected,
    JobError,
    ModelCrashed,
    ModelException,
    ModelNotReady,
    OutputInvalid,
    QueueFull,
    RuntimeTimeout,
    RuntimeUnavailable,
)
from worker.triton.failures import (
    CAUSES,
    LOSSES,
    ExchangeFailed,
    Loss,
    ServerAway,
    cause_of,
    error_from_answer,
    error_from_loss,
    error_text,
    first_line,
    is_decoupled,
    reason_of,
)

SPOKEN: Final = [
    # name of the row, status, Triton's text, what it is
    ("unknown model", 404, "Request for unknown model: 'nope' is not found", ModelNotReady),
    ("unknown version", 404, "Request for unknown model: 'lab' version 7 is not found", ModelNotReady),
    ("loading or unloaded", 404, "Request for unknown model: 'm' has no available versions", ModelNotReady),
    ("version unloading", 503, "Request for unknown model: 'm' version 1 is not at ready state", ModelNotReady),
    ("not ready", 400, "Model version not ready", ModelNotReady),
    ("not ready by its own word", 503, "Model 'm_0_0' is not ready (user-defined check failed).", ModelNotReady),
    ("bad URL", 404, "Not Found", ContractMismatch),
    ("bad method", 405, "Method Not Allowed", ContractMismatch),
    (
        "wrong datatype",
        400,
        "[request id: j/1] inference input 'max_tokens' data-type is 'INT64', but model 'lab' expects 'INT32'",
        ContractMismatch,
    ),
    (
        "wrong shape",
        400,
        "[request id: j/1] unexpected shape for input 'max_tokens' for model 'lab'. Expected [-1,1], got [1]. NOTE: ...",
        ContractMismatch,
    ),
    ("batch too big", 400, "[request id: j/1] inference request batch-size must be <= 8 for 'lab'", ContractMismatch),
    (
        "batch sizes differ",
        400,
        "[request id: j/1] input 'a' batch size does not match other inputs for 'lab'",
        ContractMismatch,
    ),
    (
        "missing input",
        400,
        "[request id: j/1] expected 2 inputs but got 1 inputs for model 'lab'. Got input(s) ['text_input'], but missing ...",
        ContractMismatch,
    ),
    (
        "missing input with optional ones",
        400,
        "[request id: <id_unknown>] expected number of inputs between 2 and 4 but got 0 inputs for model 'm'. Got ...",
        ContractMismatch,
    ),
    ("extra input", 400, "expected 2 inputs but got 3 inputs for model 'lab'. ... input(s) ].", ContractMismatch),
    ("unknown output", 400, "unexpected inference output 'nope' for model 'lab'", ContractMismatch),
    ("unknown input", 400, "unexpected inference input 'nope' for model 'lab'", ContractMismatch),
    ("byte size", 400, "input byte size mismatch for input 'a' for model 'lab'. Expected 4, got 8", ContractMismatch),
    (
        "region too small",
        500,
        "shared memory size specified with the request for output 'o' (8 bytes) should be at least 16 bytes to hold the results",
        InferenceRejected,
    ),
    (
        "stateful",
        400,
        "inference request to model 'lab' must specify a non-zero or non-empty correlation ID",
        ContractMismatch,
    ),
    (
        "python exception",
        500,
        "Failed to process the request(s) for model 'lab_0_0', message: ValueError: no\n\nAt:\n  /m.py(19): execute\n",
        ModelException,
    ),
    (
        "no responses",
        500,
        "Failed to process the request(s) for model 'lab_0_0', message: Number of InferenceResponse objects do not match",
        ModelException,
    ),
    ("TritonError INTERNAL", 500, "any words", ModelException),
    ("TritonError UNAVAILABLE", 503, "any words", RuntimeUnavailable),
    ("TritonError UNSUPPORTED", 501, "any words", InferenceRejected),
    ("TritonError NOT_FOUND", 404, "any words", InferenceRejected),
    ("TritonError INVALID_ARG and its like", 400, "any words", InferenceRejected),
    ("process dead", 500, "Stub process 'lab_0_0' is not healthy.", ModelCrashed),
    ("process dead, with its request", 500, "[request id: j/1] Stub process 'lab_0_0' is not healthy.", ModelCrashed),
    ("process dead in an ensemble", 500, "in ensemble 'e', Stub process 'lab_0_0' is not healthy.", ModelCrashed),
    (
        "process died under it",
        500,
        "Failed to process the request(s) for model instance 'lab_0', message: Stub process is not healthy.",
        ModelCrashed,
    ),
    (
        "process stuck",
        500,
        "Failed to process the request(s) for model instance 'lab_0', message: Failed to obtain the health mutex.",
        ModelCrashed,
    ),
    (
        "decoupled",
        501,
        "HTTP end point doesn't support models with decoupled transaction policy",
        ContractMismatch,
    ),
    ("queue full", 503, "[request id: x] Exceeds maximum queue size", QueueFull),
    ("queue timeout", 503, "Request timeout expired", QueueFull),
    (
        "stopping",
        503,
        "Server is stopping, scheduler for model has stopped accepting new inference requests",
        RuntimeUnavailable,
    ),
    ("body too big", 400, "request JSON size ... Use --http-max-input-size to increase the limit.", InferenceRejected),
    ("JSON garbage", 500, "failed to parse the request JSON buffer: Missing a name at 1", InferenceRejected),
    ("wrong JSON type", 500, "Unable to parse 'inputs': attempt to access non-existing object", InferenceRejected),
    ("restricted", 403, "This API is restricted, expecting header 'x-key'", ContractMismatch),
    ("an error within 200", 200, "Stub process 'lab_0_0' is not healthy.", ModelCrashed),
    (
        "none or several answers",
        200,
        "generate expects model to produce exactly 1 response, use generate stream for model that ...",
        OutputInvalid,
    ),
    ("an output of another size", 400, "output tensor shape does not match size of output for 'n'", OutputInvalid),
    (
        "an output of another size, as JSON",
        400,
        "Failed to write 'data' field: output tensor shape does not match size of output for 'n'",
        OutputInvalid,
    ),
    ("half floats out", 400, "sending FP16 data via JSON is not supported. Please use ...", OutputInvalid),
    ("half floats in", 400, "receiving BF16 data via JSON is not supported. Please use ...", ContractMismatch),
    ("an input gone", 400, "parameter 'stop_words' has invalid type", ContractMismatch),
    (
        "wrong shape, by generate",
        400,
        "The schema can not convert input 'pair' to tensor with proper shape",
        ContractMismatch,
    ),
    (
        "vLLM raised",
        500,
        "Error generating stream: The decoder prompt (length 9) is longer than the maximum model length of 8.",
        ModelException,
    ),
    (
        "vLLM's engine died",
        500,
        "Error generating stream: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        ModelCrashed,
    ),
    ("an older vLLM's engine died", 500, "Error generating stream: Background loop has errored already.", ModelCrashed),
    ("vLLM's engine is ill", 503, "Model is unavailable due to unhealthy vLLM engine", RuntimeUnavailable),
    ("no such LoRA", 400, "LoRA x is not supported, we currently support ['y']", InferenceRejected),
    ("no LoRA at all", 400, "LoRA feature is not enabled.", InferenceRejected),
]

PAGES: Final = [
    # status of an answer that is not of Triton's form, what it is
    (200, OutputInvalid),
    (204, OutputInvalid),
    (301, ContractMismatch),
    (302, ContractMismatch),
    (400, InferenceRejected),
    (401, ContractMismatch),
    (403, ContractMismatch),
    (404, ContractMismatch),
    (405, ContractMismatch),
    (407, ContractMismatch),
    (408, RuntimeUnavailable),
    (413, InferenceRejected),
    (429, QueueFull),
    (500, ConnectionLost),
    (501, ContractMismatch),
    (502, ConnectionLost),
    (503, RuntimeUnavailable),
    (504, RuntimeTimeout),
    (520, ConnectionLost),
    (999, ConnectionLost),
]


def body(text: str) -> bytes:
    """Triton's error body."""
    return json.dumps({"error": text}).encode()


@pytest.mark.parametrize(("status", "text", "error"), [row[1:] for row in SPOKEN], ids=[row[0] for row in SPOKEN])
def test_what_triton_says_is_told_by_its_text(status: int, text: str, error: type[JobError]) -> None:
    """Each text that Triton was seen to send, with its status, is the error that the contract has for it."""
    found = error_from_answer(status, body(text))
    assert type(found) is error
    assert found.upstream_status == status


@pytest.mark.parametrize(
    ("text", "error"),
    [row[2:] for row in SPOKEN if row[2] != "any words"],
    ids=[row[0] for row in SPOKEN if row[2] != "any words"],
)
def test_a_server_that_answers_400_to_everything_is_understood(text: str, error: type[JobError]) -> None:
    """Servers before 24.01 have one status for all; the text alone tells the same."""
    assert type(error_from_answer(400, body(text))) is error


@pytest.mark.parametrize(
    ("text", "error"),
    [row[2:] for row in SPOKEN if row[2] != "any words"],
    ids=[row[0] for row in SPOKEN if row[2] != "any words"],
)
def test_a_vague_status_changes_nothing_where_the_text_is_known(text: str, error: type[JobError]) -> None:
    """What /generate answers with 400 is told by its text, as with any other status."""
    assert type(error_from_answer(400, body(text), status_is_vague=True)) is error


def test_a_vague_400_of_unknown_words_is_the_models() -> None:
    """What Triton itself refuses has words that are known, so these are the model's: it may be ill, and is counted."""
    found = error_from_answer(400, body("any words"), status_is_vague=True)
    assert type(found) is ModelException
    assert found.upstream_status == 400
    assert type(error_from_answer(400, body("any words"))) is InferenceRejected


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (400, b"<html>", InferenceRejected),
        (404, body("any words"), InferenceRejected),
        (503, body("any words"), RuntimeUnavailable),
        (200, body("any words"), OutputInvalid),
    ],
)
def test_only_a_400_of_tritons_is_vague(status: int, content: bytes, error: type[JobError]) -> None:
    """A proxy means what it says, and so does Triton with any other status."""
    assert type(error_from_answer(status, content, status_is_vague=True)) is error


def test_an_infer_of_a_decoupled_model_is_told_by_its_text() -> None:
    """It ran nothing, so the other endpoint may be asked at once."""
    text = "HTTP end point doesn't support models with decoupled transaction policy"
    assert is_decoupled(501, body(text))
    assert is_decoupled(400, body(text))
    assert not is_decoupled(501, body("any words"))
    assert not is_decoupled(200, body(text))


@pytest.mark.parametrize(("status", "error"), PAGES)
@pytest.mark.parametrize(
    "page", [b"", b"<html>Stub process 'm' is not healthy.</html>", b"[]", b"{}", b'{"error":{"code":1}}', b"\xff"]
)
def test_what_is_not_of_tritons_form_is_told_by_its_status(status: int, error: type[JobError], page: bytes) -> None:
    """A proxy's page, an empty body and other people's JSON mean what their status says."""
    assert type(error_from_answer(status, page)) is error


@pytest.mark.parametrize(
    "text",
    [
        "refused: Stub process 'lab_0_0' is not healthy.",
        "Failed to process the request(s) for model 'm', message: ValueError: Stub process 'm' is not healthy.",
        "Failed to process the request(s) for model 'm', message: ValueError: Request for unknown model: 'm' is not found",
        "bad prompt: This API is restricted",
        "refused: Error generating stream: EngineCore encountered an issue. See stack trace",
        "Error generating stream: bad prompt: EngineCore encountered an issue. See stack trace",
    ],
)
def test_a_prompt_within_a_text_decides_nothing(text: str) -> None:
    """A job cannot stop a model for others by holding the words of another failure, which its model then repeats."""
    assert type(error_from_answer(500, body(text))) is ModelException


def test_every_row_is_reached() -> None:
    """No row of the table is dead: each is what some answer above means."""
    named = {cause_of(status, text).name for _, status, text, _ in SPOKEN}
    named |= {cause_of(status, None).name for status, _ in PAGES}
    assert named == {cause.name for cause in CAUSES}


@pytest.mark.parametrize(
    ("loss", "error"),
    [
        (Loss.NEVER_SENT, RuntimeUnavailable),
        (Loss.REFUSED, ServerAway),
        (Loss.NOT_IN_TIME, RuntimeTimeout),
        (Loss.CONNECTION_LOST, ConnectionLost),
        (Loss.TOO_LARGE, OutputInvalid),
        (Loss.ENCODED, OutputInvalid),
    ],
)
def test_an_exchange_without_an_answer_is_an_error_too(loss: Loss, error: type[JobError]) -> None:
    """Each way to get no answer has its error, and operators read why."""
    found = error_from_loss(ExchangeFailed(loss, "connection refused"))
    assert type(found) is error
    assert reason_of(found) == "connection refused"


def test_no_loss_is_without_an_error() -> None:
    """A way to lose an answer cannot be added without saying what it means."""
    assert set(LOSSES) == set(Loss)


@given(status=st.integers(min_value=-1, max_value=1200), content=st.binary() | st.text().map(body))
def test_any_answer_is_some_error(status: int, content: bytes) -> None:
    """Whatever is answered ends as a JobError, and raises nothing here."""
    error = error_from_answer(status, content)
    assert isinstance(error, JobError)
    assert error.upstream_status == status


@given(st.text(min_size=4))
def test_upstream_text_is_in_no_part_of_an_error(text: str) -> None:
    """One request's exception reaches its whole batch, so its words may be another customer's prompt."""
    secret = f"<secret>{text}</secret>"
    for status in (400, 404, 500, 503):
        error = error_from_answer(status, body(secret))
        shown = f"{error!r} {error.message} {error.detail} {error.__cause__!r} {reason_of(error)} {error.args}"
        assert secret not in shown
        assert "<secret>" not in shown


@given(st.binary())
def test_reading_an_error_text_raises_nothing(content: bytes) -> None:
    """Any bytes have an error text or none."""
    assert error_text(content) is None or isinstance(error_text(content), str)


def test_deep_nesting_is_no_error_text() -> None:
    """A body made to exhaust a parser is a page like any other."""
    assert error_text(b"[" * 1_000_000) is None


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (body("ValueError: no\n\nAt:\n  /secret/model.py"), "ValueError: no"),
        (b"<html>\n<body>", "<html>"),
        (b"", ""),
        (body("x" * 500), "x" * 200),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_of_an_upstream_text_at_most_a_first_line_is_kept(content: bytes, line: str) -> None:
    """What an operator asked to see in the log is one line of at most 200 characters."""
    assert first_line(content) == line
