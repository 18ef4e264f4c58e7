"""The fingerprint: what tells a job sent again from another job under its id."""

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.fingerprint import fingerprint
from tasks.reading import RejectedJob, ValidJob, read_job
from tests.jobs import LEFT_OUT, LIMITS, MAX_JOB_BYTES, MODEL, TRACEPARENT, changed, full_job_content, job_json

WHAT_MAY_DIFFER = {
    "enqueued_at": (LEFT_OUT, None, "2026-11-30T12:00:00Z", "nonsense", 5),
    "traceparent": (LEFT_OUT, None, TRACEPARENT.replace("b7", "b8"), ["x"]),
    "metadata": (LEFT_OUT, {}, {"another": "one"}, {"a": 1}, None),
}
WHAT_MAY_NOT: dict[str, tuple[Any, ...]] = {
    "job_id": ("j-2",),
    "model": ("acme/model-2", LEFT_OUT),
    "prompt": ("Hello ", "hello", "", LEFT_OUT),
    "max_tokens": (33, "32", 32.0, True, LEFT_OUT),
    "parameters": ({}, {"temperature": 0.8, "stop": ["\n"], "seed": 7}, {"temperature": 0.7}, LEFT_OUT),
    "stream": (True, LEFT_OUT),
    "expires_at": ("2026-11-30T11:00:01Z", None, LEFT_OUT),
    "tenant": ("tenant-2", None, LEFT_OUT),
    "batch_id": ("batch-2", None, LEFT_OUT),
    "custom_id": ("custom-2", None, LEFT_OUT),
    "version": (2, LEFT_OUT),
    "more": (None, 1),
}


def shuffled(content: Any, order: random.Random) -> Any:
    """The same JSON with the names of every object in another order."""
    if isinstance(content, dict):
        names = list(content)
        order.shuffle(names)
        return {name: shuffled(content[name], order) for name in names}
    return [shuffled(item, order) for item in content] if isinstance(content, list) else content


def rows(table: dict[str, tuple[Any, ...]]) -> list[tuple[str, Any]]:
    """Every row of a table."""
    return [(name, value) for name, values in table.items() for value in values]


def test_the_tables_leave_no_field_out() -> None:
    """Each field of a job stands in one of them."""
    assert {*WHAT_MAY_DIFFER, *WHAT_MAY_NOT} == {*full_job_content(), "more"}


@pytest.mark.parametrize(("field", "value"), rows(WHAT_MAY_DIFFER))
def test_a_job_sent_again_keeps_its_fingerprint(field: str, value: Any) -> None:
    """What belongs to the sending, not to the job, may differ."""
    assert fingerprint(changed(full_job_content(), {field: value})) == fingerprint(full_job_content())


@pytest.mark.parametrize(("field", "value"), rows(WHAT_MAY_NOT))
def test_another_job_under_the_same_id_shows(field: str, value: Any) -> None:
    """Any other difference is another job."""
    assert fingerprint(changed(full_job_content(), {field: value})) != fingerprint(full_job_content())


@settings(max_examples=50)
@given(st.randoms(use_true_random=False))
def test_the_order_of_names_does_not_matter(order: random.Random) -> None:
    """At no depth."""
    content = full_job_content(parameters={"a": {"x": 1, "y": 2, "z": [{"p": 1, "q": 2}]}, "b": 2, "c": 3})
    assert fingerprint(shuffled(content, order)) == fingerprint(content)


@settings(max_examples=50)
@given(st.lists(st.text(max_size=3), min_size=2, max_size=2, unique=True))
def test_different_prompts_differ(prompts: list[str]) -> None:
    """Byte for byte."""
    one, other = (fingerprint(full_job_content(prompt=prompt)) for prompt in prompts)
    assert one != other


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5), st.text(alphabet=st.characters(max_codepoint=0x90)))
def test_it_is_the_digest_of_the_content_as_plain_json(content: dict[str, Any], prompt: str) -> None:
    """Whatever a later version does to be quick: names in order, no spaces, all but printable ASCII escaped."""
    content = {**content, "prompt": prompt}
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert fingerprint(content) == hashlib.sha256(plain.encode()).hexdigest()[:32]


def test_it_is_the_same_on_every_worker() -> None:
    """It is stored: a later version must find what an earlier one wrote."""
    assert fingerprint(full_job_content()) == "b5257a6934853a798efa6fa7d56e2810"


def test_jobs_carry_it_also_when_rejected() -> None:
    """A wrong job is settled once too."""
    results = [
        read_job(raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
        for raw in (job_json(), job_json(prompt=""))
    ]
    for result, raw in zip(results, (job_json(), job_json(prompt="")), strict=True):
        assert isinstance(result, ValidJob | RejectedJob)
        assert result.identity.fingerprint == fingerprint(json.loads(raw))
