"""``speedinfer models pause`` and ``resume``: what they write, and what they say."""

import getpass
import json
import socket

import pytest
import redis

from tests.integration.command import lines, objects, run
from worker.fleet import redis_time_ms
from worker.keys import Keys

KEYS = Keys("speedinfer")
MODEL = "acme/model-1"


def test_a_paused_model_is_out_of_routing_at_once(valkey: redis.Redis, redis_url: str) -> None:
    """Before any worker has heard of it; who did it, when and why is kept."""
    valkey.hset(KEYS.models, MODEL, "{}")
    valkey.zadd(KEYS.model_workers(MODEL), {"w": redis_time_ms(valkey)})
    paused = objects(run("models", "pause", MODEL, "--reason", " new\nweights ", "--redis-url", redis_url))
    assert paused == [{"model": MODEL, "paused": True, "changed": True, "declared": True, "reason": "new weights"}]
    assert valkey.smembers(KEYS.paused) == {MODEL.encode()}
    assert not valkey.exists(KEYS.model_workers(MODEL))
    said = json.loads(valkey.hget(KEYS.pauses, MODEL) or b"")
    assert said.pop("at").startswith("20")
    assert said == {"reason": "new weights", "by": f"{getpass.getuser()}@{socket.gethostname()}"}


def test_a_second_pause_changes_the_reason(valkey: redis.Redis, redis_url: str) -> None:
    """And says that it was paused already."""
    valkey.hset(KEYS.models, MODEL, "{}")
    run("models", "pause", MODEL, "--reason", "one", "--redis-url", redis_url)
    again = run("models", "pause", MODEL, "--reason", "two", "--no-json", "--redis-url", redis_url)
    assert lines(again) == [f"{MODEL} was paused already; its reason is the new one: two"]
    assert json.loads(valkey.hget(KEYS.pauses, MODEL) or b"")["reason"] == "two"


def test_a_resumed_model_leaves_no_trace(valkey: redis.Redis, redis_url: str) -> None:
    """Resumed again, or resumed without a pause, it was not paused: nothing is wrong with that."""
    run("models", "pause", MODEL, "--reason", "one", "--redis-url", redis_url)
    resumed = run("models", "resume", MODEL, "--reason", "done", "--no-json", "--redis-url", redis_url)
    assert lines(resumed) == [f"{MODEL} is resumed: done"]
    assert valkey.dbsize() == 0
    assert lines(run("models", "resume", MODEL, "--no-json", "--redis-url", redis_url)) == [f"{MODEL} was not paused"]


def test_a_name_that_nobody_declares_is_doubted(valkey: redis.Redis, redis_url: str) -> None:
    """It is paused all the same: its workers may be away for long."""
    result = run("models", "pause", "acme/modle-1", "--reason", "x", "--redis-url", redis_url)
    assert result.exit_code == 0
    assert "is that how it is written?" in result.stderr
    assert valkey.sismember(KEYS.paused, "acme/modle-1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pause", "a b", "--reason", "x"), "a b is no public name"),
        (("resume", "../a"), "must not contain '..'"),
        (("pause", MODEL, "--reason", " \n "), "--reason takes 1 to 500 characters"),
        (("pause", MODEL, "--reason", "x" * 501), "--reason takes 1 to 500 characters"),
        (("pause", MODEL), "Missing option '--reason'"),
    ],
)
def test_wrong_usage_changes_nothing(
    arguments: tuple[str, ...], words: str, valkey: redis.Redis, redis_url: str
) -> None:
    """One line says what is wrong; the exit code is 2."""
    result = run("models", *arguments, "--redis-url", redis_url)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert valkey.dbsize() == 0


def test_an_unreachable_redis_ends_with_3() -> None:
    """Nothing is known to be paused."""
    for arguments in (("pause", MODEL, "--reason", "x"), ("resume", MODEL)):
        assert run("models", *arguments, "--redis-url", "redis://127.0.0.1:1/0").exit_code == 3
