"""From bytes to a job, a rejected job or a dead letter, whatever the bytes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import ErrorCode
from tasks.job import GenerateJob
from tasks.reading import _SHOWN, DeadLetterReason, ModelLimits, NotAJob, RejectedJob, ValidJob, read_job
from tests.garbage import GARBAGE, WRONG_JOBS, Garbage, WrongJob
from tests.jobs import (
    LEFT_OUT,
    LIMITS,
    MAX_JOB_BYTES,
    MODEL,
    full_job_content,
    job_content,
    job_json,
    job_with,
)

ANY_PARAMETER = ModelLimits(max_prompt_bytes=1024, parameters=None)

# Lone surrogates, which json.dumps writes as escapes, among it.
ANY_TEXT = st.text(st.characters(), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=4,
)
JOBLIKE = st.fixed_dictionaries(
    {}, optional={name: st.just(value) | JSON for name, value in full_job_content().items()} | {"more": JSON}
)


def read(raw: bytes, limits: ModelLimits | None = LIMITS) -> ValidJob | RejectedJob | NotAJob:
    """Read what the queue of MODEL held."""
    return read_job(raw, queue_model=MODEL, limits=limits, max_job_bytes=MAX_JOB_BYTES)


def rejected(raw: bytes, limits: ModelLimits | None = LIMITS) -> RejectedJob:
    """Read a job that has to be rejected."""
    result = read(raw, limits)
    assert isinstance(result, RejectedJob)
    return result


def message(limits: ModelLimits | None = LIMITS, /, **changes: Any) -> str:
    """What the customer reads of a wrong job."""
    return rejected(job_json(**changes), limits).error.message


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: garbage.name)
def test_what_has_no_id_is_a_dead_letter(garbage: Garbage) -> None:
    """Bytes that no settlement can be made for say why."""
    assert read(garbage.raw) == NotAJob(garbage.reason)


@pytest.mark.parametrize("wrong", WRONG_JOBS, ids=lambda wrong: wrong.name)
def test_a_wrong_job_is_rejected_under_its_id(wrong: WrongJob) -> None:
    """A job that breaks the contract has an id to settle under, and its code."""
    result = rejected(wrong.raw)
    assert (result.identity.job_id, result.error.code) == (wrong.job_id, wrong.code)


def test_the_tables_of_garbage_are_worth_their_name() -> None:
    """There are at least 20 kinds of each, all different, and no kind of wrong job shares its id."""
    assert len({garbage.raw for garbage in GARBAGE}) == len(GARBAGE) >= 20
    assert len({wrong.job_id for wrong in WRONG_JOBS}) == len(WRONG_JOBS) >= 20


def test_a_job_that_sets_everything_is_valid() -> None:
    """All fields at once, under limits that allow them."""
    result = read(job_json(**full_job_content()), ANY_PARAMETER)
    assert isinstance(result, ValidJob)
    assert result.job.model_dump(mode="json") == full_job_content(
        expires_at="2026-11-30T11:00:00Z", enqueued_at="2026-11-30T09:59:59.988000Z"
    )


def test_escapes_and_blanks_do_not_matter() -> None:
    """JSON that is written in another way is the same job."""
    plain, escaped = read(job_json(prompt="é😀")), read(json.dumps(job_content(prompt="é😀"), indent=4).encode())
    utf8 = read(json.dumps(job_content(prompt="é😀"), ensure_ascii=False).encode())
    assert isinstance(plain, ValidJob)
    assert plain == escaped == utf8


def test_of_a_name_given_twice_the_last_one_counts() -> None:
    """As every usual JSON reader has it, Redis' own included."""
    result = read(job_with(b'"max_tokens":7,"job_id":"j-2"'))
    assert isinstance(result, ValidJob)
    assert isinstance(result.job, GenerateJob)
    assert (result.job.max_tokens, result.identity.job_id) == (7, "j-2")


def test_the_size_limit_is_the_last_size_that_is_taken() -> None:
    """One byte more is a dead letter, before anything is parsed."""
    raw = job_json()
    assert isinstance(read_job(raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=len(raw)), ValidJob)
    over = read_job(raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=len(raw) - 1)
    assert over == NotAJob(DeadLetterReason.TOO_LARGE)


def test_the_prompt_is_measured_in_bytes_of_utf_8() -> None:
    """At the limit it is taken, one byte over it is not."""
    limits = ModelLimits(max_prompt_bytes=4)
    assert isinstance(read(job_json(prompt="😀"), limits), ValidJob)
    assert message(limits, prompt="é😀") == "The job does not meet the contract: prompt is over 4 bytes."


def test_max_tokens_obeys_the_model() -> None:
    """The model's own limit is named."""
    limits = ModelLimits(max_prompt_bytes=1024, max_tokens_limit=100)
    assert isinstance(read(job_json(max_tokens=100), limits), ValidJob)
    assert message(limits, max_tokens=101) == "The job does not meet the contract: max_tokens is over 100."


def test_parameters_are_those_that_the_model_maps() -> None:
    """A mapped parameter is taken, another is never silently dropped."""
    limits = ModelLimits(max_prompt_bytes=1024, parameters=frozenset({"temperature"}))
    assert isinstance(read(job_json(parameters={"temperature": 0.5}), limits), ValidJob)
    assert (
        message(limits, parameters={"temperature": 0.5, "top_p": 1, "top_k": 2})
        == "The job does not meet the contract: parameter top_k is not supported; parameter top_p is not supported."
    )


