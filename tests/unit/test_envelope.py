"""Jobs in Celery messages, and in JSON that the claim script could not read: each is opened, refused or left as it stands."""

import base64
import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery, chain, signature
from hypothesis import given
from hypothesis import strategies as st

from tasks import rfc3339
from tasks.errors import InvalidJob
from tasks.fingerprint import fingerprint_of
from tasks.reading import DeadLetterReason, NotAJob, RejectedJob, ValidJob, read_job
from tests.garbage import GARBAGE, WRONG_JOBS
from tests.jobs import LIMITS, MAX_JOB_BYTES, MODEL, full_job_content, job_content, job_json
from worker.envelope import Readable, read_envelope

TASK = "speedinfer.generate"
BAD = NotAJob(DeadLetterReason.BAD_ENVELOPE)
NO_ID = NotAJob(DeadLetterReason.NO_JOB_ID)


def opened(raw: bytes) -> Readable | NotAJob | None:
    """Open under the default limit."""
    return read_envelope(raw, MAX_JOB_BYTES)


def job_in(raw: bytes) -> Any:
    """Return the job that a message was opened to."""
    found = opened(raw)
    assert isinstance(found, Readable), found
    return json.loads(found.raw)


def message(body: Any = None, *, headers: Any = None, properties: Any = None, **fields: Any) -> bytes:
    """Return the smallest message that a producer may send, with these parts in place of its own."""
    content = {
        "body": json.dumps([[job_content()], {}, {}]) if body is None else body,
        "content-type": "application/json",
        "headers": {"task": TASK} if headers is None else headers,
        "properties": {} if properties is None else properties,
    }
    return json.dumps({**content, **fields}).encode()


def body_of(args: Any, kwargs: Any = None, embed: Any = None) -> str:
    """Return a body with these arguments."""
    return json.dumps([args, {} if kwargs is None else kwargs, {} if embed is None else embed])


def queued(connection: Any) -> bytes:
    """Return the bytes that stand in the queue of an in-memory connection."""
    return json.dumps(connection.default_channel._get("jobs")).encode()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Producer:
    """A stock Celery application whose messages stay in this process."""

    def __init__(self) -> None:
        self.app = Celery("producer", broker="memory://", set_as_current=False)

    def sent(self, args: Any = None, kwargs: Any = None, **options: Any) -> bytes:
        """Return the bytes that stand in the queue after the task was sent."""
        with self.app.connection_for_write() as connection:
            arguments = [job_content()] if args is None else args
            self.app.send_task(TASK, arguments, kwargs, queue="jobs", connection=connection, **options)
            return queued(connection)


@pytest.fixture(scope="module")
def producer() -> Producer:
    """A stock Celery producer."""
    return Producer()


class TestStockMessages:
    """What Celery's own producer makes of a call."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"priority": 9},
            {"task_id": "mine"},
            {"retries": 2},
            {"headers": {"mine": {"a": [1]}}},
            {"ignore_result": True},
            {"shadow": "another name"},
            {"argsrepr": "hidden", "kwargsrepr": "hidden"},
            {"group_id": "g", "group_index": 1},
            {"root_id": "r", "parent_id": "p"},
        ],
        ids=repr,
    )
    def test_a_plain_call_is_opened(self, producer: Producer, options: dict[str, Any]) -> None:
        """Whatever else Celery writes into it."""
        assert job_in(producer.sent([full_job_content()], **options)) == full_job_content()

    @pytest.mark.parametrize(
        "wish",
        [
            {"countdown": 10},
            {"eta": datetime(2030, 1, 1, tzinfo=UTC)},
            {"expires": 60},
            {"expires": datetime(2030, 1, 1, tzinfo=UTC)},
            {"link": signature("other")},
            {"link_error": signature("other")},
            {"chain": [signature("other")]},
            {"chord": signature("other")},
            {"time_limit": 5},
            {"soft_time_limit": 5},
            {"compression": "zlib"},
            {"serializer": "yaml"},
            {"serializer": "pickle"},
            {"kwargs": {"a": 1}},
            {"args": []},
            {"args": [job_content(), 1]},
            {"args": [json.dumps(job_content())]},
            {"args": [None]},
            {"stamps": {"a": "b"}},
        ],
        ids=lambda wish: next(iter(wish)),
    )
    def test_a_wish_that_no_job_can_have_is_refused(self, producer: Producer, wish: dict[str, Any]) -> None:
        """Whole: without it the job would run in a way its producer did not ask for."""
        if "stamps" in wish:
            wish = {"headers": {"stamps": wish["stamps"], "stamped_headers": ["a"]}}
        assert opened(producer.sent(**wish)) == BAD

    def test_another_task_is_refused(self) -> None:
        """A queue of jobs holds nothing else."""
        app = Celery("producer", broker="memory://", set_as_current=False)
        with app.connection_for_write() as connection:
            app.send_task("other.task", args=[job_content()], queue="jobs", connection=connection)
            raw = queued(connection)
        assert opened(raw) == BAD

    def test_protocol_1_is_refused(self) -> None:
        """Its task's name is in the body."""
        app = Celery("producer", broker="memory://", set_as_current=False)
        app.conf.task_protocol = 1
        with app.connection_for_write() as connection:
            app.send_task(TASK, args=[job_content()], queue="jobs", connection=connection)
            raw = queued(connection)
        assert opened(raw) == BAD

    def test_a_chain_is_refused(self, producer: Producer) -> None:
        """Its first task carries what is to follow."""
        first = signature(TASK, args=[job_content()], queue="jobs", app=producer.app)
        with producer.app.connection_for_write() as connection:
            chain(first, signature("other", app=producer.app), app=producer.app).apply_async(connection=connection)
            raw = queued(connection)
        assert opened(raw) == BAD


