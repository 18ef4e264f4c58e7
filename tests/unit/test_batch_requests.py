"""What a line of a batch asks for, and the job that is made of it."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reading import ModelLimits
from tests.jobs import LEFT_OUT, changed
from worker.batch.bad_line import BadLine
from worker.batch.jobs import Defaults, JobMaker, Planned, line_of
from worker.batch.lines import Record
from worker.batch.models import ModelCard
from worker.batch.requests import Endpoint, read_request
from worker.batch.survey import Unpinned
from worker.submit import encode

BATCH = "batch_0123456789abcdef"
NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
CARDS = {
    "acme/chat": ModelCard(chat_template=TEMPLATE),
    "acme/limited": ModelCard(ModelLimits(10, 8, frozenset({"seed"}))),
    "acme/tensors": ModelCard(takes_prompts=False),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def completion(**body: Any) -> dict[str, Any]:
    """A line of OpenAI's for a text, with these fields of its body changed or LEFT_OUT."""
    whole = {"model": "acme/model-1", "prompt": "Hello", "max_tokens": 8}
    return {"custom_id": "row-1", "method": "POST", "url": "/v1/completions", "body": changed(whole, body)}


def chat(messages: Any, **body: Any) -> dict[str, Any]:
    """A line of OpenAI's for a chat."""
    whole = {"model": "acme/chat", "messages": messages, "max_tokens": 8}
    return {"custom_id": "row-1", "method": "POST", "url": "/v1/chat/completions", "body": changed(whole, body)}


def plain(**fields: Any) -> dict[str, Any]:
    """A plain line."""
    return changed({"model": "acme/model-1", "prompt": "Hello", "max_tokens": 8}, fields)


def card_of(model: str) -> ModelCard:
    """What is known of a model."""
    return CARDS.get(model, ModelCard())


def make(content: dict[str, Any] | BadLine, number: int = 7, **options: Any) -> Planned:
    """The job of a line. Raises BadLine."""
    max_job_bytes = options.pop("max_job_bytes", 1 << 22)
    maker = JobMaker(BATCH, NOW, Defaults(**options), card=card_of, templates=Unpinned({}), max_job_bytes=max_job_bytes)
    return maker.make(Record(number, content))


