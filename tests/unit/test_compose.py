"""docker-compose.yml: what the compose specification's parser says of it, and what it must say for jobs to be safe."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import compose_spec
import pytest
import yaml

from settings.load import load_settings
from settings.schema import Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
WORKERS: Final = {"worker": "triton", "demo-worker": "demo-triton"}
"""The services that run workers, and the Triton that each of them uses."""


def dockerfile(instruction: str, stage: str = "worker") -> list[str]:
    """What the Dockerfile gives this instruction in a stage and those that it is made from, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stages = {
        name: (source, body)
        for source, name, body in re.findall(r"^FROM (\S+) AS (\S+)$(.*?)(?=^FROM|\Z)", text, re.MULTILINE | re.DOTALL)
    }
    source, body = stages[stage]
    above = dockerfile(instruction, source) if source in stages else []
    return [*above, *re.findall(rf"^{instruction} +(.*)$", body, re.MULTILINE)]


def read_configuration(service: Mapping[str, Any], hostname: str = "c0ffee") -> Settings:
    """The settings of the file that is mounted into a service, with its variables laid over them."""
    (mounted,) = service["volumes"]
    variables = {name: _interpolated(value) for name, value in service["environment"].items()}
    assert mounted["target"] == variables.pop("SPEEDINFER_CONFIG")
    return load_settings(ROOT / mounted["source"], variables, hostname)