class TestSmallMessages:
    """What any language can write."""

    def test_the_smallest_one_is_opened(self) -> None:
        """Task, content type and a body; no id, no tag, no address is needed."""
        assert job_in(message()) == job_content()

    def test_a_base64_body_is_opened(self) -> None:
        """As kombu writes it."""
        body = base64.b64encode(body_of([job_content()]).encode()).decode()
        assert job_in(message(body, properties={"body_encoding": "base64"})) == job_content()

    @pytest.mark.parametrize("nothing", [None, "", [], {}, [None, None]], ids=repr)
    @pytest.mark.parametrize("wish", ["eta", "expires", "compression", "timelimit", "stamps"])
    def test_a_wish_for_nothing_is_no_wish(self, wish: str, nothing: object) -> None:
        """Celery writes null, or nulls, where nothing was asked for."""
        assert job_in(message(headers={"task": TASK, wish: nothing})) == job_content()

    @pytest.mark.parametrize("wish", ["eta", "expires", "compression", "timelimit", "stamps"])
    @pytest.mark.parametrize(
        "something", ["2030-01-01", 5, 0, False, True, [None, 1], {"a": None}, [0, None]], ids=repr
    )
    def test_anything_else_is_one(self, wish: str, something: object) -> None:
        """Whether Celery would understand it or not."""
        assert opened(message(headers={"task": TASK, wish: something})) == BAD

    @pytest.mark.parametrize("follow_up", ["callbacks", "errbacks", "chain", "chord"])
    def test_a_follow_up_is_refused(self, follow_up: str) -> None:
        """Nothing follows a job but its settlement."""
        assert job_in(message(body_of([job_content()], {}, {follow_up: None}))) == job_content()
        assert job_in(message(body_of([job_content()], {}, {follow_up: []}))) == job_content()
        assert opened(message(body_of([job_content()], {}, {follow_up: [{"task": "other"}]}))) == BAD

    @pytest.mark.parametrize(
        "raw",
        [
            message(**{"content-type": "application/x-yaml"}),
            message(**{"content-type": None}),
            message(**{"content-type": ["application/json"]}),
            message(headers=[]),
            message(headers="speedinfer.generate"),
            message(headers={}),
            message(headers={"task": None}),
            message(headers={"task": [TASK]}),
            message(properties=[]),
            message(properties="x"),
            message(body=1),
            message(body=[[job_content()], {}, {}]),
            message(body=""),
            message(body="not JSON"),
            message(body="{}"),
            message(body="[]"),
            message(body=json.dumps([[job_content()]])),
            message(body=json.dumps([[job_content()], {}])),
            message(body=json.dumps([[job_content()], {}, {}, {}])),
            message(body=json.dumps([[job_content()], [], {}])),
            message(body=json.dumps([[job_content()], None, {}])),
            message(body=json.dumps([[job_content()], {}, []])),
            message(body=json.dumps([job_content(), {}, {}])),
            message(body=json.dumps([{"0": job_content()}, {}, {}])),
            message(body=body_of([[job_content()]])),
            message(body="[[NaN],{},{}]"),
            message(body='[[{"job_id":"j-1","prompt":NaN}],{},{}]'),
            message(body='[[{"job_id":"j-1"}],{},{}] '.strip() + "x"),
            message(body="not base64", properties={"body_encoding": "base64"}),
            message(body=_base64(body_of([job_content()])).replace("=", "!="), properties={"body_encoding": "base64"}),
            message(body="/w==", properties={"body_encoding": "base64"}),
            message(body="é", properties={"body_encoding": "base64"}),
            message(
                body=base64.b64encode(zlib.compress(body_of([job_content()]).encode())).decode(),
                properties={"body_encoding": "base64"},
            ),
            json.dumps({"body": body_of([job_content()]), "headers": {"task": TASK}}).encode(),
            json.dumps({"body": body_of([job_content()]), "properties": {}}).encode(),
        ],
    )
    def test_a_message_that_is_not_as_celery_says_is_refused(self, raw: bytes) -> None:
        """Nothing is guessed."""
        assert opened(raw) == BAD

    @pytest.mark.parametrize(
        "job", [{}, {"job_id": None}, {"job_id": 1}, {"job_id": ""}, {"job_id": "a b"}, {"job_id": "j" * 129}], ids=repr
    )
    def test_a_job_without_an_id_cannot_be_settled(self, job: dict[str, Any]) -> None:
        """So its message is a dead letter, as its bytes would be."""
        assert opened(message(body_of([job]))) == NO_ID

    def test_one_that_is_too_large_is_left_as_it_stands(self) -> None:
        """The bound is of the whole message, unread."""
        raw = message()
        assert read_envelope(raw, len(raw) - 1) is None
        assert isinstance(read_envelope(raw, len(raw)), Readable)


