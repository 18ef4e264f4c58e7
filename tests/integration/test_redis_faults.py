"""A Redis that one cannot work with: the log and the commands say what is wrong, and what to do about it."""

from collections.abc import Iterator

import pytest
import redis

from tests.integration.command import run
from worker.redis_link import RedisLink, RedisUnavailable
from worker.sandbox.places import free_port
from worker.sandbox.valkey_server import ValkeyServer


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """One that wants a password, and has a user who may do nothing."""
    with ValkeyServer(settings={"requirepass": "right"}) as running:
        client = redis.Redis.from_url(running.url, password="right")
        client.acl_setuser("idle", enabled=True, passwords=["+right"], commands=["+ping"])
        client.close()
        yield running


CAUSES = [
    ("redis://:wrong@{}/0", 2, "refuses the user or password: put valid ones into redis_url and redis_password"),
    ("redis://nobody:right@{}/0", 2, "refuses the user or password"),
    ("redis://{}/0", 2, "wants a user or password: put them into redis_url and redis_password"),
    ("redis://:right@{}/99", 2, "has no database of that number: redis_url must end in one"),
    ("redis://idle:right@{}/0", 2, "lets this user not do what is asked: give it the rights of its role"),
    ("redis+sentinel://{}/speedinfer", 3, "has no primary that a Sentinel knows"),
    ("redis://127.0.0.1:1/0", 3, "cannot be reached (connection refused)"),
]


@pytest.mark.parametrize(("url", "code", "words"), CAUSES)
def test_a_command_says_what_is_wrong(server: ValkeyServer, url: str, code: int, words: str) -> None:
    """In one line, without the password."""
    ended = run("status", "--redis-url", url.format(f"127.0.0.1:{server.port}"))
    assert ended.exit_code == code
    (line,) = ended.stderr.splitlines()
    assert words in line
    assert "right@" not in line
    assert "wrong" not in line


@pytest.mark.parametrize(
    ("url", "words"), [(url, words) for url, _, words in CAUSES if "idle" not in url and ":1/" not in url]
)
def test_a_connection_that_cannot_be_made_says_it_too(server: ValkeyServer, url: str, words: str) -> None:
    """The worker goes on asking, and logs these words."""
    link = RedisLink(url.format(f"127.0.0.1:{server.port}"))
    with pytest.raises(RedisUnavailable) as caught:
        link.call([["PING"]])
    assert words in str(caught.value)


def test_a_server_that_is_away_is_named_as_the_system_names_it() -> None:
    """Refused, unknown, and so on."""
    with pytest.raises(RedisUnavailable, match="ConnectionError: Connection refused"):
        RedisLink(f"redis://127.0.0.1:{free_port()}/0").call([["PING"]])


def test_a_replica_is_left_for_the_next_try(server: ValkeyServer) -> None:
    """A name or a Sentinel may lead to the primary by then."""
    link = RedisLink(server.url.replace("://", "://:right@"))
    link.call([["REPLICAOF", "127.0.0.1", str(free_port())]])
    try:
        with pytest.raises(RedisUnavailable, match="read only replica"):
            link.call([["SET", "a", "b"]])
        link.call([["PING"]])
        assert link.connects == 2
    finally:
        link.call([["REPLICAOF", "NO", "ONE"]])
        link.close()
