"""``speedinfer status``, ``models`` and ``check`` against a real Valkey and a real Triton."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.command import lines, objects, run
from worker.cli.ask_redis import errors, warnings
from worker.fleet import redis_time_ms
from worker.keys import PRIORITIES, Keys

KEYS = Keys("speedinfer")
Configure = Callable[..., str]


@pytest.fixture
def configure(tmp_path: Path, redis_url: str) -> Configure:
    """Write a configuration with these fields; return its file's name."""

    def write(**fields: Any) -> str:
        content = {
            "worker_id": "triton-{hostname}",
            "runtime_endpoint": "http://127.0.0.1:1",
            "redis_url": redis_url,
            "supported_models": ["acme/model-1"],
            "runtime_config": {"model_name": "text_generation"},
            **fields,
        }
        file = tmp_path / "worker.json"
        file.write_text(json.dumps(content))
        return str(file)

    return write


def beat(client: redis.Redis, worker_id: str, *, age_ms: int = 0, **fields: str) -> None:
    """Write a worker's health as a worker does."""
    health: dict[Any, Any] = {
        "state": "ready",
        "circuit": "closed",
        "in_flight": "3",
        "concurrency": "32",
        "succeeded_total": "120",
        "failed_total": "2",
        "last_error_code": "",
        "models": '{"acme/model-1":{"state":"ready","reason":null}}',
        **fields,
    }
    client.hset(KEYS.worker(worker_id), mapping=health)
    client.expire(KEYS.worker(worker_id), 60)
    client.zadd(KEYS.workers, {worker_id: redis_time_ms(client) - age_ms})


class TestStatus:
    def test_workers_are_shown_alive_and_lost(self, valkey: redis.Redis, redis_url: str) -> None:
        """A worker without a health key has shown no life for three heartbeats; ages are by Redis' clock."""
        beat(valkey, "b-live", age_ms=1200)
        beat(valkey, "a-lost", age_ms=90_000)
        valkey.delete(KEYS.worker("a-lost"))
        (status,) = objects(run("status", "--redis-url", redis_url))
        live, lost = status["workers"]
        assert (live["worker_id"], live["state"], live["succeeded_total"]) == ("b-live", "ready", 120)
        assert 1200 <= live["heartbeat_age_ms"] < 10_000
        assert (lost["worker_id"], lost["state"]) == ("a-lost", "lost")
        assert lost["heartbeat_age_ms"] >= 90_000
        shown = lines(run("status", "--no-json", "--redis-url", redis_url))
        assert shown[2].split()[:6] == ["b-live", "ready", "closed", "3/32", "120", "2"]
        assert shown[3].split()[:2] == ["a-lost", "lost"]

    def test_models_that_are_out_of_order_are_named(self, valkey: redis.Redis, redis_url: str) -> None:
        """With the reason that the worker gives, and the age of its last error."""
        models = {"acme/model-1": {"state": "paused", "reason": "runtime_unavailable"}, "b": {"state": "ready"}}
        beat(
            valkey,
            "w",
            state="degraded",
            models=json.dumps(models),
            last_error_code="runtime_unavailable",
            last_error_at="2026-01-01T00:00:00.000Z",
        )
        shown = run("status", "--no-json", "--redis-url", redis_url).stdout
        assert "acme/model-1: paused (runtime_unavailable)" in shown
        assert " d ago" in shown

    def test_what_waits_is_counted(self, valkey: redis.Redis, configure: Configure) -> None:
        """Queues of live workers' models and of configured ones, with kombu's priority lists; retries, claims, streams."""
        beat(valkey, "w")
        for priority in PRIORITIES:
            valkey.lpush(KEYS.jobs("acme/model-1") + priority, "job")
        valkey.zadd(KEYS.waiting, {"job": 1})
        valkey.expire(KEYS.waiting, 60)
        for run_of, count in (("one", 2), ("two", 3)):
            valkey.hset(KEYS.claims(run_of), mapping={str(tag): "job" for tag in range(count)})
        valkey.xadd(KEYS.settlements, {"job_id": "j"})
        valkey.xadd(KEYS.dead_letters, {"reason": "not_json"})
        config = configure(supported_models=["acme/model-1", "acme/model-2"])
        (status,) = objects(run("status", "--claims", "--config", config))
        assert [(model["model"], model["queued"], model["workers"]) for model in status["models"]] == [
            ("acme/model-1", 4, 1),
            ("acme/model-2", 0, 0),
        ]
        assert [status[name] for name in ("waiting", "claims", "settlements", "dead_letters")] == [1, 5, 1, 1]
        shown = run("status", "--claims", "--no-json", "--config", config).stdout
        assert "waiting for a retry: 1 · claimed: 5 · settlements: 1 · dead letters: 1" in shown
        valkey.delete(KEYS.claims("one"), KEYS.claims("two"))

    @pytest.mark.parametrize(
        ("state", "code"), [("ready", 0), ("degraded", 0), ("draining", 0), ("starting", 0), ("unavailable", 1)]
    )
    def test_a_live_worker_that_takes_no_jobs_makes_it_fail(
        self, valkey: redis.Redis, redis_url: str, state: str, code: int
    ) -> None:
        """Though none wait. One that is lost takes nothing either, and is missed only where jobs wait for it."""
        beat(valkey, "one", state=state)
        valkey.zadd(KEYS.workers, {"gone": 1})
        assert run("status", "--redis-url", redis_url).exit_code == code

    def test_where_no_worker_ever_was_that_is_said(self, valkey: redis.Redis, redis_url: str) -> None:
        """With the command that starts one."""
        result = run("status", "--no-json", "--redis-url", redis_url)
        assert "speedinfer worker --config FILE" in lines(result)[0]
        assert valkey.dbsize() == 0

    @pytest.mark.parametrize(
        ("state", "exit_code"),
        [("ready", 0), ("degraded", 0), ("starting", 1), ("unavailable", 1), ("draining", 1), (None, 1)],
    )
    def test_a_containers_health_check_asks_for_its_own_worker(
        self, state: str | None, exit_code: int, valkey: redis.Redis, configure: Configure
    ) -> None:
        """Healthy is who lives and takes jobs; another worker's health does not matter."""
        beat(valkey, "another")
        if state is not None:
            beat(valkey, f"triton-{socket.gethostname()}", state=state)
        result = run("status", "--this-worker", "--no-json", "--config", configure())
        assert lines(result, exit_code) == [f"triton-{socket.gethostname()}: {state or 'lost'}"]

    def test_an_unreachable_redis_ends_with_3(self) -> None:
        """It is not mistaken for a fleet without workers."""
        assert run("status", "--redis-url", "redis://127.0.0.1:1/0").exit_code == 3


