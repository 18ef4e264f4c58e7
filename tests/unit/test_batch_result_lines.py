"""What is written for a line: what OpenAI's own types read, the same bytes each time, and what a later run reads back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.result import GenerateResult
from tasks.usage import Usage
from tests.jobs import failed_result_content, result_content
from tests.openai_lines import parsed
from worker.batch.bad_line import BadLine
from worker.batch.counts import Counts, Outcome
from worker.batch.jobs import Asked, Line
from worker.batch.requests import Endpoint
from worker.batch.result_lines import Written, batch_id, ended, failed, read_back, refused

BATCH = batch_id("00ff")
SPENT = Usage.of(prompt_tokens=5, completion_tokens=32)


def asked(endpoint: Endpoint = Endpoint.COMPLETIONS, **changes: Any) -> Asked:
    """A line with a job."""
    fields: dict[str, Any] = {"number": 7, "custom_id": "row-1", "max_tokens": 64} | changes
    return Asked(batch_id=BATCH, endpoint=endpoint, model="acme/model-1", **fields)


def result(**changes: Any) -> GenerateResult:
    """A succeeded result but for these fields."""
    return GenerateResult.model_validate_json(json.dumps(result_content(**changes)))


def failure(**changes: Any) -> GenerateResult:
    """A failed result but for these fields."""
    return GenerateResult.model_validate_json(json.dumps(failed_result_content(**changes)))


def said(written: Written) -> Any:
    """What a line says."""
    return json.loads(written.content)


class TestSuccesses:
    def test_a_completion_is_written_as_openai_writes_one(self) -> None:
        """With the true usage, and the time at which the result was made."""
        assert said(ended(asked(), result(text="Hi", finish_reason="stop"))) == {
            "id": "batch_req_00ff_7",
            "custom_id": "row-1",
            "response": {
                "status_code": 200,
                "request_id": "batch_00ff:7",
                "body": {
                    "id": "cmpl-batch_00ff:7",
                    "object": "text_completion",
                    "created": 1796032800,
                    "model": "acme/model-1",
                    "choices": [{"index": 0, "text": "Hi", "logprobs": None, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 5, "completion_tokens": 32, "total_tokens": 37},
                },
            },
            "error": None,
        }

    def test_a_chat_is_written_as_openai_writes_one(self) -> None:
        """The text is an assistant's message."""
        body = said(ended(asked(Endpoint.CHAT), result(text="Hi")))["response"]["body"]
        assert (body["id"], body["object"]) == ("chatcmpl-batch_00ff:7", "chat.completion")
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hi", "refusal": None}

    @pytest.mark.parametrize("endpoint", Endpoint)
    @given(
        text=st.text(st.characters(exclude_categories=["Cs"])), reason=st.none() | st.text(st.characters(codec="utf-8"))
    )
    def test_openais_types_read_every_line(self, endpoint: Endpoint, text: str, reason: str | None) -> None:
        """Whatever text and whatever reason a model gives; and it is one line to every reader."""
        line = ended(asked(endpoint), result(text=text, finish_reason=reason))
        assert parsed(line.content).text == text
        assert len(line.content.decode().splitlines()) == 1

    @pytest.mark.parametrize(
        ("reason", "max_tokens", "word"),
        [
            (None, 32, "length"),
            (None, 33, "stop"),
            ("length", 64, "length"),
            ("MAX_TOKENS", 64, "length"),
            ("stop", 32, "stop"),
            ("end_id", 64, "stop"),
            ("content_filter", 64, "content_filter"),
        ],
    )
    def test_why_a_text_ends_is_said_in_openais_words(self, reason: str | None, max_tokens: int, word: str) -> None:
        """A model that does not say is judged by the tokens it was allowed."""
        line = ended(asked(max_tokens=max_tokens), result(finish_reason=reason))
        assert said(line)["response"]["body"]["choices"][0]["finish_reason"] == word


class TestFailures:
    def test_a_failed_job_is_an_error_with_its_code_and_line(self) -> None:
        """What it spent is there, since it may be billed; whether to try again is there too."""
        spent = SPENT.model_dump()
        assert said(ended(asked(), failure(usage=spent))) == {
            "id": "batch_req_00ff_7",
            "custom_id": "row-1",
            "response": None,
            "error": {
                "code": "internal_error",
                "message": "It failed.",
                "param": None,
                "line": 7,
                "retryable": True,
                "usage": spent,
            },
        }

    def test_a_bad_line_is_an_error_with_its_number(self) -> None:
        """The template's own words are in it, beside ours."""
        line = refused(Line(BATCH, 7, "line-7"), BadLine("the line is wrong", detail="no such role"))
        error = said(line)["error"]
        assert (error["code"], error["line"]) == ("invalid_line", 7)
        assert error["message"] == "line 7: the line is wrong: no such role"

    @given(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.just(SPENT))
    def test_openais_types_read_every_error(self, words: str, usage: Usage | None) -> None:
        """Whatever they say."""
        error = parsed(failed(asked(), words, words, usage=usage).content)
        assert (error.code, error.line) == (words, 7)


class TestReadingBack:
    @pytest.mark.parametrize(
        "written",
        [
            ended(asked(), result(text='"},"error":null}\n\u2028')),
            ended(asked(Endpoint.CHAT), result()),
            ended(asked(), failure(usage=SPENT.model_dump())),
            failed(asked(), "result_expired", "gone"),
            refused(Line(BATCH, 7, "line-7"), BadLine("wrong")),
        ],
    )
    def test_what_was_written_is_read_back(self, written: Written) -> None:
        """Number, code and tokens: all that a later run has to know of it."""
        assert read_back(written.content, BATCH) == written

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"text\n",
            b"{}\n",
            ended(asked(), result()).content[:-1],
            ended(asked(), result()).content[:-2] + b"\n",
            ended(asked(), result()).content.replace(b"00ff_7", b"00fe_7"),
            b'{"id":"batch_req_00ff_7","custom_id":"x"}\n',
            b'{"id":"batch_req_00ff_7","response":null,"error":null}\n',
        ],
    )
    def test_what_this_batch_did_not_write_whole_is_not_taken_for_its_own(self, content: bytes) -> None:
        """A line that was cut, another batch's, or something else."""
        assert read_back(content, BATCH) is None


def test_counts_add_up() -> None:
    """Lines by how they ended, and every token that was spent, also by failures."""
    counts = Counts()
    for outcome in (Outcome(None, SPENT), Outcome("a", None), Outcome("b", SPENT), Outcome("b", None)):
        counts.add(outcome)
    assert (counts.written, counts.succeeded, counts.failed) == (4, 1, 3)
    assert counts.failures == {"a": 1, "b": 2}
    assert (counts.prompt_tokens, counts.completion_tokens, counts.total_tokens) == (10, 64, 74)
