"""One connection to Redis: every break of it is seen, and nothing is ever sent twice by it."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import redis
from redis.exceptions import NoScriptError, ResponseError

from tests.integration.lossy_proxy import LossyProxy
from tests.waiting import wait_until
from worker.redis_link import RedisLink, RedisUnavailable
from worker.sandbox.places import free_port
from worker.sandbox.valkey_server import ValkeyServer

ROOT: Final = Path(__file__).parents[2]

pytestmark = pytest.mark.leaves("/n", "/q")


@pytest.fixture
def link(redis_url: str) -> Iterator[RedisLink]:
    """A link to the session's Valkey."""
    link = RedisLink(redis_url)
    yield link
    link.close()


def kill(client: redis.Redis, link: RedisLink) -> None:
    """Cut the link at the server's end."""
    (client_id,) = link.call([["CLIENT", "ID"]])
    client.client_kill_filter(_id=str(client_id))


def answered(link: RedisLink, *command: str) -> object:
    """Ask over a link of little patience until there is an answer, as its callers do: a busy server may take longer."""

    def ask() -> list[object]:
        try:
            return link.call([command])
        except RedisUnavailable:
            return []

    return wait_until(ask, description="the server answers in time")[0]


def test_replies_come_in_the_order_of_the_commands(link: RedisLink) -> None:
    """Of one round trip; texts, bytes and numbers may be sent, bytes come back."""
    assert link.call([["SET", "n", b"\xff\x00"], ["GET", "n"], ["INCRBY", "n2", 5], ["DEL", "n", "n2"]]) == [
        b"OK",
        b"\xff\x00",
        5,
        2,
    ]
    assert link.call([]) == []


def test_nothing_is_connected_before_it_is_needed(redis_url: str) -> None:
    """And then once for all calls."""
    link = RedisLink(redis_url)
    assert link.connects == 0
    link.call([["PING"]])
    link.call([["PING"]])
    assert link.connects == 1
    link.close()


def test_no_server_is_redis_unavailable() -> None:
    """It was not connected."""
    link = RedisLink(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(RedisUnavailable):
        link.call([["PING"]])
    assert link.connects == 0


def test_a_refused_command_is_a_fault_and_leaves_the_link_in_step(link: RedisLink) -> None:
    """The replies of the commands around it were read."""
    with pytest.raises(ResponseError, match="unknown command"):
        link.call([["SET", "n", "1"], ["NO-SUCH-COMMAND"], ["GET", "n"]])
    assert link.call([["GET", "n"]]) == [b"1"]
    assert link.connects == 1


def test_a_missing_script_is_an_answer(link: RedisLink) -> None:
    """What stands beside it in the call was done."""
    missing, done = link.call([["EVALSHA", "0" * 40, 0], ["PING"]])
    assert isinstance(missing, NoScriptError)
    assert done == b"PONG"


def test_a_break_is_seen_and_counted(valkey: redis.Redis, link: RedisLink) -> None:
    """The next call is on a new connection, of which the server knows nothing."""
    kill(valkey, link)
    with pytest.raises(RedisUnavailable):
        link.call([["PING"]])
    assert link.call([["PING"]]) == [b"PONG"]
    assert link.connects == 2


def test_a_break_while_nothing_is_asked_can_be_looked_for(valkey: redis.Redis, link: RedisLink) -> None:
    """Looking changes nothing where all is well."""
    assert not link.has_broken()
    assert link.connects == 0
    assert link.call([["PING"]]) == [b"PONG"]
    assert not link.has_broken()
    kill(valkey, link)
    wait_until(link.has_broken, description="the break is seen")
    assert not link.has_broken()
    assert link.call([["PING"]]) == [b"PONG"]
    assert link.connects == 2


LOOKING_WHILE_ANOTHER_ASKS: Final = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from worker.redis_link import RedisLink

link, asking = RedisLink(sys.argv[1]), [False]

def ask():
    for _ in range(2000):
        asking[0] = True
        link.call([["PING"]])
        asking[0] = False
        gevent.sleep(0)

def look():
    while True:
        assert asking[0] or not link.has_broken()
        gevent.sleep(0)

link.call([["PING"]])
looker, asker = gevent.spawn(look), gevent.spawn(ask)
asker.link(lambda _: looker.kill())
gevent.joinall([looker, asker], raise_error=True)
assert link.connects == 1
"""


def test_a_look_for_a_break_is_in_nobodys_way(redis_url: str) -> None:
    """Of the greenlets of a worker one may ask as soon as another waits: a look does not wait, not for a moment."""
    command = [sys.executable, "-c", LOOKING_WHILE_ANOTHER_ASKS, redis_url]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_a_break_within_a_call_is_seen(valkey: redis.Redis, link: RedisLink) -> None:
    """While the server is at work for it."""
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            link.call([["BLPOP", "q", 30]])
        except RedisUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    blocked = wait_until(
        lambda: [one for one in valkey.client_list() if one["cmd"] == "blpop"], description="it waits in the server"
    )
    valkey.client_kill_filter(_id=blocked[0]["id"])
    thread.join(30)
    assert len(errors) == 1


def test_a_lost_reply_is_not_asked_for_again(valkey: redis.Redis, redis_url: str) -> None:
    """The command was carried out once; only its caller knows whether it may be repeated."""
    with LossyProxy(redis_url) as proxy:
        link = RedisLink(proxy.url)
        link.call([["PING"]])
        proxy.lose = 1
        with pytest.raises(RedisUnavailable):
            link.call([["INCR", "n"]])
        assert proxy.lost == 1
        assert link.call([["GET", "n"]]) == [b"1"]
        link.close()
    assert valkey.get("n") == b"1"


def test_a_reply_that_comes_too_late_is_nobodys(durable_valkey: ValkeyServer) -> None:
    """The connection it comes on was given up: no later call can take it for its own."""
    link = RedisLink(durable_valkey.url, socket_timeout=0.2)
    answered(link, "SET", "n", "old")
    connects = link.connects
    durable_valkey.freeze()
    began = time.monotonic()
    try:
        with pytest.raises(RedisUnavailable, match="Timeout"):
            link.call([["GET", "n"]])
    finally:
        durable_valkey.thaw()
    assert time.monotonic() - began < 5  # What a link takes that is told nothing else.
    assert answered(link, "ECHO", "new") == b"new"
    assert link.connects > connects
    link.close()


def test_listening_may_time_out_and_go_on(valkey: redis.Redis, link: RedisLink) -> None:
    """Silence is no break."""
    link.call([["SUBSCRIBE", "channel"]])
    for _ in range(2):
        with pytest.raises(TimeoutError):
            link.read(0.01)
    valkey.publish("channel", "hello")
    assert link.read(5) == [b"message", b"channel", b"hello"]
    assert link.connects == 1


def test_a_break_while_listening_is_seen(valkey: redis.Redis, link: RedisLink) -> None:
    """At once, not after the time to listen."""
    kill(valkey, link)
    began = time.monotonic()
    with pytest.raises(RedisUnavailable):
        link.read(60)
    assert time.monotonic() - began < 30


def test_sending_on_a_broken_connection_is_seen(valkey: redis.Redis, link: RedisLink) -> None:
    """By the send, or by the read that follows it."""
    kill(valkey, link)

    def try_the_line() -> None:
        for _ in range(3):
            link.send(["PING"])
            assert link.connects == 1
            link.read(5)

    with pytest.raises(RedisUnavailable):
        try_the_line()