def _interpolated(value: str) -> str:
    """A variable of the environment that is not set, as compose reads it."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def parsed(text: str) -> compose_spec.PyCompose:
    """The file as the specification's parser reads it, with YAML's merge keys carried out, which it does not know."""
    return compose_spec.PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(text)))


def test_it_is_a_valid_compose_file() -> None:
    """It holds to the compose specification, and each volume that a service names is declared."""
    compose = parsed(TEXT)
    compose.validate()
    mounted = [volume for service in SERVICES.values() for volume in service.get("volumes", ())]
    assert {volume["source"] for volume in mounted if volume["type"] == "volume"} == set(compose.volumes or {})
    ours = {volume["source"] for volume in mounted if volume["type"] == "bind"} - {"./model-repository"}
    assert {path for path in ours if not (ROOT / path).is_file()} == set()


def test_profiles_say_what_runs() -> None:
    """One for a CPU, one for a GPU, and two to look at either with; the queue is always there."""
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert profiles == {
        "valkey": [],
        "triton": ["gpu"],
        "worker": ["gpu"],
        "demo-triton": ["demo"],
        "demo-worker": ["demo"],
        "prometheus": ["observability"],
        "grafana": ["observability"],
        "flower": ["flower"],
    }
    for name, service in SERVICES.items():
        assert all(
            SERVICES[other].get("profiles", []) in ([], profiles[name]) for other in service.get("depends_on", ())
        )


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
        parsed(TEXT.replace(there, instead))


def test_valkey_keeps_its_jobs() -> None:
    """The queue survives a restart, on a volume, and refuses new jobs rather than evicting old ones."""
    valkey = SERVICES["valkey"]
    command = valkey["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert [(volume["type"], volume["target"]) for volume in valkey["volumes"]] == [("volume", "/data")]


def test_only_dashboards_are_published_and_only_here() -> None:
    """Neither the queue nor Triton, which ask nobody for a password, can be reached from outside the network."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"prometheus", "grafana", "flower"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert not any("network_mode" in service for service in SERVICES.values())


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
    pulled = [service["image"] for service in SERVICES.values() if "build" not in service]
    for image in [*pulled, *re.findall(r"^FROM (\S+:\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)]:
        assert re.search(r":v?\d+\.\d+", image), image


def test_what_is_built_has_a_stage() -> None:
    """Each service that is built names a stage of the Dockerfile, which starts as nobody and is told to stop by SIGTERM."""
    targets = {service["build"]["target"] for service in SERVICES.values() if "build" in service}
    assert targets == {"worker", "demo", "flower"}
    for target in targets:
        assert dockerfile("USER", target) == ["10001:10001"]
        assert dockerfile("STOPSIGNAL", target) == ["SIGTERM"]


def test_every_service_has_a_health_check() -> None:
    """Each says by itself whether it works; the worker's check comes with its image."""
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == set(WORKERS)
    (check,) = dockerfile("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    assert command == ["speedinfer", "status", "--this-worker"]


@pytest.mark.parametrize(("worker", "triton"), WORKERS.items())
def test_a_worker_waits_for_both(worker: str, triton: str) -> None:
    """Its first start comes after Valkey and its Triton are healthy."""
    assert SERVICES[worker]["depends_on"] == {
        "valkey": {"condition": "service_healthy"},
        triton: {"condition": "service_healthy"},
    }


def test_what_we_build_is_unprivileged() -> None:
    """It runs as no root, without capabilities, on a file system it cannot write to."""
    for service in SERVICES.values():
        if "build" in service:
            assert service["user"] == dockerfile("USER")[-1]
            assert int(service["user"].partition(":")[0]) > 0
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert "privileged" not in service


@pytest.mark.parametrize(("worker", "triton"), WORKERS.items())
def test_a_worker_has_the_configuration_of_its_profile(worker: str, triton: str) -> None:
    """The mounted file and the variables are valid together; the servers in it are the services here."""
    settings = read_configuration(SERVICES[worker])
    assert urlsplit(settings.runtime_endpoint).hostname == triton
    assert urlsplit(settings.redis_url.get_secret_value()).hostname == "valkey"


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_has_time_to_drain(worker: str) -> None:
    """Compose sends SIGKILL only some seconds after the worker's own drain has ended."""
    grace_seconds = compose_spec.parse_duration(SERVICES[worker]["stop_grace_period"])
    assert grace_seconds >= read_configuration(SERVICES[worker]).drain_seconds + 10


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_can_be_scaled(worker: str) -> None:
    """Two containers of it are two workers: each is named after its own host name."""
    first, second = (read_configuration(SERVICES[worker], host).worker_id for host in ("a1", "b2"))
    assert first != second
    assert "container_name" not in SERVICES[worker]


def test_prometheus_scrapes_every_worker_where_it_serves() -> None:
    """By the names of the services, at the port of their metrics; its rules are those of deploy/prometheus."""
    scraped = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text())
    ((found,),) = (config["dns_sd_configs"] for config in scraped["scrape_configs"])
    assert found["names"] == [*WORKERS]
    for worker in WORKERS:
        assert str(read_configuration(SERVICES[worker]).metrics_address) == f"0.0.0.0:{found['port']}"
    targets = {volume["target"] for volume in SERVICES["prometheus"]["volumes"]}
    assert {"/etc/prometheus/prometheus.yml", *scraped["rule_files"]} <= targets


def test_grafana_finds_its_source_and_its_dashboard() -> None:
    """Both are there from the start; nobody logs in."""
    (source,) = yaml.safe_load((ROOT / "deploy/compose/grafana-datasources.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((ROOT / "deploy/compose/grafana-dashboards.yml").read_text())["providers"]
    grafana = SERVICES["grafana"]
    assert urlsplit(source["url"]).hostname == "prometheus"
    assert f"{provider['options']['path']}/speedinfer.json" in {volume["target"] for volume in grafana["volumes"]}
    assert grafana["environment"]["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    json.loads((ROOT / "deploy/grafana/speedinfer.json").read_text())


def test_flower_has_the_queue_of_the_workers() -> None:
    """It is the application's own command, on the same Redis and namespace."""
    settings = read_configuration(SERVICES["flower"])
    for worker in WORKERS:
        theirs = read_configuration(SERVICES[worker])
        assert (settings.redis_address, settings.namespace) == (theirs.redis_address, theirs.namespace)
    assert json.loads(dockerfile("ENTRYPOINT", "flower")[-1]) == ["celery", "-A", "worker.celery"]
    assert json.loads(dockerfile("CMD", "flower")[-1])[0] == "flower"
