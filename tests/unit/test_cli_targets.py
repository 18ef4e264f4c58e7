"""Which Redis and namespace a command works on: options before configuration, environment and defaults."""

import json
from pathlib import Path

import pytest

from worker.cli.targets import redis_target


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A whole worker's configuration with a Redis and a namespace of its own."""
    content = {
        "worker_id": "w",
        "runtime_endpoint": "http://127.0.0.1:1",
        "supported_models": ["m"],
        "runtime_config": {"model_name": "m"},
        "redis_url": "redis://user:canary@configured/1",
        "namespace": "configured",
    }
    file = tmp_path / "worker.json"
    file.write_text(json.dumps(content))
    return file


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that configures nothing."""
    for name in ("SPEEDINFER_CONFIG", "SPEEDINFER_REDIS_URL", "SPEEDINFER_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_without_anything_the_defaults_of_the_settings_are_used() -> None:
    """A Redis on this machine, and the namespace of the contract."""
    target = redis_target(None, None, None)
    assert (target.url, target.namespace) == ("redis://127.0.0.1:6379/0", "speedinfer")


def test_a_configuration_is_used_and_its_password_is_not_shown(config: Path) -> None:
    """The address for people has no user and no password, and neither has the value as Python shows it."""
    target = redis_target(config, None, None)
    assert (target.url, target.namespace) == ("redis://user:canary@configured/1", "configured")
    assert target.address == "redis://configured/1"
    assert "canary" not in repr(target)


def test_the_environment_can_name_the_configuration(config: Path, environment: pytest.MonkeyPatch) -> None:
    """As it does for a worker; single variables are laid over the file."""
    environment.setenv("SPEEDINFER_CONFIG", str(config))
    environment.setenv("SPEEDINFER_NAMESPACE", "variable")
    target = redis_target(None, None, None)
    assert (target.address, target.namespace) == ("redis://configured/1", "variable")


def test_variables_alone_are_enough(environment: pytest.MonkeyPatch) -> None:
    """Without a whole worker's configuration."""
    environment.setenv("SPEEDINFER_REDIS_URL", "rediss://variable/2")
    environment.setenv("SPEEDINFER_NAMESPACE", "{variable}")
    target = redis_target(None, None, None)
    assert (target.url, target.namespace) == ("rediss://variable/2", "{variable}")


def test_options_win(config: Path, environment: pytest.MonkeyPatch) -> None:
    """Over the file and over the environment, each on its own."""
    environment.setenv("SPEEDINFER_NAMESPACE", "variable")
    assert redis_target(config, "redis://option/3", None).url == "redis://option/3"
    assert redis_target(config, "redis://option/3", None).namespace == "variable"
    assert redis_target(config, None, "option").namespace == "option"


def test_with_both_options_a_broken_configuration_in_the_environment_does_not_matter(
    environment: pytest.MonkeyPatch,
) -> None:
    """Whoever says all that is needed is not kept from looking."""
    environment.setenv("SPEEDINFER_CONFIG", "/not/there.json")
    assert redis_target(None, "redis://option/3", "option").namespace == "option"