class TestModels:
    def test_each_public_name_is_shown_with_what_stands_behind_it(
        self, valkey: redis.Redis, triton_url: str, configure: Configure
    ) -> None:
        """Triton's model and version, readiness, queue and workers; who missed three heartbeats is not counted."""
        valkey.zadd(KEYS.model_workers("acme/model-1"), {"w": redis_time_ms(valkey)})
        valkey.zadd(KEYS.model_workers("acme/model-1"), {"silent": redis_time_ms(valkey) - 16_000})
        job = {"job_id": "j", "enqueued_at": "2026-01-01T00:00:00.000Z"}
        valkey.lpush(KEYS.jobs("acme/model-1"), json.dumps(job), b"not json")
        config = configure(
            runtime_endpoint=triton_url,
            supported_models=["acme/model-1", "acme/none"],
            models={"acme/none": {"model_name": "not_there", "model_version": "7"}},
        )
        known, unknown = objects(run("models", "--config", config))
        assert known.pop("next_job_age_ms") > 0
        assert known == {
            "model": "acme/model-1",
            "triton_model": "text_generation",
            "version": None,
            "ready": True,
            "queue_length": 2,
            "workers": 1,
        }
        assert (unknown["version"], unknown["ready"], unknown["next_job_age_ms"]) == ("7", False, None)
        shown = lines(run("models", "--no-json", "--config", config))
        assert shown[3].split() == ["acme/none", "not_there", "7", "not", "ready", "0", "-", "0"]

    def test_an_unreachable_triton_leaves_the_queues_to_be_seen(
        self, valkey: redis.Redis, configure: Configure
    ) -> None:
        """Readiness is unknown, and the exit code is 3."""
        result = run("models", "--config", configure())
        (model,) = objects(result, exit_code=3)
        assert model["ready"] is None
        assert "Triton at http://127.0.0.1:1" in result.stderr
        assert valkey.dbsize() == 0