def job(content: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The job of a line as it stands in a queue."""
    said: dict[str, Any] = json.loads(encode(make(content, **options).job))
    return said


def refusal(content: dict[str, Any] | BadLine, **options: Any) -> BadLine:
    """Why no job is made of a line."""
    with pytest.raises(BadLine) as error:
        make(content, **options)
    return error.value


def judged(content: dict[str, Any], **options: Any) -> Planned | BadLine:
    """The job of a line, or why there is none."""
    try:
        return make(content, **options)
    except BadLine as bad:
        return bad


class TestLinesOfOpenAIs:
    def test_a_completion_is_a_job(self) -> None:
        """Its options are parameters; what can be said in one way only, and what no model sees, is no part of it."""
        said = {"n": 1, "stream": False, "echo": False, "best_of": 1, "logprobs": None, "user": "u", "store": True}
        line = completion(temperature=0.5, stop=["."], seed=None, metadata={"a": "b"}, **said)
        assert job(line) == {
            "job_id": f"{BATCH}:7",
            "model": "acme/model-1",
            "prompt": "Hello",
            "max_tokens": 8,
            "parameters": {"temperature": 0.5, "stop": ["."]},
            "batch_id": BATCH,
            "custom_id": "row-1",
            "metadata": {"a": "b"},
        }

    def test_a_chat_is_a_job_whose_prompt_the_template_makes(self) -> None:
        """A content may be a text or a list of text parts."""
        parts = [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]
        line = chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}])
        planned = make(line)
        assert planned.job.prompt == "system: Be brief.\nuser: Hi there\nassistant:"
        assert planned.line.endpoint is Endpoint.CHAT

    def test_max_tokens_has_two_names(self) -> None:
        """Both are taken, if they do not differ."""
        assert job(completion(max_tokens=LEFT_OUT, max_completion_tokens=5))["max_tokens"] == 5
        assert job(completion(max_completion_tokens=8))["max_tokens"] == 8
        assert "differ" in refusal(completion(max_completion_tokens=9)).message

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"custom_id": LEFT_OUT}, "custom_id"),
            ({"custom_id": ""}, "custom_id"),
            ({"custom_id": "x" * 201}, "custom_id"),
            ({"custom_id": 7}, "custom_id"),
            ({"method": "GET"}, "method must be POST"),
            ({"method": LEFT_OUT}, "method must be POST"),
            ({"url": "/v1/embeddings"}, "/v1/completions or /v1/chat/completions"),
            ({"url": ["/v1/completions"]}, "url must be"),
            ({"body": "text"}, "body must be an object"),
            ({"body": LEFT_OUT}, "body must be an object"),
            ({"secret": 1}, "beside custom_id"),
        ],
    )
    def test_a_wrong_wrapping_is_a_bad_line(self, changes: dict[str, Any], words: str) -> None:
        """The message says which field."""
        assert words in refusal(changed(completion(), changes)).message

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"prompt": ""}, "body.prompt"),
            ({"prompt": ["a", "b"]}, "body.prompt"),
            ({"prompt": [1, 2]}, "body.prompt"),
            ({"n": 2}, "body.n must be 1"),
            ({"n": True}, "body.n must be 1"),
            ({"stream": True}, "body.stream must be false"),
            ({"stream": 0}, "body.stream must be false"),
            ({"logprobs": 3}, "body.logprobs must be false"),
            ({"model": 3}, "model must be a text"),
        ],
    )
    def test_what_a_job_cannot_have_is_a_bad_line(self, changes: dict[str, Any], words: str) -> None:
        """It is not sent, to be refused there, nor is it dropped."""
        assert words in refusal(completion(**changes)).message

    @pytest.mark.parametrize(
        ("messages", "words"),
        [
            ([], "body.messages"),
            ("Hi", "body.messages"),
            (["Hi"], "body.messages[0]"),
            ([{"content": "Hi"}], "body.messages[0]"),
            ([{"role": "user"}], "body.messages[0].content"),
            ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "no text"),
            ([{"role": "user", "content": "a"}, {"role": "user", "content": 5}], "body.messages[1].content"),
        ],
    )
    def test_messages_that_no_template_can_take_are_a_bad_line(self, messages: Any, words: str) -> None:
        """The message says which one."""
        assert words in refusal(chat(messages)).message

    def test_a_chat_of_a_model_without_a_template_says_what_would_give_it(self) -> None:
        """A configuration has it."""
        lacking = refusal(chat([{"role": "user", "content": "Hi"}], model="acme/model-1"))
        assert (lacking.option, "chat template" in lacking.message) == ("--config", True)


class TestPlainLines:
    def test_a_line_is_a_job(self) -> None:
        """Parameters may stand in an object or beside the prompt; a line without a name is named after its number."""
        line = plain(
            parameters={"top_k": 3}, temperature=0, tenant="t", metadata={"a": "b"}, expires_at="2026-11-30T12:00:00Z"
        )
        assert job(line) == {
            "job_id": f"{BATCH}:7",
            "model": "acme/model-1",
            "prompt": "Hello",
            "max_tokens": 8,
            "parameters": {"temperature": 0, "top_k": 3},
            "tenant": "t",
            "metadata": {"a": "b"},
            "expires_at": "2026-11-30T12:00:00.000Z",
            "batch_id": BATCH,
            "custom_id": "line-7",
        }

    def test_a_line_with_messages_is_a_chat(self) -> None:
        """As a plain line with a prompt is a text."""
        line = plain(model="acme/chat", prompt=LEFT_OUT, messages=[{"role": "user", "content": "Hi"}], custom_id="c")
        assert make(line).line.endpoint is Endpoint.CHAT
        assert job(line)["custom_id"] == "c"

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"prompt": LEFT_OUT}, "prompt must be a text"),
            ({"messages": []}, "both prompt and messages"),
            ({"parameters": 3}, "parameters must be an object"),
            ({"parameters": {"seed": 1}, "seed": 1}, "stands both in parameters and beside"),
            ({"parameters": {"prompt": "x"}}, "stands both in parameters and beside"),
            ({"custom_id": ["x"]}, "custom_id"),
            ({"expires_at": "soon"}, "expires_at is not valid"),
            ({"tenant": "x" * 201}, "tenant is not valid"),
            ({"max_tokens": 0}, "max_tokens is not valid"),
            ({"max_tokens": "8"}, "max_tokens is not valid"),
            ({"model": "a b"}, "model is not valid"),
            ({"temperature": float("inf")}, "a number that JSON cannot write"),
            ({"model": "acme/tensors"}, "takes tensors"),
        ],
    )
    def test_what_no_worker_would_take_is_a_bad_line(self, changes: dict[str, Any], words: str) -> None:
        """By the same judgement as the worker's."""
        assert words in refusal(plain(**changes)).message

    def test_options_give_what_lines_do_not_say(self) -> None:
        """A line's own word goes before them."""
        line = {"prompt": "Hello"}
        assert (
            job(line, model="m", max_tokens=3, tenant="t").items()
            >= {"model": "m", "max_tokens": 3, "tenant": "t"}.items()
        )
        assert job(plain(tenant="own"), model="m", max_tokens=3, tenant="t")["model"] == "acme/model-1"
        assert refusal(line).option == "--model"
        assert refusal(line, model="m").option == "--max-tokens"


class TestLimits:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"prompt": "x" * 11}, "prompt is over 10 bytes"),
            ({"max_tokens": 9}, "max_tokens is over 8"),
            ({"temperature": 1}, "parameter temperature is not supported"),
        ],
    )
    def test_what_is_known_of_a_model_is_checked_before_anything_is_sent(self, changes: Any, words: str) -> None:
        """With the worker's code and words."""
        bad = refusal(plain(model="acme/limited", **changes))
        assert (bad.code, words in bad.message) == ("invalid_job", True)
        assert job(plain(model="acme/limited", seed=1))["parameters"] == {"seed": 1}

    def test_a_job_that_is_too_large_is_a_bad_line(self) -> None:
        """It would be a dead letter, for which no result ever comes."""
        assert refusal(plain(prompt="x" * 500), max_job_bytes=500).code == "too_large"


