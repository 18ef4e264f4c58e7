"""Nothing that a customer or an operator would call secret appears in a log line, an error message or a health key."""

import itertools
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance.delivery import wait_for_health
from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess, models, run
from tests.acceptance.gateway import push, push_jobs, send_task, stock_producer, wait_for_results
from tests.garbage import GARBAGE, WRONG_JOBS
from tests.jobs import job_json
from tests.misbehaving_server import MisbehavingServer, Peer, Received, http
from tests.waiting import wait_until

# Letters that no escaping, cutting or case changes make unrecognisable.
CANARY: Final = f"canary{uuid.uuid4().hex}"
HEADER: Final = f"header{uuid.uuid4().hex}"
PASSWORD: Final = f"passwd{uuid.uuid4().hex}"
SECRETS: Final = (CANARY, HEADER, PASSWORD)


def found_in(text: str) -> list[str]:
    """The secrets that stand in a text, whole or in part."""
    return [secret for secret in SECRETS if secret[6:18] in text]


@pytest.fixture
def secured(valkey: Client) -> Iterator[str]:
    """A user with a password, as a worker's redis_url names it."""
    valkey.acl_setuser("worker", enabled=True, passwords=[f"+{PASSWORD}"], keys="*", channels="*", commands=["+@all"])
    yield f"worker:{PASSWORD}@"
    valkey.acl_deluser("worker")


@pytest.fixture
def worker(fleet: Fleet, redis_url: str, secured: str, tmp_path: Path) -> WorkerProcess:
    """A worker that logs all it can, with secrets wherever a configuration takes them."""
    (tmp_path / "token").write_text(HEADER)
    behind = models(
        canary="text_generation",
        faulty="faulty",
        options={"model_name": "other_names", **OTHER_NAMES},
    )
    return fleet.start(
        redis_url=redis_url.replace("redis://", f"redis://{secured}"),
        runtime_headers={"authorization": f"Bearer {HEADER}", "x-token": f"file:{tmp_path / 'token'}"},
        log_level="debug",
        **behind,
    )


OTHER_NAMES: Final = {
    "input_name": "prompt",
    "max_tokens_input_name": "num_predict",
    "output_name": "generated",
    "prompt_tokens_output_name": "n_in",
    "completion_tokens_output_name": "n_out",
    "constants": {"return_counts": True},
    "options": {"temperature": "heat", "stop": "stop_words"},
}


def everything_wrong(client: Client) -> list[str]:
    """Send jobs that carry the canary wherever a job can carry text, right and wrong; return their ids."""
    carried = {"prompt": f"say {CANARY}", "metadata": {CANARY: CANARY}, "tenant": CANARY, "custom_id": CANARY}
    push_jobs(client, "echoed", model="acme/canary", **carried)
    faults = ("raise", "error=INVALID_ARG", "both:absent", "text_output:two", "text_output:bytes=99", "error=INTERNAL")
    for n, fault in enumerate(faults):
        push_jobs(client, f"fault-{n}", model="acme/faulty", **{**carried, "prompt": f"{fault} {CANARY}"})
    wrong: dict[str, dict[str, Any]] = {
        "unknown-key": {CANARY: CANARY},
        "parameter-key": {"parameters": {CANARY: 1}},
        "parameter-value": {"parameters": {"temperature": CANARY}},
        "prompt-list": {"prompt": [CANARY]},
        "model-name": {"model": CANARY},
        "expires": {"expires_at": CANARY},
        "traceparent": {"traceparent": CANARY},
        "max-tokens": {"max_tokens": CANARY},
        "stream": {"stream": CANARY},
        "version": {"version": CANARY},
        "metadata-value": {"metadata": {"a": {"b": CANARY}}},
    }
    for job_id, fields in wrong.items():
        push(client, job_json(**{"job_id": job_id, "model": "acme/canary", **fields}), queue=KEYS.jobs("acme/canary"))
    push_jobs(client, "option-type", model="acme/options", prompt=CANARY, parameters={"temperature": CANARY})
    push_jobs(client, "option-good", model="acme/options", prompt=CANARY, parameters={"stop": [CANARY]})
    queue = KEYS.jobs("acme/canary")
    push(client, CANARY.encode(), f'{{"{CANARY}":1}}'.encode(), f'"{CANARY}"'.encode(), queue=queue)
    push(client, job_json(job_id=f"{CANARY} no id"), f'{{"job_id":"x","prompt":"{CANARY}'.encode(), queue=queue)
    push(client, *(garbage.raw + CANARY.encode() for garbage in GARBAGE[:20]), queue=queue)
    return ["echoed", "option-type", "option-good", *wrong, *(f"fault-{n}" for n in range(len(faults)))]