class TestCheck:
    def test_a_configuration_that_fits_ends_with_0(
        self, durable_valkey: Any, triton_url: str, configure: Configure
    ) -> None:
        """Each field is shown beside what the model has; no server warns."""
        config = configure(runtime_endpoint=triton_url, redis_url=durable_valkey.url)
        result = run("check", "--strict", "--config", config)
        (found,) = objects(result)
        (model,) = found["models"]
        assert found["ok"]
        assert found["triton"]["ready"] is True
        assert {"name": "text_generation", "version": "1"} in found["triton"]["models"]
        assert (model["verdict"], found["redis"]["warnings"]) == ("fits", [])
        assert {each["field"] for each in model["comparisons"]} >= {"input_name", "prompt_tokens_output_name"}
        shown = run("check", "--no-json", "--config", config).stdout
        assert "acme/model-1 -> text_generation, version 1: fits" in shown

    def test_what_does_not_fit_is_shown_side_by_side(
        self, valkey: redis.Redis, triton_url: str, configure: Configure
    ) -> None:
        """What is wrong stands in one line with what to change, above all tensors of both sides; the exit code is 1."""
        config = configure(
            runtime_endpoint=triton_url,
            supported_models=["acme/model-1", "acme/none"],
            runtime_config={"model_name": "text_generation", "input_name": "prompt_text"},
            models={"acme/none": {"model_name": "not_there"}},
        )
        (found,) = objects(run("check", "--config", config), exit_code=1)
        assert [model["verdict"] for model in found["models"]] == ["mismatch", "not_ready"]
        assert not found["ok"]
        shown = lines(run("check", "--no-json", "--config", config), exit_code=1)
        assert "  input_name = prompt_text is none of its inputs: set input_name to text_input" in shown
        rows = [line.split() for line in shown]
        assert ["input", "text_input", "BYTES", "[1,1],", "required", "-"] in rows
        assert ["input", "(not", "there)", "-", "input_name", "=", "prompt_text"] in rows
        assert ["output", "text_output", "BYTES", "[1,1]", "output_name"] in rows
        assert valkey.dbsize() == 0

    @pytest.mark.parametrize("gone", ["redis_url", "runtime_endpoint"])
    def test_a_server_that_is_gone_ends_with_3_and_the_other_is_still_shown(
        self, gone: str, valkey: redis.Redis, triton_url: str, configure: Configure
    ) -> None:
        """Both are asked, whatever the first one says."""
        address = {"redis_url": "redis://:canary@127.0.0.1:1/0", "runtime_endpoint": "http://127.0.0.1:1"}[gone]
        config = configure(**{"runtime_endpoint": triton_url, gone: address})
        result = run("check", "--config", config)
        (found,) = objects(result, exit_code=3)
        assert found["redis"]["reachable"] == (gone != "redis_url")
        assert found["triton"]["reachable"] == (gone != "runtime_endpoint")
        assert "NOT REACHABLE" in run("check", "--no-json", "--config", config).stdout
        assert "canary" not in result.output
        assert valkey.dbsize() == 0

    def test_a_redis_that_may_lose_jobs_is_warned_of(
        self, valkey: redis.Redis, triton_url: str, configure: Configure
    ) -> None:
        """A warning alone is no failure, unless --strict asks for that."""
        valkey.config_set("maxmemory-policy", "allkeys-lru")
        try:
            config = configure(runtime_endpoint=triton_url)
            (found,) = objects(run("check", "--config", config))
            strict = run("check", "--strict", "--config", config)
        finally:
            valkey.config_set("maxmemory-policy", "noeviction")
        appendonly, eviction = found["redis"]["warnings"]
        assert "set appendonly yes" in appendonly
        assert "allkeys-lru" in eviction
        assert strict.exit_code == 1

    def test_what_info_says_is_read_without_the_right_to_config(self) -> None:
        """Managed servers forbid CONFIG; a replica or an untagged cluster keeps workers from working."""
        assert list(warnings({"aof_enabled": 1, "maxmemory_policy": "noeviction"})) == []
        assert len(list(warnings({"aof_enabled": 1, "aof_last_write_status": "err"}))) == 1
        assert len(list(errors({"role": "slave", "cluster_enabled": 1}, "speedinfer"))) == 2
        assert list(errors({"role": "master", "cluster_enabled": 1}, "{speedinfer}")) == []
