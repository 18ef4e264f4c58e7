"""What a worker may find in a queue besides jobs that it can run, and what has to become of each.

GARBAGE has no job_id to settle under, and becomes a dead letter byte for byte; WRONG_JOBS have one, and are settled as
failed with a code. Both hold for the queue of MODEL under the default limits, of a worker that maps no parameter.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from tasks.errors import ErrorCode
from tasks.reading import DeadLetterReason
from tests.jobs import LEFT_OUT, MAX_JOB_BYTES, MAX_PROMPT_BYTES, TRACEPARENT, job_content, job_json, job_with


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that cannot become a job."""

    name: str
    raw: bytes
    reason: DeadLetterReason


@dataclass(frozen=True, slots=True)
class WrongJob:
    """A job that has an id and may not be run."""

    name: str
    raw: bytes
    code: ErrorCode

    @property
    def job_id(self) -> str:
        """The id that it is settled under; each has its own."""
        return _job_id(self.name)


_CUT_OFF: Final = job_json()[:-9]
_NOT_JSON: Final[dict[str, bytes]] = {
    "nothing": b"",
    "blanks": b" \n\t",
    "a word": b"hello",
    "binary": bytes(range(256)),
    "zero bytes": b"\0" * 64,
    "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.",
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00C\xbf\xa6\xa3\x02\x00\x00\x00",
    "XML": b"<job><job_id>j-1</job_id></job>",
    "a Python dict": str(job_content()).encode(),
    "a job cut off": _CUT_OFF,
    "a job with a byte order mark": b"\xef\xbb\xbf" + job_json(),
    "a job in UTF-16": job_json().decode().encode("utf-16"),
    "a job and something after it": job_json() + b"x",
    "two jobs": job_json() + b"\n" + job_json(),
    "a job with a trailing comma": job_json()[:-1] + b",}",
    "a job with a comment": job_json()[:-1] + b"/* hello */}",
    "invalid UTF-8 in a job": job_with(b'"tenant":"\xff\xfe"'),
    "an overlong UTF-8 form in a job": job_with(b'"tenant":"\xc0\xaf"'),
    "half of a surrogate pair in a job": job_with(b'"tenant":"\\ud83d"'),
    "half of a surrogate pair as a name": job_with(b'"\\udc00":1'),
    "NaN in a job": job_with(b'"parameters":{"temperature":NaN}'),
    "Infinity in a job": job_with(b'"parameters":{"temperature":-Infinity}'),
    "a bare control character in a job": job_with(b'"tenant":"a\x01b"'),
    "a number with a leading zero in a job": job_with(b'"version":01'),
    "a number of too many digits": job_with(b'"version":' + b"9" * 5000),
    "arrays nested without end": b"[" * 100_000,
    "objects nested too deep": job_with(b'"parameters":' + b'{"a":' * 5000 + b"1" + b"}" * 5001),
}
_NO_OBJECT: Final[dict[str, bytes]] = {
    "null": b"null",
    "true": b"true",
    "a number": b"42",
    "a string": b'"hello"',
    "a job as a string": json.dumps(job_json().decode()).encode(),
    "an empty array": b"[]",
    "a job in an array": b"[" + job_json() + b"]",
}
_NO_ID: Final[dict[str, Any]] = {
    "an empty object": b"{}",
    "a job without an id": job_json(job_id=LEFT_OUT),
    "a job in an object": json.dumps({"job": job_content()}).encode(),
    "an id of null": job_json(job_id=None),
    "a number as id": job_json(job_id=1),
    "an object as id": job_json(job_id={"id": "j-1"}),
    "an empty id": job_json(job_id=""),
    "an id with a space": job_json(job_id="j 1"),
    "an id with a line feed at its end": job_json(job_id="j-1\n"),
    "an id with a slash": job_json(job_id="../j-1"),
    "an id with a zero byte": job_json(job_id="j\0001"),
    "an id with digits of another script": job_json(job_id="j-١"),
    "an id of 129": job_json(job_id="j" * 129),
    "a good id hidden by a bad one": job_with(b'"job_id":7'),
}
_TOO_LARGE: Final[dict[str, bytes]] = {
    "more bytes than a job may have": b"x" * (MAX_JOB_BYTES + 1),
    "a job with more bytes than a job may have": job_json(metadata={"padding": "x" * MAX_JOB_BYTES}),
}

GARBAGE: Final[tuple[Garbage, ...]] = tuple(
    Garbage(name, raw, reason)
    for reason, kinds in (
        (DeadLetterReason.NOT_JSON, _NOT_JSON),
        (DeadLetterReason.NOT_AN_OBJECT, _NO_OBJECT),
        (DeadLetterReason.NO_JOB_ID, _NO_ID),
        (DeadLetterReason.TOO_LARGE, _TOO_LARGE),
    )
    for name, raw in kinds.items()
)


