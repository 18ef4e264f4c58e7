"""``speedinfer submit`` against a real Valkey."""

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
import redis

from tasks import rfc3339
from tasks.job import GenerateJob
from tests.integration.command import lines, objects, run
from tests.integration.settled import FAILED, settle
from tests.waiting import wait_until
from worker.fleet import redis_time_ms
from worker.keys import Keys

KEYS = Keys("speedinfer")
QUEUE = "speedinfer:jobs:acme/model-1"
HELLO = ("submit", "Hello", "--model", "acme/model-1")


def queued(client: redis.Redis) -> list[dict[str, Any]]:
    """The jobs in the queue, the next one first."""
    return [json.loads(raw) for raw in reversed(client.lrange(QUEUE, 0, -1))]


def settle_when_queued(client: redis.Redis, **fields: Any) -> threading.Thread:
    """Settle the one job that is going to be in the queue, as a worker would."""

    def work() -> None:
        wait_until(lambda: client.llen(QUEUE), description="the job is in its queue")
        (content,) = queued(client)
        settle(client, GenerateJob.model_validate(content), **fields)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_job_is_put_into_its_models_queue(valkey: redis.Redis, redis_url: str) -> None:
    """Every option is a field of the job, and the answer says where it is."""
    options = [
        *("--max-tokens", "9", "--job-id", "j-1", "--tenant", "t", "--batch-id", "b", "--custom-id", "c"),
        *("--metadata", "a=b=c", "-p", "temperature=0.2", "-p", 'stop=["."]', "-p", "mode=fast"),
    ]
    (said,) = objects(run(*HELLO, *options, "--redis-url", redis_url))
    (job,) = queued(valkey)
    enqueued_ms = rfc3339.to_ms(rfc3339.parse(job.pop("enqueued_at")))
    assert said == {"job_id": "j-1", "queue": QUEUE, "queue_length": 1}
    assert abs(redis_time_ms(valkey) - enqueued_ms) < 5000
    assert job == {
        "job_id": "j-1",
        "model": "acme/model-1",
        "prompt": "Hello",
        "max_tokens": 9,
        "tenant": "t",
        "batch_id": "b",
        "custom_id": "c",
        "metadata": {"a": "b=c"},
        "parameters": {"temperature": 0.2, "stop": ["."], "mode": "fast"},
    }


@pytest.mark.parametrize("arguments", [["-"], []])
def test_the_prompt_can_come_from_stdin(arguments: list[str], valkey: redis.Redis, redis_url: str) -> None:
    """It is taken to the byte, its last line break included."""
    run("submit", *arguments, "-m", "acme/model-1", "--redis-url", redis_url, stdin="Zeile 1\nZeile zwei ü\n")
    assert queued(valkey)[0]["prompt"] == "Zeile 1\nZeile zwei ü\n"


def test_an_expiry_is_set_by_redis_clock(valkey: redis.Redis, redis_url: str) -> None:
    """--expires-in counts from what Redis says the time is."""
    run(*HELLO, "--expires-in", "60", "--redis-url", redis_url)
    (job,) = queued(valkey)
    enqueued, expires = (rfc3339.to_ms(rfc3339.parse(job[name])) for name in ("enqueued_at", "expires_at"))
    assert expires - enqueued == 60_000


def test_each_job_has_an_id_of_its_own(valkey: redis.Redis, redis_url: str) -> None:
    """Without --job-id no two jobs are taken for one."""
    for _ in range(2):
        run(*HELLO, "--redis-url", redis_url)
    assert len({job["job_id"] for job in queued(valkey)}) == 2


def test_the_environment_names_redis_and_namespace(valkey: redis.Redis, redis_url: str) -> None:
    """No configuration file is needed."""
    run(*HELLO, SPEEDINFER_REDIS_URL=redis_url, SPEEDINFER_NAMESPACE="other")
    assert valkey.llen("other:jobs:acme/model-1") == 1


def test_people_are_told_when_no_worker_serves_the_model(valkey: redis.Redis, redis_url: str) -> None:
    """A misspelt model would otherwise wait in silence."""
    result = run(*HELLO, "--no-json", "--redis-url", redis_url)
    assert "no live worker serves acme/model-1" in result.stderr
    (job,) = queued(valkey)
    assert lines(result) == [
        f"job {job['job_id']} is in {QUEUE} (jobs in it: 1); its result will be at speedinfer:result:{job['job_id']}"
    ]


