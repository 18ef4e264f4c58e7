"""The embedded Valkey: empty, on loopback, and as durable as it was asked to be."""

import socket
from pathlib import Path

import pytest
import redis

from worker.sandbox.errors import SandboxStartFailed
from worker.sandbox.valkey_server import ValkeyServer


def client_of(server: ValkeyServer, seconds: float = 30.0) -> redis.Redis:
    """A client that gives up after so long instead of trying again."""
    return redis.Redis.from_url(server.url, socket_timeout=seconds, retry=None, decode_responses=True)


def test_it_refuses_to_evict_and_listens_on_loopback_alone(valkey: redis.Redis) -> None:
    """What is in the queues is never evicted, and nobody outside this machine can connect."""
    assert valkey.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert valkey.config_get("bind") == {"bind": "127.0.0.1"}
    assert valkey.config_get("unixsocket") == {"unixsocket": ""}


def test_what_was_confirmed_survives_kill_9(durable_valkey: ValkeyServer) -> None:
    """With an append-only file that is synced always, a restart brings back what a killed server confirmed."""
    with client_of(durable_valkey) as client:
        client.set("confirmed", "yes")
        url = durable_valkey.url

        durable_valkey.kill()
        assert not durable_valkey.is_running()
        with pytest.raises(redis.ConnectionError):
            client.ping()

        durable_valkey.restart()

        assert durable_valkey.url == url
        assert client.get("confirmed") == "yes"


def test_a_frozen_valkey_answers_when_thawed(durable_valkey: ValkeyServer) -> None:
    """Frozen, it times out; thawed, it goes on."""
    with client_of(durable_valkey) as client:
        client.ping()
        durable_valkey.freeze()
        with client_of(durable_valkey, 0.5) as hasty, pytest.raises(redis.TimeoutError):
            hasty.ping()

        durable_valkey.thaw()

        assert client.ping()


def test_a_data_directory_of_ones_own_outlives_the_server(tmp_path: Path) -> None:
    """What was written is there for the next server with the same directory."""
    for attempt in ("written", "read"):
        with ValkeyServer(append_only=True, data_directory=tmp_path) as server, client_of(server) as client:
            if attempt == "written":
                client.set("kept", "yes")
            else:
                assert client.get("kept") == "yes"


def test_a_password_is_a_setting_like_any_other() -> None:
    """A server with a password gets ready, and refuses those who do not know it."""
    with ValkeyServer(settings={"requirepass": "made-up"}) as server:
        with client_of(server) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
        with redis.Redis.from_url(server.url, password="made-up") as client:
            assert client.ping()


def test_a_port_in_use_is_a_failed_start() -> None:
    """A port that was asked for and is taken is said to be so; nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ValkeyServer(port=taken.getsockname()[1])

        with pytest.raises(SandboxStartFailed, match="already in use"):
            server.start()

    assert not server.is_running()
