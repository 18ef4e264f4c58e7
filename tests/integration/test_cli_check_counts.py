"""``speedinfer check`` on a real model that reports integers, none of which is a token count."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.integration.command import objects, run
from worker.sandbox.triton_server import TritonServer

COUNTS: Final = ("prompt_tokens_output_name", "completion_tokens_output_name")
LLMAPI: Final = {"model_name": "llmapi"}


@pytest.fixture
def config(tmp_path: Path, redis_url: str, lookalikes: TritonServer) -> Path:
    """A worker's file but for its ``runtime_config``."""
    content = {
        "worker_id": "triton-01",
        "runtime_endpoint": lookalikes.url,
        "redis_url": redis_url,
        "supported_models": ["acme/model-1"],
    }
    file = tmp_path / "worker.json"
    file.write_text(json.dumps(content))
    return file


def checked(config: Path, runtime_config: dict[str, Any], *, exit_code: int) -> list[dict[str, Any]]:
    """What a check says of each field of the one model."""
    config.write_text(json.dumps({**json.loads(config.read_text()), "runtime_config": runtime_config}))
    (found,) = objects(run("check", "--config", str(config)), exit_code=exit_code)
    return [each for each in found["models"][0]["comparisons"] if each["reason"]]


def test_none_of_them_is_offered(valkey: redis.Redis, config: Path) -> None:  # noqa: ARG001 - has to be there
    """A cache's blocks and a draft's tokens are nothing to bill by."""
    remedies = {each["field"]: each["remedy"] for each in checked(config, LLMAPI, exit_code=1)}
    assert remedies["max_tokens_input_name"] == "set max_tokens_input_name to sampling_param_max_tokens"
    for field in COUNTS:
        assert remedies[field].startswith("the model reports no token count of the ")
        assert "cannot be billed (runtime_usage_unavailable)" in remedies[field]
    assert not any(word in remedy for remedy in remedies.values() for word in ("draft", "kv_cache"))


def test_one_that_is_configured_is_doubted(valkey: redis.Redis, config: Path) -> None:  # noqa: ARG001 - has to be there
    """The configuration fits, and would bill each job wrongly."""
    fields = {
        **LLMAPI,
        "max_tokens_input_name": "sampling_param_max_tokens",
        **dict(zip(COUNTS, ("kv_cache_reused_block", "total_draft_tokens"), strict=True)),
    }
    found = checked(config, fields, exit_code=0)
    assert {each["field"] for each in found} >= set(COUNTS)
    for each in found:
        if each["field"] in COUNTS:
            assert each["reason"] == "is called like something else than a token count, and jobs would be billed by it"