class TestTimes:
    """What the ledger must know of a job in a message."""

    def test_times_are_unix_milliseconds(self) -> None:
        """With any offset, rounded down."""
        job = job_content(expires_at="2026-11-30T12:00:00.1239+02:00", enqueued_at="2026-11-30T10:00:00Z")
        found = opened(message(body_of([job])))
        assert isinstance(found, Readable)
        assert (found.expires_ms, found.enqueued_ms) == (1_796_032_800_123, 1_796_032_800_000)

    @pytest.mark.parametrize(
        "value", [None, 0, 1_796_032_800, True, "", "tomorrow", "2026-02-30T00:00:00Z", [], {}], ids=repr
    )
    def test_what_is_no_time_is_left_to_the_task(self, value: object) -> None:
        """It settles the job as invalid; here it is as if there were none."""
        found = opened(message(body_of([job_content(expires_at=value, enqueued_at=value)])))
        assert isinstance(found, Readable)
        assert (found.expires_ms, found.enqueued_ms) == (None, None)


class TestTheJobsOwnText:
    """A job in a message is judged as if it had come bare."""

    @pytest.mark.parametrize(
        "encode", [lambda body: (body, {}), lambda body: (_base64(body), {"body_encoding": "base64"})]
    )
    @pytest.mark.parametrize(
        "text",
        [
            '{"job_id":"j-1","model":"acme/model-1","prompt":"Hello","max_tokens":1e400}',
            '{"job_id":"j-1","model":"acme/model-1","prompt":"Hello","max_tokens":4,"parameters":{"temperature":-1e400}}',
            '{"job_id":"j-1","model":"acme/model-1","prompt":"Infinity","max_tokens":4,"parameters":{"a":[1e999]}}',
        ],
    )
    def test_a_number_beyond_every_float_is_an_invalid_job(
        self, text: str, encode: Callable[[str], tuple[str, dict[str, str]]]
    ) -> None:
        """Not a dead letter: it has an id to settle under."""
        body, properties = encode(f"[[{text}],{{}},{{}}]")
        found = opened(message(body, properties=properties))
        assert isinstance(found, Readable)
        read = read_job(found.raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
        assert isinstance(read, RejectedJob)
        assert isinstance(read.error, InvalidJob)

    @pytest.mark.parametrize(
        "text",
        [
            '{ "job_id" : "j-1" , "prompt":"}]{[\\"\\u00e9\\ud83d\\ude00é😀" }',
            '{"job_id":"other","job_id":"j-1"}',
            '{"job\\u005fid":"j-1"}',
            '{"job_id":"j-1","a":123456789012345678901234567890,"b":0.10000000000000000001,"c":-0.0,"d":1E+2}',
            '{"job_id":"j-1","a":{"b":[{"c":[[],{}]}]}}',
        ],
    )
    @pytest.mark.parametrize("around", ["[[{}],{{}},{{}}]", ' \n[\t[ {} ] , {{ }} , {{"chain":null}} ]\r\n'])
    def test_it_is_kept_to_the_letter(self, text: str, around: str) -> None:
        """Blanks, digits, escapes and doubled names included."""
        found = opened(message(around.format(text)))
        assert isinstance(found, Readable)
        assert found.raw == text.encode()
        assert found.job_id == "j-1"

    @pytest.mark.parametrize("wrong", WRONG_JOBS, ids=lambda wrong: wrong.name)
    def test_wrong_jobs_are_as_wrong_in_a_message(self, wrong: Any) -> None:
        """The same code, under the same id."""
        found = opened(message(f"[[{wrong.raw.decode()}],{{}},{{}}]"))
        assert isinstance(found, Readable)
        read = read_job(found.raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
        assert isinstance(read, RejectedJob)
        assert read.error.code is wrong.code
        assert read.identity.job_id == wrong.job_id


class TestWhatIsNoMessage:
    """Bare jobs in JSON that the claim script could not read, and garbage."""

    def test_a_bare_job_is_read(self) -> None:
        """Bytes unchanged."""
        raw = b' {"prompt":"\\u0000","job_id":"j-1"}'
        assert opened(raw) == Readable(raw, "j-1", fingerprint_of(raw) or "", None, None)

    def test_a_job_with_fields_of_a_message_is_a_job(self) -> None:
        """Its id says so; the task refuses its unknown fields by name."""
        raw = message(job_id="j-1")
        assert opened(raw) == Readable(raw, "j-1", fingerprint_of(raw) or "", None, None)

    @pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: garbage.name)
    def test_garbage_is_left_as_it_stands(self, garbage: Any) -> None:
        """One function tells what all of it becomes."""
        assert opened(garbage.raw) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PART = JSON | st.just(TASK) | st.just("application/json") | st.just(body_of([job_content()]))
FIELDS = st.sampled_from(["body", "headers", "properties", "content-type", "job_id", "task", "body_encoding", "eta"])


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_nothing_raises(raw: bytes) -> None:
    """Whatever is in a queue."""
    assert isinstance(opened(raw), Readable | NotAJob | None)


@given(st.dictionaries(FIELDS, PART | st.dictionaries(FIELDS, PART), max_size=6))
def test_nothing_like_a_message_raises(content: dict[str, Any]) -> None:
    """However close to one."""
    assert isinstance(opened(json.dumps(content).encode()), Readable | NotAJob | None)


@given(JSON, JSON, JSON, st.booleans())
def test_no_arguments_raise(args: Any, kwargs: Any, embed: Any, packed: bool) -> None:
    """In either encoding, with or without surrogates, NaN and depth."""
    body = body_of(args, kwargs, embed)
    found = opened(message(_base64(body) if packed else body, properties={"body_encoding": "base64"} if packed else {}))
    assert isinstance(found, Readable | NotAJob)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_a_job_in_a_message_is_what_it_is_bare(fields: dict[str, Any]) -> None:
    """Any JSON object with an id: the same identity, the same verdict, to the same fingerprint."""
    raw = json.dumps({**fields, "job_id": "j-1"}).encode()
    bare = read_job(raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
    found = opened(message(f"[[{raw.decode()}],{{}},{{}}]"))
    if isinstance(bare, NotAJob):
        assert found == BAD
        return
    assert isinstance(found, Readable)
    packed = read_job(found.raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
    assert isinstance(packed, ValidJob | RejectedJob)
    assert packed.identity == bare.identity


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001 - of any zone
def test_any_time_is_read(moment: datetime) -> None:
    """Of any year that a date can have."""
    text = moment.replace(tzinfo=UTC).isoformat()
    found = opened(job_json(expires_at=text))
    assert isinstance(found, Readable)
    assert found.expires_ms == rfc3339.to_ms(rfc3339.parse(text))