def _job_id(name: str) -> str:
    return "wrong-" + "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)


_INVALID: Final[dict[str, dict[str, Any]]] = {
    "no prompt": {"prompt": LEFT_OUT},
    "an empty prompt": {"prompt": ""},
    "a prompt of null": {"prompt": None},
    "a number as prompt": {"prompt": 7},
    "a list as prompt": {"prompt": ["Hello"]},
    "chat messages instead of a prompt": {"prompt": LEFT_OUT, "messages": [{"role": "user", "content": "Hello"}]},
    "a prompt of too many bytes": {"prompt": "x" * (MAX_PROMPT_BYTES + 1)},
    "a prompt of few characters and too many bytes": {"prompt": "😀" * (MAX_PROMPT_BYTES // 4 + 1)},
    "no max_tokens": {"max_tokens": LEFT_OUT},
    "max_tokens of null": {"max_tokens": None},
    "max_tokens of 0": {"max_tokens": 0},
    "negative max_tokens": {"max_tokens": -1},
    "max_tokens as a string": {"max_tokens": "4"},
    "max_tokens of true": {"max_tokens": True},
    "max_tokens as a float": {"max_tokens": 4.0},
    "max_tokens of more than 32 bits": {"max_tokens": 2**31},
    "max_tokens of a thousand digits": {"max_tokens": 10**1000},
    "no model": {"model": LEFT_OUT},
    "a model of null": {"model": None},
    "an unknown field": {"surprise": 1},
    "a field in another case": {"Prompt": "Hello"},
    "inputs of a tensor job": {"inputs": []},
    "parameters as a list": {"parameters": []},
    "a parameter that is not mapped": {"parameters": {"temperature": 0.7}},
    "a parameter without a name": {"parameters": {"": 1}},
    "an expiry without an offset": {"expires_at": "2099-01-01T00:00:00"},
    "an expiry as a number": {"expires_at": 4_070_908_800},
    "an expiry that is no date": {"expires_at": "2099-02-30T00:00:00Z"},
    "a long tenant": {"tenant": "t" * 201},
    "a number as tenant": {"tenant": 5},
    "a long batch_id": {"batch_id": "b" * 201},
    "a number as custom_id": {"custom_id": 5},
    "metadata with a number": {"metadata": {"a": 1}},
    "metadata with too many entries": {"metadata": {str(n): "" for n in range(17)}},
    "metadata with too many bytes": {"metadata": {"a": "é" * 2048}},
    "an enqueued_at in words": {"enqueued_at": "now"},
    "a traceparent of zeros": {"traceparent": f"00-{'0' * 32}-{'0' * 16}-00"},
    "a traceparent in capitals": {"traceparent": TRACEPARENT.upper()},
    "another version": {"version": 2},
    "a version of true": {"version": True},
}
_ANOTHER_MODEL: Final[dict[str, dict[str, Any]]] = {
    "another queue's model": {"model": "acme/model-2"},
    "an empty model": {"model": ""},
    "a model that climbs": {"model": "../model-1"},
    "the model in another case": {"model": "ACME/model-1"},
    "the model with a space after it": {"model": "acme/model-1 "},
}
_STREAMING: Final[dict[str, dict[str, Any]]] = {
    "stream": {"stream": True},
    "stream as a string": {"stream": "false"},
    "stream as 0": {"stream": 0},
    "stream of null": {"stream": None},
    "stream of another queue's model": {"stream": True, "model": "acme/model-2"},
}
_NUMBERS_JSON_CAN_HOLD_AND_NOBODY_CAN_USE: Final[dict[str, bytes]] = {
    "a parameter beyond every float": b'"parameters":{"temperature":1e400}',
    "max_tokens beyond every float": b'"max_tokens":1e400',
    "max_tokens twice and the last one wrong": b'"max_tokens":0',
}

WRONG_JOBS: Final[tuple[WrongJob, ...]] = (
    *(
        WrongJob(name, job_json(job_id=_job_id(name), **changes), code)
        for code, kinds in (
            (ErrorCode.INVALID_JOB, _INVALID),
            (ErrorCode.MODEL_NOT_SUPPORTED, _ANOTHER_MODEL),
            (ErrorCode.STREAMING_NOT_SUPPORTED, _STREAMING),
        )
        for name, changes in kinds.items()
    ),
    *(
        WrongJob(name, job_with(members, job_id=_job_id(name)), ErrorCode.INVALID_JOB)
        for name, members in _NUMBERS_JSON_CAN_HOLD_AND_NOBODY_CAN_USE.items()
    ),
)
