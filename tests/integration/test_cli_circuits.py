"""``speedinfer models circuit open``, ``close`` and ``auto``: which circuits they change, and what they say."""

import json
from pathlib import Path
from typing import Any

import redis

from tests.integration.command import lines, objects, run
from tests.integration.test_cli_why import ENDPOINT, KEYS, MODEL, TRITON_MODEL, worker

CIRCUIT = KEYS.circuit(ENDPOINT, TRITON_MODEL)


def circuit(client: Any, key: str = CIRCUIT) -> dict[str, str]:
    """Return a circuit's fields."""
    return {name.decode(): value.decode() for name, value in client.hgetall(key).items()}


def forced(client: redis.Redis, key: str = CIRCUIT) -> tuple[str, str]:
    """Return what a circuit is forced to, and its state."""
    fields = circuit(client, key)
    return fields["forced"], fields["state"]


def drop(client: redis.Redis) -> None:
    """Remove forced circuits, which nothing else removes."""
    for key in client.scan_iter(KEYS.circuit("*", "*")):
        client.delete(key)


def test_a_circuit_is_held_open_and_let_go(valkey: redis.Redis, redis_url: str) -> None:
    """With who did it and why; what was open is tried with a few jobs first."""
    worker(valkey)
    held = run("models", "circuit", "open", MODEL, "--reason", "GPU 3 overheats", "--no-json", "--redis-url", redis_url)
    assert lines(held) == ["the circuit of text_generation at triton:8000 is held open: GPU 3 overheats"]
    fields = circuit(valkey)
    assert (fields["state"], fields["forced"], fields["reason"]) == ("open", "open", "GPU 3 overheats")
    assert "@" in fields["forced_by"]
    assert valkey.ttl(CIRCUIT) == -1
    let_go = run("models", "circuit", "auto", MODEL, "--reason", "cooled", "--no-json", "--redis-url", redis_url)
    assert lines(let_go) == [
        "the circuit of text_generation at triton:8000 goes by its own rules: it is half_open: cooled"
    ]
    assert forced(valkey) == ("", "half_open")
    assert valkey.ttl(CIRCUIT) > 0


def test_a_circuit_is_held_closed(valkey: redis.Redis, redis_url: str) -> None:
    """As JSON, with the other names of the same Triton model: they share it."""
    worker(valkey)
    worker(valkey, "w-2", model="acme/alias")
    held = objects(run("models", "circuit", "close", MODEL, "--reason", "known fault", "--redis-url", redis_url))
    assert held == [
        {
            "endpoint_id": ENDPOINT,
            "triton_model": TRITON_MODEL,
            "state": "closed",
            "forced": True,
            "reason": "known fault",
            "others": ["acme/alias"],
        }
    ]
    assert forced(valkey) == ("closed", "closed")
    drop(valkey)


def test_every_endpoint_is_meant_or_one(valkey: redis.Redis, redis_url: str) -> None:
    """Live workers say which there are, and which Triton model the name stands for at each."""
    worker(valkey)
    worker(valkey, "w-2", endpoint_id="other:8000", its={"triton_model": "other_model"})
    other = KEYS.circuit("other:8000", "other_model")
    both = run("models", "circuit", "open", MODEL, "--reason", "x", "--redis-url", redis_url)
    assert [told["endpoint_id"] for told in objects(both)] == ["other:8000", ENDPOINT]
    assert objects(run("models", "circuit", "auto", MODEL, "--endpoint", "other:8000", "--redis-url", redis_url))
    assert (forced(valkey)[0], forced(valkey, other)[0]) == ("open", "")
    drop(valkey)


def test_where_no_worker_lives_a_configuration_says_which(valkey: redis.Redis, redis_url: str, tmp_path: Path) -> None:
    """Without one, nothing is changed, and the exit code is 1."""
    unknown = run("models", "circuit", "open", MODEL, "--reason", "x", "--redis-url", redis_url)
    assert unknown.exit_code == 1
    assert "--config FILE" in unknown.stderr
    assert valkey.dbsize() == 0
    config = {
        "worker_id": "w",
        "runtime_endpoint": f"http://{ENDPOINT}",
        "redis_url": redis_url,
        "supported_models": [MODEL],
        "runtime_config": {"model_name": TRITON_MODEL},
    }
    file = tmp_path / "worker.json"
    file.write_text(json.dumps(config))
    assert objects(run("models", "circuit", "open", MODEL, "--reason", "x", "--config", str(file)))
    assert forced(valkey) == ("open", "open")
    drop(valkey)


def test_an_endpoint_that_nobody_has_is_not_made_up(valkey: redis.Redis, redis_url: str) -> None:
    """It may be misspelt."""
    worker(valkey)
    result = run("models", "circuit", "open", MODEL, "--reason", "x", "--endpoint", "nowhere", "--redis-url", redis_url)
    assert result.exit_code == 1
    assert f"no live worker serves {MODEL} at nowhere" in result.stderr
    assert not valkey.exists(KEYS.circuit("nowhere", TRITON_MODEL))


def test_a_reason_is_wanted(valkey: redis.Redis, redis_url: str) -> None:
    """Whoever finds the circuit held has to know why."""
    worker(valkey)
    for verb in ("open", "close"):
        result = run("models", "circuit", verb, MODEL, "--redis-url", redis_url)
        assert result.exit_code == 2
        assert "--reason" in result.stderr
    assert not valkey.exists(CIRCUIT)
