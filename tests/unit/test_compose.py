"""docker-compose.yml: what the compose specification's parser says of it, and what it must say for jobs to be safe."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import compose_spec
import pytest
import yaml

from settings.load import load_settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]


def dockerfile(instruction: str) -> list[str]:
    """What the Dockerfile gives this instruction, in each place it stands, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{instruction} +(.*)$", text, re.MULTILINE)


def test_it_is_a_valid_compose_file() -> None:
    """It holds to the compose specification, and each volume that a service names is declared."""
    compose = compose_spec.PyCompose.from_yaml(TEXT)
    compose.validate()
    assert sorted(compose.service_names()) == ["triton", "valkey", "worker"]
    mounted = [volume for service in SERVICES.values() for volume in service["volumes"]]
    assert {volume["source"] for volume in mounted if volume["type"] == "volume"} == set(compose.volumes or {})


@pytest.mark.parametrize(
    ("there", "instead", "complaint"),
    [
        ("stop_grace_period: 45s", "stop_grace_periods: 45s", "stop_grace_periods"),
        ("stop_grace_period: 45s", "stop_grace_period: soon", "stop_grace_period"),
        ("condition: service_healthy", "condition: service_happy", "service_happy"),
        ("capabilities: [gpu]", "capabilities: gpu", "capabilities"),
    ],
)
def test_the_parser_would_notice_a_mistake(there: str, instead: str, complaint: str) -> None:
    """A misspelt key, a wrong duration, an unknown condition and a wrong type are each refused by name."""
    assert there in TEXT
    with pytest.raises(ValueError, match=complaint):
        compose_spec.PyCompose.from_yaml(TEXT.replace(there, instead))


def test_valkey_keeps_its_jobs() -> None:
    """The queue survives a restart, on a volume, and refuses new jobs rather than evicting old ones."""
    valkey = SERVICES["valkey"]
    command = valkey["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert [(volume["type"], volume["target"]) for volume in valkey["volumes"]] == [("volume", "/data")]


def test_nothing_is_published_on_the_host() -> None:
    """Neither the queue nor Triton, which ask nobody for a password, can be reached from outside the network."""
    assert not any("ports" in service or "network_mode" in service for service in SERVICES.values())


def test_triton_has_a_gpu_and_its_models_read_only() -> None:
    """Triton reserves one NVIDIA GPU and can change nothing in the model repository, which must be there."""
    triton = SERVICES["triton"]
    (device,) = triton["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    (models,) = triton["volumes"]
    assert models["read_only"]
    assert models["bind"] == {"create_host_path": False}
    assert f"--model-repository={models['target']}" in triton["command"]
    assert "/v2/health/ready" in triton["healthcheck"]["test"][-1]


def test_images_are_of_one_version() -> None:
    """Every image that is pulled names its version, so that the same file starts the same servers next year."""
    pulled = [service["image"] for service in SERVICES.values() if "build" not in service] + dockerfile("FROM")
    for image in pulled:
        assert re.search(r":\d+\.\d+", image), image


def test_every_service_has_a_health_check() -> None:
    """Each says by itself whether it works; the worker's check comes with its image."""
    assert "healthcheck" in SERVICES["valkey"]
    assert "healthcheck" in SERVICES["triton"]
    (check,) = dockerfile("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    assert command == ["speedinfer", "status", "--this-worker"]


def test_the_worker_waits_for_both() -> None:
    """The first start of the worker comes after Valkey and Triton are healthy."""
    assert SERVICES["worker"]["depends_on"] == {
        "valkey": {"condition": "service_healthy"},
        "triton": {"condition": "service_healthy"},
    }


def test_the_worker_is_unprivileged() -> None:
    """The worker runs as no root, without capabilities, on a file system it cannot write to."""
    worker = SERVICES["worker"]
    assert worker["user"] == dockerfile("USER")[-1]
    assert int(worker["user"].partition(":")[0]) > 0
    assert worker["read_only"] is True
    assert worker["cap_drop"] == ["ALL"]
    for service in SERVICES.values():
        assert "no-new-privileges:true" in service["security_opt"]
        assert "privileged" not in service


def test_the_worker_has_time_to_drain() -> None:
    """Compose sends SIGKILL only some seconds after the worker's own drain has ended."""
    settings = load_settings(ROOT / "examples/worker.json", {}, hostname="c0ffee")
    grace_seconds = compose_spec.parse_duration(SERVICES["worker"]["stop_grace_period"])
    assert grace_seconds >= settings.drain_seconds + 10
    assert dockerfile("STOPSIGNAL") == ["SIGTERM"]


def test_the_worker_has_the_example_configuration() -> None:
    """The mounted file is the one that the worker is told to read, and the servers in it are the services here."""
    worker = SERVICES["worker"]
    (mounted,) = worker["volumes"]
    assert mounted["target"] == worker["environment"]["SPEEDINFER_CONFIG"]
    settings = load_settings(ROOT / mounted["source"], {}, hostname="c0ffee")
    assert urlsplit(settings.runtime_endpoint).hostname == "triton"
    assert urlsplit(settings.redis_url.get_secret_value()).hostname == "valkey"


def test_the_worker_can_be_scaled() -> None:
    """Two containers of the worker are two workers: each is named after its own host name."""
    first, second = (load_settings(ROOT / "examples/worker.json", {}, hostname=host).worker_id for host in ("a1", "b2"))
    assert first != second
    assert "container_name" not in SERVICES["worker"]