class TestWhatever:
    @given(
        st.dictionaries(
            st.sampled_from(
                [
                    "custom_id",
                    "method",
                    "url",
                    "body",
                    "prompt",
                    "messages",
                    "model",
                    "max_tokens",
                    "n",
                    "x",
                    "parameters",
                    "metadata",
                ]
            )
            | st.text(),
            JSON,
        )
    )
    def test_any_object_is_a_job_or_a_bad_line(self, content: dict[str, Any]) -> None:
        """Nothing else is ever raised; and the same line makes the same job again."""
        first, again = (judged(content, model="m", max_tokens=5) for _ in range(2))
        if isinstance(first, Planned) and isinstance(again, Planned):
            assert encode(first.job) == encode(again.job)
        else:
            assert isinstance(first, BadLine)
            assert line_of(BATCH, Record(7, content)).custom_id

    @given(st.dictionaries(st.text(min_size=1), st.text(min_size=3)))
    def test_no_message_repeats_the_line(self, content: dict[str, str]) -> None:
        """Neither names nor values: the message may end in a log."""
        marked = {f"canary-{name}": f"canary-{value}" for name, value in content.items()}
        for line in (marked, {**completion(), **marked}, {"prompt": "x", "max_tokens": 0, **marked}):
            match judged(line, model="acme/limited"):
                case BadLine(message=message, detail=detail):
                    assert "canary" not in message + detail

    def test_a_bad_record_is_refused_as_it_is(self) -> None:
        """What could not be read keeps its reason."""
        assert refusal(BadLine("the line is not JSON")).message == "the line is not JSON"

    def test_a_request_does_not_change_the_line(self) -> None:
        """It may be read again."""
        line = completion(temperature=1)
        before = json.dumps(line)
        read_request(line)
        assert json.dumps(line) == before