class TestWaiting:
    def test_a_scripts_answer_is_the_result(self, valkey: redis.Redis, redis_url: str) -> None:
        """The JSON of the contract, as it was settled."""
        worker = settle_when_queued(valkey)
        (result,) = objects(run(*HELLO, "--job-id", "j-1", "--wait", "--timeout", "10", "--redis-url", redis_url))
        worker.join()
        assert result == json.loads(valkey.get(KEYS.result("j-1")) or b"")

    def test_people_see_the_text_and_what_it_cost(self, valkey: redis.Redis, redis_url: str) -> None:
        """The text alone is on stdout, and cannot drive the terminal."""
        worker = settle_when_queued(valkey, text="One\n\x1b[31mtwo [b]")
        result = run(*HELLO, "--wait", "--timeout", "10", "--no-json", "--redis-url", redis_url)
        worker.join()
        assert lines(result) == ["One", "\\x1b[31mtwo [b]"]
        assert "5 prompt + 2 completion = 7 tokens · queued 12 ms · inference 840 ms" in result.stderr

    @pytest.mark.parametrize("form", ["--json", "--no-json"])
    def test_a_failed_job_ends_with_1_and_its_code(self, form: str, valkey: redis.Redis, redis_url: str) -> None:
        """Both people and scripts learn the code."""
        worker = settle_when_queued(valkey, **FAILED)
        result = run(*HELLO, "--wait", "--timeout", "10", form, "--redis-url", redis_url)
        worker.join()
        assert result.exit_code == 1
        assert "invalid_job" in (result.stdout if form == "--json" else result.stderr)

    def test_no_result_in_time_ends_with_1_and_where_it_will_be(self, valkey: redis.Redis, redis_url: str) -> None:
        """The job stays in its queue."""
        result = run(*HELLO, "--job-id", "j-1", "--wait", "--timeout", "0.05", "--redis-url", redis_url)
        assert result.exit_code == 1
        assert "speedinfer:result:j-1" in result.stderr
        assert len(queued(valkey)) == 1

    def test_the_result_of_another_job_is_not_shown(self, valkey: redis.Redis, redis_url: str) -> None:
        """A job_id that was used before for something else is said to be that."""
        settle(valkey, GenerateJob(job_id="j-1", model="acme/model-1", prompt="Bye", max_tokens=64))
        result = run(*HELLO, "--job-id", "j-1", "--wait", "--timeout", "5", "--redis-url", redis_url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "choose another --job-id" in result.stderr

    def test_ctrl_c_stops_the_waiting_and_not_the_job(self, valkey: redis.Redis, redis_url: str) -> None:
        """The line says where the result will be."""
        command = [sys.executable, "-m", "worker.cli", *HELLO, "--job-id", "j-1", "--wait"]
        env = {**os.environ, "SPEEDINFER_REDIS_URL": redis_url}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as waiting:
            assert waiting.stderr is not None
            assert "no live worker" in waiting.stderr.readline()
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate(timeout=20)
        assert waiting.returncode == 130
        assert "speedinfer:result:j-1" in said
        assert "Traceback" not in said
        assert len(queued(valkey)) == 1


def test_an_unreachable_redis_ends_with_3_and_shows_no_password() -> None:
    """The line names the address and what to do."""
    result = run(*HELLO, "--redis-url", "redis://user:canary@127.0.0.1:1/0")
    assert result.exit_code == 3
    assert "redis://127.0.0.1:1/0" in result.stderr
    assert "canary" not in result.output
    assert len(result.stderr.splitlines()) == 1


def test_a_redis_that_wants_a_password_is_a_matter_of_configuration(valkey: redis.Redis, redis_url: str) -> None:
    """Exit 2, for both none and a wrong one."""
    valkey.config_set("requirepass", "right")
    try:
        without = run(*HELLO, "--redis-url", redis_url)
        wrong = run(*HELLO, "--redis-url", redis_url.replace("//", "//:canary@"))
    finally:
        valkey.config_set("requirepass", "")
    assert (without.exit_code, wrong.exit_code) == (2, 2)
    assert "password" in without.stderr
    assert "canary" not in wrong.output
