"""``speedinfer settlements`` and ``speedinfer dead-letters`` against a real Valkey."""

import json
import os
import subprocess
import sys
from base64 import b64decode

import pytest
import redis

from tasks.job import GenerateJob
from tests.integration.command import lines, objects, run
from tests.integration.settled import FAILED, bury, settle
from worker.keys import Keys
from worker.sandbox.valkey_server import ValkeyServer

KEYS = Keys("speedinfer")
QUEUE = "speedinfer:jobs:acme/model-1"
CANARY = b'{"prompt":"canary \x1b[2J"'


def numbered(number: int) -> GenerateJob:
    """The job of this number."""
    return GenerateJob(job_id=f"j-{number}", model="acme/model-1", prompt="Hi", max_tokens=4)


class TestSettlements:
    def test_scripts_get_one_object_a_line_with_the_whole_result(self, valkey: redis.Redis, redis_url: str) -> None:
        """The newest ones, oldest first, each with the id to go on after."""
        ids = [settle(valkey, numbered(n)) for n in range(3)]
        found = objects(run("settlements", "--count", "2", "--redis-url", redis_url))
        assert [each["id"] for each in found] == ids[1:]
        assert found[1]["result"] == json.loads(valkey.get(KEYS.result("j-2")) or b"")

    def test_people_see_a_table_without_texts(self, valkey: redis.Redis, redis_url: str) -> None:
        """Tokens, times and error codes; the text only where it is asked for."""
        settle(valkey, numbered(1), text="canary\x1b[2J")
        settle(valkey, numbered(2), **FAILED)
        shown = run("settlements", "--no-json", "--redis-url", redis_url).stdout
        with_text = run("settlements", "--no-json", "--text", "--redis-url", redis_url).stdout
        first, second = shown.splitlines()[2:4]
        assert first.split()[1:] == ["j-1", "acme/model-1", "succeeded", "5", "+", "2", "12", "840"]
        assert second.split()[1:5] == ["j-2", "acme/model-1", "invalid_job", "-"]
        assert "canary" not in shown
        assert "canary\\x1b[2J" in with_text

    def test_an_empty_queue_is_said_to_be_that(self, valkey: redis.Redis, redis_url: str) -> None:
        """Nothing on stdout, a line on stderr."""
        result = run("settlements", "--no-json", "--redis-url", redis_url)
        assert (result.exit_code, result.stdout) == (0, "")
        assert "no settlement" in result.stderr
        assert valkey.dbsize() == 0

    @pytest.mark.parametrize("form", ["--json", "--no-json"])
    def test_following_shows_what_comes_and_survives_a_reader_that_leaves(
        self, form: str, valkey: redis.Redis, redis_url: str
    ) -> None:
        """Every new settlement is a line at once; a closed pipe ends the command without a traceback."""
        settle(valkey, numbered(0))
        command = [sys.executable, "-m", "worker.cli", "settlements", "--follow", form]
        env = {**os.environ, "SPEEDINFER_REDIS_URL": redis_url}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            first = "".join(following.stdout.readline() for _ in range(1 if form == "--json" else 3))
            settle(valkey, numbered(1))
            second = following.stdout.readline()
            following.stdout.close()
            settle(valkey, numbered(2))
            assert following.wait(20) == 1
            said = following.stderr.read()
        assert "j-0" in first
        assert "j-1" in second
        assert "Traceback" not in said

    def test_following_ends_where_it_can_be_gone_on_from(self, durable_valkey: ValkeyServer) -> None:
        """A Redis that goes away ends it with 3 and the id of the last settlement that was shown."""
        client = redis.Redis.from_url(durable_valkey.url)
        ids = [settle(client, numbered(n)) for n in range(2)]
        command = [sys.executable, "-m", "worker.cli", "settlements", "--follow", "--json", "--after", ids[0]]
        env = {**os.environ, "SPEEDINFER_REDIS_URL": durable_valkey.url}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as following:
            assert following.stdout is not None
            found = [json.loads(following.stdout.readline())["id"]]
            ids.append(settle(client, numbered(2)))
            found.append(json.loads(following.stdout.readline())["id"])
            client.close()
            durable_valkey.kill()
            _, said = following.communicate(timeout=20)
        assert found == ids[1:]
        assert following.returncode == 3
        assert f"--after {ids[2]}" in said
        assert len(said.splitlines()) == 1

    def test_trimming_without_a_group_is_refused(self, valkey: redis.Redis, redis_url: str) -> None:
        """Exit 1, with the command that makes a group."""
        settle(valkey, numbered(0))
        result = run("settlements", "trim", "--redis-url", redis_url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "XGROUP CREATE speedinfer:settlements" in result.stderr
        assert valkey.xlen(KEYS.settlements) == 1

    def test_trimming_says_what_it_dropped(self, valkey: redis.Redis, redis_url: str) -> None:
        """And from where on entries are kept."""
        ids = [settle(valkey, numbered(n)) for n in range(3)]
        valkey.xgroup_create(KEYS.settlements, "billing", id="0")
        valkey.xreadgroup("billing", "reader", {KEYS.settlements: ">"}, count=2)
        valkey.xack(KEYS.settlements, "billing", ids[0])
        (said,) = objects(run("settlements", "trim", "--redis-url", redis_url))
        assert said == {"dropped": 1, "left": 2, "kept_from": ids[1]}
        (group,) = objects(run("settlements", "groups", "--redis-url", redis_url))
        assert (group["name"], group["unacknowledged"], group["lag"]) == ("billing", 1, 1)
        assert lines(run("settlements", "trim", "--no-json", "--redis-url", redis_url)) == ["dropped 0, left 2"]


class TestDeadLetters:
    def test_a_list_shows_no_content_unless_asked_to(self, valkey: redis.Redis, redis_url: str) -> None:
        """It may hold prompts; a preview is escaped."""
        letter_id = bury(valkey, CANARY)
        for form in ("--json", "--no-json"):
            assert "canary" not in run("dead-letters", "list", form, "--redis-url", redis_url).output
        (letter,) = objects(run("dead-letters", "list", "--preview", "--redis-url", redis_url))
        assert letter == {
            "id": letter_id,
            "at": "2026-11-30T10:00:00.000Z",
            "reason": "not_json",
            "queue": QUEUE,
            "bytes": len(CANARY),
            "worker_id": "triton-01",
            "preview": '{"prompt":"canary \\x1b[2J"',
        }

    def test_a_letter_is_shown_escaped_or_to_the_byte(self, valkey: redis.Redis, redis_url: str) -> None:
        """--raw writes exactly what came."""
        letter_id = bury(valkey, b"\x00\xff\r\n" + CANARY)
        shown = run("dead-letters", "show", letter_id, "--no-json", "--redis-url", redis_url)
        (content,) = objects(run("dead-letters", "show", letter_id, "--redis-url", redis_url))
        raw = run("dead-letters", "show", letter_id, "--raw", "--redis-url", redis_url)
        assert 'content: \\x00\\xff\\r\\n{"prompt":"canary \\x1b[2J"' in lines(shown)
        assert (content["raw_encoding"], b64decode(content["raw"])) == ("base64", b"\x00\xff\r\n" + CANARY)
        assert raw.stdout_bytes == b"\x00\xff\r\n" + CANARY

    def test_what_is_text_is_text_in_json_too(self, valkey: redis.Redis, redis_url: str) -> None:
        """Base64 only where it must be."""
        (content,) = objects(run("dead-letters", "show", bury(valkey, '["ü"]'.encode()), "--redis-url", redis_url))
        assert (content["raw_encoding"], content["raw"]) == ("utf-8", '["ü"]')

    def test_letters_are_replayed_to_where_they_came_from(self, valkey: redis.Redis, redis_url: str) -> None:
        """Several at a time; the queue has them in that order."""
        ids = [bury(valkey, b"a"), bury(valkey, b"b")]
        said = objects(run("dead-letters", "replay", *ids, "--redis-url", redis_url))
        assert said == [{"id": each, "replayed": True, "queue": QUEUE} for each in ids]
        assert valkey.lrange(QUEUE, 0, -1) == [b"b", b"a"]
        assert valkey.xlen(KEYS.dead_letters) == 0

    @pytest.mark.parametrize("queue", ["acme/model-2", "speedinfer:jobs:acme/model-2"])
    def test_a_letter_can_be_replayed_elsewhere(self, queue: str, valkey: redis.Redis, redis_url: str) -> None:
        """--queue takes a public name or a queue's key."""
        letter_id = bury(valkey, b"a")
        run("dead-letters", "replay", letter_id, "--queue", queue, "--redis-url", redis_url)
        assert valkey.lrange("speedinfer:jobs:acme/model-2", 0, -1) == [b"a"]

    @pytest.mark.parametrize("queue", ["speedinfer:settlements", "other:jobs:m", ""])
    def test_a_letter_goes_into_no_key_that_is_no_queue(self, queue: str, valkey: redis.Redis, redis_url: str) -> None:
        """Whether it is named, or stands in the letter: exit 2, and the letter stays."""
        named = run("dead-letters", "replay", bury(valkey, b"a"), "--queue", queue, "--redis-url", redis_url)
        kept = run("dead-letters", "replay", bury(valkey, b"a", queue=queue), "--redis-url", redis_url)
        assert (named.exit_code, kept.exit_code) == (2, 2)
        assert valkey.keys("*") == [b"speedinfer:dead-letters"]
        assert valkey.xlen(KEYS.dead_letters) == 2

    @pytest.mark.parametrize("verb", ["replay", "delete"])
    def test_those_that_are_not_there_are_named_and_the_rest_is_done(
        self, verb: str, valkey: redis.Redis, redis_url: str
    ) -> None:
        """Repeating a command is safe, and says that it found nothing."""
        letter_id = bury(valkey, b"a")
        first = run("dead-letters", verb, "1-1", letter_id, "--redis-url", redis_url)
        second = run("dead-letters", verb, letter_id, "--redis-url", redis_url)
        shown = run("dead-letters", "show", letter_id, "--redis-url", redis_url)
        assert [result.exit_code for result in (first, second, shown)] == [1, 1, 1]
        assert "1-1" in first.stderr
        assert letter_id in first.stdout
        assert letter_id in second.stderr
        assert valkey.xlen(KEYS.dead_letters) == 0
        assert valkey.llen(QUEUE) == (1 if verb == "replay" else 0)