def test_a_model_may_take_any_parameter() -> None:
    """Where the configuration passes all of them on."""
    assert isinstance(read(job_json(parameters={"whatever": [1]}), ANY_PARAMETER), ValidJob)


def test_a_model_that_is_not_declared_is_not_supported() -> None:
    """Also where the job names the queue's model."""
    assert rejected(job_json(), limits=None).error.code is ErrorCode.MODEL_NOT_SUPPORTED


def test_what_is_wrong_is_named() -> None:
    """The message names fields, each once, and no value."""
    assert (
        message(prompt=LEFT_OUT, max_tokens="4", metadata={"a": 1, "b": 2})
        == "The job does not meet the contract: prompt is missing; max_tokens is not valid; metadata is not valid."
    )
    assert message(inputs=[]) == "The job does not meet the contract: field inputs is unknown."
    assert message(my_own=1, mine_too=1) == "The job does not meet the contract: a field is unknown."


def test_a_message_has_an_end() -> None:
    """However much is wrong."""
    wrong = dict.fromkeys(full_job_content(job_id=LEFT_OUT, model=LEFT_OUT, stream=LEFT_OUT), 0)
    assert len(message(**wrong).split("; ")) == 5


def test_a_rejected_job_is_echoed_as_far_as_it_is_in_order() -> None:
    """What identifies it for the customer comes back; what does not meet the contract does not."""
    good = {"tenant": "t", "batch_id": "b", "custom_id": "c", "metadata": {"a": "b"}}
    echoed = rejected(job_json(prompt="", **good)).identity
    assert (echoed.tenant, echoed.batch_id, echoed.custom_id, echoed.metadata) == ("t", "b", "c", {"a": "b"})
    bad = {"tenant": 1, "batch_id": "b" * 201, "custom_id": ["c"], "metadata": {"a": 1}}
    dropped = rejected(job_json(**bad)).identity
    assert (dropped.tenant, dropped.batch_id, dropped.custom_id, dropped.metadata) == (None, None, None, {})


@pytest.mark.parametrize("model", ["", "a b", "../model-1", 5, None, LEFT_OUT, "m" * 201])
def test_a_model_that_is_no_name_is_not_echoed(model: Any) -> None:
    """The result then names the queue's."""
    assert rejected(job_json(model=model)).identity.model == MODEL


def test_a_model_of_another_queue_is_echoed() -> None:
    """The customer reads the name that was asked for."""
    assert rejected(job_json(model="acme/model-2")).identity.model == "acme/model-2"


@given(st.binary(max_size=200))
def test_any_bytes_are_read(raw: bytes) -> None:
    """Nothing is raised, and what has no id is a dead letter."""
    assert isinstance(read(raw), NotAJob)


@settings(max_examples=50)
@given(JSON)
def test_any_json_is_read(content: Any) -> None:
    """Nothing is raised, whatever the JSON; Python's NaN and Infinity among it."""
    read(json.dumps(content).encode())


@settings(max_examples=60)
@given(JOBLIKE, st.sampled_from([LIMITS, ANY_PARAMETER, None]))
def test_anything_like_a_job_is_read(content: dict[str, Any], limits: ModelLimits | None) -> None:
    """Nothing is raised, and an id that meets the contract is kept."""
    result = read(json.dumps(content).encode(), limits)
    if not isinstance(result, NotAJob):
        assert result.identity.job_id == content["job_id"]
        assert result.identity.model


CANARY = "sk_live_hunter2"
"""A secret that looks like a name."""


def positions(content: Any) -> list[Any]:
    """Every copy of some JSON with CANARY in the place of one value or one name."""
    found: list[Any] = [CANARY, [CANARY], {CANARY: content}]
    if isinstance(content, dict):
        for name, value in content.items():
            found += [{**content, name: changed} for changed in positions(value)]
            found.append({CANARY if other == name else other: kept for other, kept in content.items()})
    elif isinstance(content, list):
        for index, value in enumerate(content):
            found += [[*content[:index], changed, *content[index + 1 :]] for changed in positions(value)]
    return found


def test_a_secret_does_not_reach_the_message_from_any_place() -> None:
    """Put in the place of any value or name of a job, it is not repeated; nor is a part of it."""
    seen = set()
    wrong = full_job_content(prompt="", parameters={"temperature": 0.7, "stop": ["\n"]}, more={"a": ["b"]})
    for content in positions(wrong):
        for limits in (LIMITS, ANY_PARAMETER, None):
            result = read(json.dumps(content).encode(), limits)
            if isinstance(result, RejectedJob):
                seen.add(result.error.code)
                assert "hunter2" not in result.error.message
                assert "sk_live" not in result.error.message
                assert "hunter2" not in str(result.error)
                assert "hunter2" not in repr(result.error)
    assert seen == {ErrorCode.INVALID_JOB, ErrorCode.MODEL_NOT_SUPPORTED, ErrorCode.STREAMING_NOT_SUPPORTED}


@settings(max_examples=80)
@given(st.text(min_size=1, max_size=40), st.booleans())
def test_a_message_is_made_of_our_own_words(name: str, as_parameter: bool) -> None:
    """A customer's name for something is repeated only where it is a known one."""
    shown = message(parameters={name: 1}) if as_parameter else message(**{f"x_{name}": 1})
    problem = "a field is unknown"
    if as_parameter:
        problem = f"{f'parameter {name}' if name in _SHOWN else 'a parameter'} is not supported"
    assert shown == f"The job does not meet the contract: {problem}."