def test_no_prompt_text_or_secret_is_in_a_log_line_an_error_message_or_a_health_key(
    worker: WorkerProcess, valkey: Client, redis_url: str
) -> None:
    """At debug level, over good and wrong jobs, every kind of failure, remote control and a stop: no canary sings."""
    job_ids = everything_wrong(valkey)
    with stock_producer(redis_url) as producer:
        send_task(producer, "by-celery", model="acme/canary", prompt=CANARY)
        producer.send_task(
            "speedinfer.generate", args=[CANARY], kwargs={"a": CANARY}, queue=KEYS.jobs("acme/canary"), shadow=CANARY
        )
        results = wait_for_results(valkey, "by-celery", *job_ids, timeout=30)
        for wrong in WRONG_JOBS:
            push(valkey, wrong.raw.replace(b"Hello", CANARY.encode()), queue=KEYS.jobs("acme/canary"))
        wait_for_results(valkey, *(wrong.job_id for wrong in WRONG_JOBS))
    worker.wait_for_beats(2)
    health = json.dumps(wait_for_health(worker))
    assert worker.stop() == 0

    log = worker.log.read_text()
    assert found_in(log) == []
    assert found_in(health) == []
    messages = {job_id: result.error.message for job_id, result in results.items() if result.error}
    assert {job_id: found for job_id, message in messages.items() if (found := found_in(message))} == {}
    # What was looked for did go through: the text that the gateway gets has it, and the log has those jobs.
    assert CANARY in str(results["echoed"].text)
    assert CANARY in str(results["option-good"].text)
    assert {event["job_id"] for event in worker.events("job.settled")} >= {*job_ids, "by-celery"}


@pytest.mark.leaves("waiting")
def test_what_a_misbehaving_server_says_is_in_no_log_line(fleet: Fleet, valkey: Client) -> None:
    """Bodies, statuses, headers and reason phrases of an answer are upstream text, in success and failure."""
    said = [
        http(500, json.dumps({"error": CANARY}).encode()),
        http(400, CANARY.encode(), "text/plain"),
        http(200, CANARY.encode()),
        http(302, b"", headers={"Location": f"http://{CANARY}.example/"}),
        b"HTTP/1.1 200 " + CANARY.encode() + b"\r\nContent-Length: x" + CANARY.encode() + b"\r\n\r\n",
        CANARY.encode() + b"\r\n\r\n",
    ]
    turns = itertools.count()
    given: set[bytes] = set()

    def behave(peer: Peer, _: Received) -> None:
        answer = said[next(turns) % len(said)]
        peer.send(answer)
        given.add(answer)

    with MisbehavingServer(behave) as server:
        worker = fleet.start(runtime_endpoint=server.url, log_level="debug", until=())
        push_jobs(valkey, *(f"j-{n}" for n in range(6)), prompt=CANARY)
        wait_until(lambda: given == set(said), description="each of the answers was given")
        worker.wait_for_beats(2)
        health = json.dumps(wait_for_health(worker))
        worker.stop()

    assert found_in(worker.log.read_text()) == []
    assert found_in(health) == []


def test_wrong_configuration_shows_no_secret(fleet: Fleet) -> None:
    """Commands that fail on a configuration, or on what it names, do not repeat its secrets, with --debug either."""
    config = fleet.configuration(
        redis_url=f"redis://:{PASSWORD}@127.0.0.1:1/0",
        runtime_endpoint="http://127.0.0.1:1",
        runtime_headers={"authorization": f"Bearer {HEADER}"},
    )
    good = fleet.write(config)
    bad = fleet.write({**config, "runtime_headers": {"bad name": HEADER}, "redis_url": f"http://:{PASSWORD}@x"})
    for path, code in ((good, 3), (bad, 2)):
        for options in ((), ("--debug",)):
            ended = run("speedinfer", "check", "--config", str(path), *options)
            assert ended.code == code, ended
            assert found_in(ended.out + ended.err) == []
